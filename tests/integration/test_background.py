"""A run with child runs in the background that is killed, and resumed in another process."""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flyball.store import Query, open_store

AT_ONCE = 8
EVERY = 1 if "CRASHES" in os.environ else 3
"""One commit of so many is the one that a run dies at; in `make soak` it is each."""
CHILDREN = ["run:call-0", "run:call-0.1"]


def lines(path: Path) -> Sequence[str]:
    return path.read_text().splitlines() if path.exists() else []


def check(folder: Path) -> None:
    """Check that each child run has one end, that the parent was told of it, and that nothing was done twice."""
    with open_store(f"sqlite:///{folder / 'runs.db'}") as store:
        entry = store.runs.get("run")
        runs = [one.run_id for one in store.runs.list(Query(children=True))]
        kinds = {run: Counter(event["event"] for event in store.runs.events(run)) for run in runs}
        assert store.lease.holder("desk") is None
    assert entry is not None
    assert entry.finish is not None
    record: Any = entry.finish.record
    assert (record["stop"], record["text"]) == ("completed", "Done.")
    assert record["cancelled_children"] == []
    children = record["children"]
    assert [(one["stop"], one["text"]) for one in children] == [("completed", "Marked.")] * 2
    assert record["budgets"]["children"]["used"] == 2
    assert len(runs) == 3
    for run, counts in kinds.items():
        assert (counts["run_started"], counts["run_ended"]) == (1, 1), run
        for pair in ("turn", "tool", "child"):
            assert counts[f"{pair}_started"] == counts[f"{pair}_ended"], (run, pair)
    results = {one["run_id"]: one["tool_execution_results"] for one in (record, *children)}
    rows = [(run, row) for run, rows in results.items() for row in rows]
    unknown = {f"{run}:{row['call_id']}" for run, row in rows if row.get("kind") == "Interrupted"}
    marks = Counter(line.split()[0] for line in lines(folder / "marks"))
    assert set(marks.values()) <= {1}, f"done twice: {marks}"
    assert len(set(marks) | unknown) == 3
    assert len(set(lines(folder / "puts"))) == 2
    for run, requests in Counter(lines(folder / "requests")).items():
        booked = next(one["requests"] for one in (record, *children) if one["run_id"] == run)
        assert requests <= booked, f"{run}: a request that was not booked"


def folders(above: Path, numbers: Sequence[int]) -> dict[int, Path]:
    made = {n: above / str(n) for n in numbers}
    for folder in made.values():
        folder.mkdir()
    return made


@pytest.mark.parametrize(
    ("after", "collects"),
    [(False, True), (True, True), (False, False)],
    ids=["before-collects", "after-collects", "before-waits"],
)
def test_a_run_with_background_children_killed_at_any_commit_loses_nothing(
    after: bool, collects: bool, nursery: Any, tmp_path: Path
) -> None:
    at, kills, codes = int(after), 0, list[int]()
    while 0 not in codes:  # one comes to its end before it is killed: there are no more commits
        places = folders(tmp_path, range(at, at + AT_ONCE * EVERY, EVERY))
        born = [
            nursery.start(folder, "background", kill_at=n, after=after, collects=collects)
            for n, folder in places.items()
        ]
        codes = [one.ended() for one in born]
        assert set(codes) <= {0, -signal.SIGKILL}
        again = [nursery.start(folder, "background", collects=collects) for folder in places.values()]
        for folder, one in zip(places.values(), again, strict=True):
            one.said()
            try:
                check(folder)
            except AssertionError as error:
                raise AssertionError(f"in {folder}: {error}") from error
        at += AT_ONCE * EVERY
        kills += codes.count(-signal.SIGKILL)
    assert kills * EVERY > 15


def test_a_run_killed_with_an_open_background_child_relaunches_it(nursery: Any, program: Any, tmp_path: Path) -> None:
    born = nursery.start(tmp_path, "background", held=True)
    program.Place(str(tmp_path)).wait_for("marks 3")  # the parent's own call, and a call of each child run
    born.kill()
    assert born.ended() == -signal.SIGKILL
    with open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        ended = [one.finish is not None for one in store.runs.list(Query(children=True))]
    assert ended == [False] * 3
    record = nursery.start(tmp_path, "background").said()
    check(tmp_path)
    told = [row["text"] for row in record["tool_execution_results"] if row["tool"] == "collect"]
    assert len(told) == 1
    assert told[0].count("Marked.") == 2
    kinds = [row.get("kind") for one in record["children"] for row in one["tool_execution_results"]]
    assert kinds.count("Interrupted") == 2, "a call that may have had an effect is not made again"


def test_a_run_with_background_children_killed_again_and_again_comes_to_its_end(nursery: Any, tmp_path: Path) -> None:
    born = nursery.start(tmp_path, "background", kill_at=3)
    lives = 1
    while born.ended() == -signal.SIGKILL:
        lives += 1
        assert lives < 60
        born = nursery.start(tmp_path, "background", kill_at=3, after=bool(lives % 2))
    assert lives > 5
    check(tmp_path)
