"""A run that is killed, at chosen commits and at any moment, and goes on in other processes."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

AT_ONCE = 8
KILLS = int(os.environ.get("CRASHES", "25"))
"""At random moments: more in `make soak`."""
SEED = int(os.environ.get("CRASH_SEED", "13"))

Check = Callable[[Path], Any]


def folders(above: Path, numbers: Sequence[int]) -> Iterator[tuple[int, Path]]:
    for n in numbers:
        folder = above / str(n)
        folder.mkdir()
        yield n, folder


def killed_at(nursery: Any, above: Path, numbers: Sequence[int], after: bool) -> dict[Path, int]:
    """Runs that die at these commits, side by side, and how they ended."""
    born = {folder: nursery.start(folder, kill_at=n, after=after) for n, folder in folders(above, numbers)}
    return {folder: one.ended() for folder, one in born.items()}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_commit_loses_nothing(after: bool, nursery: Any, check_all: Any, tmp_path: Path) -> None:
    kills, codes = 0, dict[Path, int]()
    while 0 not in codes.values():  # one comes to its end before it is killed: there are no more commits
        codes = killed_at(nursery, tmp_path, range(kills, kills + AT_ONCE), after)
        assert set(codes.values()) <= {0, -signal.SIGKILL}
        check_all(codes)
        kills += list(codes.values()).count(-signal.SIGKILL)
    assert kills > 40


def test_a_run_that_is_killed_again_and_again_comes_to_its_end(nursery: Any, check_all: Any, tmp_path: Path) -> None:
    """Each process gets three commits further, so every one of them takes up what another had taken up."""
    born = nursery.start(tmp_path, kill_at=3)
    lives = 1
    while born.ended() == -signal.SIGKILL:
        lives += 1
        assert lives < 60
        born = nursery.start(tmp_path, kill_at=3, after=bool(lives % 2))
    assert lives > 10
    check_all([tmp_path])


def test_kills_at_random_moments_lose_nothing(nursery: Any, check_all: Any, tmp_path: Path) -> None:
    moments = random.Random(SEED)
    for first in range(0, KILLS, 5):
        lives = dict(folders(tmp_path, range(first, first + 5)))
        for folder in lives.values():
            for _ in range(moments.choice([1, 1, 2, 4])):
                born = nursery.start(folder, pause_s=0.004)
                time.sleep(moments.uniform(0.0, 0.25))
                born.kill()
                born.ended()
        check_all(lives.values())
