"""A run that is killed, at chosen commits and at any moment, and goes on in other processes."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flyball.store import Kind, open_store

LONG = 60.0
AT_ONCE = 8
SOAK = "CRASHES" in os.environ
KILLS = int(os.environ.get("CRASHES", "10"))
"""At random moments: more in `make soak`."""
EVERY = 1 if SOAK else 3
"""One commit of so many is the one that a run dies at; in `make soak` it is each."""
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
def test_a_run_killed_at_any_commit_loses_nothing(after: bool, nursery: Any, check_all: Any, tmp_path: Path) -> None:
    at, kills, codes = int(after), 0, dict[Path, int]()
    while 0 not in codes.values():  # one comes to its end before it is killed: there are no more commits
        codes = killed_at(nursery, tmp_path, range(at, at + AT_ONCE * EVERY, EVERY), after)
        assert set(codes.values()) <= {0, -signal.SIGKILL}
        check_all(codes)
        at += AT_ONCE * EVERY
        kills += list(codes.values()).count(-signal.SIGKILL)
    assert kills * EVERY > 40


def test_a_run_killed_again_and_again_comes_to_its_end(nursery: Any, check_all: Any, tmp_path: Path) -> None:
    """Each process gets three commits further, so every one of them takes up what another had taken up."""
    born = nursery.start(tmp_path, kill_at=3)
    lives = 1
    while born.ended() == -signal.SIGKILL:
        lives += 1
        assert lives < 60
        born = nursery.start(tmp_path, kill_at=3, after=bool(lives % 2))
    assert lives > 10
    check_all([tmp_path])


def test_a_dead_run_that_several_processes_resume_goes_on_in_one(nursery: Any, check_all: Any, tmp_path: Path) -> None:
    for n, folder in folders(tmp_path, range(5, 45, 5 * EVERY)):
        assert nursery.start(folder, kill_at=n).ended() == -signal.SIGKILL
        born = [nursery.start(folder) for _ in range(3)]
        said = [one.said() for one in born]
        assert {one["stop"] for one in said if one is not None} <= {"completed", "contended"}
        check_all([folder])


def test_a_run_killed_in_a_batch_doubts_only_the_calls_in_progress(nursery: Any, tmp_path: Path) -> None:
    born = nursery.start(tmp_path, "batch")
    with open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        until = time.monotonic() + LONG
        while Kind.OUTCOME not in [row.kind for row in store.journal.read("run")]:
            assert time.monotonic() < until, "what one call came to is not kept before the others have ended"
            time.sleep(0.01)
    born.kill()
    born.ended()
    (tmp_path / "go").write_text("now\n")
    said = nursery.start(tmp_path, "batch").said()
    assert [(row["tool"], row["text"]) for row in said["tool_execution_results"]] == [
        ("quick", "quick"),
        ("slow", "slow"),
    ]
    assert (tmp_path / "marks").read_text().splitlines() == ["run:call-0"]
    assert set((tmp_path / "puts").read_text().splitlines()) == {"run:call-1"}


def test_a_run_killed_at_random_moments_loses_nothing(nursery: Any, check_all: Any, tmp_path: Path) -> None:
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
