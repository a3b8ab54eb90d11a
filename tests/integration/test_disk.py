"""A file that breaks under a run: it ends as failed with what it has, names the file, and hangs nowhere."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, Result, tool
from flyball.store import SqliteStore
from flyball.testing import ScriptedModel, call, say

LONG = 60.0
Break = Callable[[SqliteStore, Path], object]


def fill(store: SqliteStore, _path: Path) -> None:
    """The disk has no more room than is used."""
    store.write(lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchall())


def damage(store: SqliteStore, path: Path) -> None:
    """Junk is where tables were; what is in the log is moved there first, as SQLite reads from it."""
    store.write(lambda connection: connection.execute("PRAGMA cache_size = 0").fetchall())
    other = sqlite3.connect(path)
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (size - 100))


def lock(_store: SqliteStore, path: Path) -> sqlite3.Connection:
    """Another process writes, and does not end."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other


def move(_store: SqliteStore, path: Path) -> None:
    """Somebody tidies up."""
    shutil.move(path, path.with_suffix(".old"))


@pytest.mark.parametrize(
    ("broken", "words"),
    [(fill, "the disk is full"), (damage, "damaged"), (lock, "locked"), (move, "the file is gone")],
    ids=["full", "damaged", "locked", "moved"],
)
def test_a_run_on_a_file_that_breaks_ends_as_failed_with_what_it_has(broken: Break, words: str, tmp_path: Path) -> None:
    path, held = tmp_path / "runs.db", list[Any]()

    @tool
    def work(n: int) -> str:
        if n == 2:
            held.append(broken(store, path))
        return f"worked {'x' * 9_000} {n}"

    with SqliteStore(path, busy_seconds=0.2) as store:
        script = ScriptedModel(*(call("work", n=n) for n in range(1, 9)), say("Done."))
        result = Agent(model=script, tools=[work], store=store).start("go", session="s").result(LONG)
        _told(result, path, words)
        for connection in held:
            if connection is not None:
                connection.close()


def _told(result: Result, path: Path, words: str) -> None:
    error = result.error or {}
    assert (result.stop, error.get("code")) == ("failed", "store_failed"), error
    assert str(path) in error["message"]
    assert words in error["message"]
    done = [outcome.status for outcome in result.tool_results if outcome.status == "done"]
    assert 2 <= len(done) < 8, "it went on though nothing could be kept"
    assert [event.kind for event in result.events].count("run_ended") == 1
    assert result.text == "" or "report" in result.text.lower()


def test_a_run_whose_file_was_locked_goes_on_when_it_is_free_again(tmp_path: Path) -> None:
    path, held, done = tmp_path / "runs.db", list[sqlite3.Connection](), list[int]()

    @tool
    def work(n: int) -> int:
        done.append(n)
        if n == 2:
            held.append(lock(store, path))
        return n

    with SqliteStore(path, busy_seconds=0.2) as store:
        script = ScriptedModel(*(call("work", n=n) for n in range(1, 5)), say("Done."))
        agent = Agent(model=script, tools=[work], store=store, lease_seconds=6)
        failed = agent.start("go").result(LONG)
        held[0].close()
        result = agent.reopen(failed.run_id, wait_seconds=LONG).begin().result(LONG)
    assert (failed.stop, result.stop, result.text) == ("failed", "completed", "Done.")
    assert done == [1, 2, 3, 4]
    assert [outcome.status for outcome in result.tool_results] == ["done", "failed", "done", "done"]
