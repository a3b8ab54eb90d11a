"""A run that met its limit, is given more, and is killed on the way."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flyball.message import Role
from flyball.store import open_store

COMMITS = 22
"""More than such a run has."""
EVERY = 1 if "CRASHES" in os.environ else 3
"""One commit of so many is the one that a run dies at; in `make soak` it is each."""


def check(folder: Path) -> None:
    marks = Counter((folder / "marks").read_text().split()[::2])
    with open_store(f"sqlite:///{folder / 'runs.db'}") as store:
        entry, said = store.runs.get("run"), store.transcript.read("desk")
        kinds = Counter(event["event"] for event in store.runs.events("run"))
        assert store.lease.holder("desk") is None
    assert entry is not None
    assert entry.finish is not None
    record: Any = entry.finish.record
    assert (record["stop"], record["text"], record["turns"]) == ("completed", "Done.", 5)
    assert record["budgets"]["turns"]["ceiling"] == 7, "it got more once"
    assert [message.n for message in said] == list(range(len(said)))
    spoken = [message.content for message in said if message.role is Role.ASSISTANT and message.content]
    reported = (
        ["I report."] if not record["estimated_requests"] else spoken[:-1]
    )  # a report that was cut is made without a model
    assert spoken == [*reported, "Done."]
    assert len(spoken) <= 2, "its report stays, and there is one"
    assert set(marks.values()) == {1}
    unknown = [row for row in record["tool_execution_results"] if row.get("kind") == "Interrupted"]
    assert len(marks) + len(unknown) >= 4
    assert kinds["run_ended"] == 2, "when it met its limit, and when it completed"
    for pair in ("turn", "tool", "grace"):
        assert kinds[f"{pair}_started"] == kinds[f"{pair}_ended"], pair


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_killed_at_any_commit_is_extended_once(after: bool, nursery: Any, tmp_path: Path) -> None:
    folders = {n: tmp_path / str(n) for n in (*range(int(after), COMMITS, EVERY), COMMITS)}
    for folder in folders.values():
        folder.mkdir()
    born = [nursery.start(folder, "stretch", kill_at=n, after=after) for n, folder in folders.items()]
    codes = [one.ended() for one in born]
    assert set(codes) == {-signal.SIGKILL, 0}, "some were killed, and to the last nothing happened"
    again = [nursery.start(folder, "stretch") for folder in folders.values()]
    for folder, one in zip(folders.values(), again, strict=True):
        one.said()
        check(folder)
