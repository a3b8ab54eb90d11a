"""One database per file and process: shared by its stores, closed with the last, safe from the collector and forks."""

import gc
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import pytest

from flyball import Agent
from flyball.errors import ConfigError, StaleFence, StoreError
from flyball.message import Message
from flyball.store import Guard, Kind, Row, SqliteStore, Start, Step
from flyball.testing import ManualClock, ScriptedModel, say

Begin = Callable[..., "subprocess.Popen[str]"]
Hold = Callable[..., Guard]
Said = Callable[..., list[Message]]


def open_and_close_elsewhere(path: Path) -> None:
    """Open and close the file in another process, as `flyball runs` does."""
    program = "import sys; from flyball.store import SqliteStore; SqliteStore(sys.argv[1]).close()"
    subprocess.run([sys.executable, "-c", program, path], check=True, timeout=60)


def runs_in(path: Path) -> set[str]:
    """Return the ids of the runs that another process finds in the file."""
    program = """
import sys
from flyball.store import Query, SqliteStore
with SqliteStore(sys.argv[1]) as store:
    print(*[entry.run_id for entry in store.runs.list(Query(limit=100_000))])
"""
    found = subprocess.run(
        [sys.executable, "-c", program, path], check=True, timeout=60, capture_output=True, text=True
    )
    return set(found.stdout.split())


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def test_opening_a_file_twice_keeps_its_locks(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store:
        guard = hold(store)
        store.transcript.append(guard, said("one"))
        SqliteStore(path).close()
        open_and_close_elsewhere(path)
        assert wal(path).exists()  # without our locks the other process takes itself for the last and deletes it
        store.runs.start("r", Start(at=1.0))
        assert runs_in(path) == {"r"}


def test_agents_in_threads_that_open_one_file_at_once_lose_no_run(path: Path) -> None:
    agent = Agent(model=ScriptedModel.looping(say("done")), store=f"sqlite:///{path}")
    barrier, completed = Barrier(8), list[str]()

    def work() -> None:
        barrier.wait(60)
        for _ in range(5):
            result = agent.run("Do it.")
            assert result.stop == "completed"
            completed.append(result.run_id)

    threads = [Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        open_and_close_elsewhere(path)
    for thread in threads:
        thread.join(60)
    assert len(completed) == 40
    assert runs_in(path) == set(completed)


def test_stores_on_one_file_share_their_connections_until_the_last_is_closed(path: Path, hold: Hold) -> None:
    first, second = SqliteStore(path), SqliteStore(path)
    assert first._database is second._database  # pyright: ignore[reportPrivateUsage]
    first.close()
    first.close()
    with pytest.raises(StoreError, match="closed"):
        first.runs.list()
    with pytest.raises(StoreError, match="closed"):
        hold(first)
    hold(second)
    assert wal(path).exists()
    second.close()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_file_with_two_names_is_one_database(link: Callable[[Path, Path], None], path: Path, hold: Hold) -> None:
    other = path.with_name("other.db")
    with SqliteStore(path) as store:
        link(other, path)
        with SqliteStore(other) as second:
            guard = hold(second)
            assert store.lease.renew(guard, 600)
        assert not wal(other).exists()


def test_a_link_to_a_missing_file_creates_that_file(path: Path, hold: Hold) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with SqliteStore(link) as store:
        hold(store)
    assert path.exists()


def test_other_options_for_an_open_file_are_refused_and_both_are_named(path: Path, hold: Hold) -> None:
    with SqliteStore(path, busy_seconds=5) as store:
        with pytest.raises(ConfigError) as caught:
            SqliteStore(path, synchronous="full")
        assert "synchronous=full&busy_seconds=30" in str(caught.value)
        assert "synchronous=normal&busy_seconds=5" in str(caught.value)
        hold(store)
    SqliteStore(path, synchronous="full").close()  # nobody has it open any more


def test_a_file_that_was_moved_while_open_is_not_opened_under_its_new_name(path: Path) -> None:
    moved = path.with_name("moved.db")
    with SqliteStore(path) as store:
        path.rename(moved)
        with pytest.raises(StoreError, match="gone"):
            SqliteStore(moved)
        moved.rename(path)
        store.runs.start("r", Start(at=1.0))
    SqliteStore(path).close()


def test_a_failed_opening_leaves_nothing_behind(path: Path) -> None:
    path.write_bytes(b"These are my notes, and not a database.\n" * 200)
    for _ in range(2):
        with pytest.raises(StoreError, match="damaged"):
            SqliteStore(path)
    path.unlink()
    SqliteStore(path, synchronous="full").close()


def collect_inside(store: SqliteStore, drop: Callable[[], object]) -> None:
    """Let the garbage collector run inside a transaction of this store."""

    def act(connection: sqlite3.Connection) -> None:
        drop()
        gc.collect()
        connection.execute("SELECT 1")

    store.write(act)


@pytest.mark.parametrize("same_file", [True, False])
def test_a_store_that_is_collected_inside_a_transaction_waits_for_nothing(
    same_file: bool, path: Path, hold: Hold
) -> None:
    stores = [SqliteStore(path if same_file else path.with_name("other.db"))]
    hold(stores[0], "other")
    with SqliteStore(path) as store:
        collect_inside(store, stores.clear)
        hold(store)


def test_an_agent_for_each_request_leaves_no_store_open(path: Path) -> None:
    for _ in range(5):
        agent = Agent(model=ScriptedModel(say("done")), store=f"sqlite:///{path}", lease_seconds=30)
        assert agent.run("Do it.").stop == "completed"
        del agent
    gc.collect()
    SqliteStore(path.with_name("other.db")).close()  # gives up what was collected
    assert {file.name for file in path.parent.iterdir()} == {"runs.db", "other.db"}


FORKED = """
    import warnings; warnings.simplefilter("ignore")
    from threading import Event, Thread
    def run(n): return f"child-{n}", Start(at=1.0)
    def hear(): os.read(first, 1)
    first, second = os.pipe()
    store = SqliteStore(path)
    store.runs.start("parent", Start(at=1.0))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_locks_of_its_own(path: Path, start: Begin) -> None:
    process = start(
        FORKED
        + """
    child = os.fork()
    if not child:
        own = SqliteStore(path)
        own.runs.start(*run(0))
        hear()
        for n in range(1, 5):
            own.runs.start(*run(n))
        os._exit(len(own.runs.list()) - 6)
    while len(store.runs.list()) < 2:
        time.sleep(0.01)
    store.close()
    assert os.path.exists(path + "-wal"), "the child has no lock on its file"
    os.write(second, b".")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    printed, _ = process.communicate(timeout=60)
    assert printed == "0\n"
    assert runs_in(path) == {"parent", *(f"child-{n}" for n in range(5))}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_was_forked_during_a_write_is_told_to_be_spawned(path: Path, start: Begin) -> None:
    process = start(
        FORKED
        + """
    begun, go = Event(), Event()
    def act(connection):
        begun.set()
        go.wait(60)
    writer = Thread(target=store.write, args=(act,))
    writer.start()
    begun.wait(60)
    child = os.fork()
    if not child:
        try:
            SqliteStore(path)
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        store.close()
        with SqliteStore(path + ".other") as other:
            other.runs.start(*run(0))
        os._exit(7)
    status = os.waitpid(child, 0)[1]
    go.set()
    writer.join()
    store.runs.start("later", Start(at=1.0))
    print(os.waitstatus_to_exitcode(status))
        """
    )
    told, code = process.communicate(timeout=60)[0].splitlines()
    assert told.startswith(f"StoreError {path}: ")
    assert "fork" in told
    assert code == "7"
    assert runs_in(path) == {"parent", "later"}


def test_a_holder_that_comes_back_after_its_run_was_pruned_is_refused(path: Path) -> None:
    clock = ManualClock()
    with SqliteStore(path, clock=clock) as store, SqliteStore(path, clock=clock) as other:
        guard = store.lease.acquire("s", "me", 5.0)
        assert isinstance(guard, Guard)
        store.keep(Step(run_id="r", guard=guard, start=Start(at=1.0, session="s")))
        clock.move(20.0)
        assert other.prune(before=clock.wall() - 16.0).runs == 1  # its lease expired less than 16 seconds ago
        with pytest.raises(StaleFence):
            store.keep(Step(run_id="r", guard=guard, rows=[Row(1, Kind.STARTED)]))
        assert store.journal.read("r") == []


def test_what_a_refused_step_has_numbered_is_forgotten(path: Path, hold: Hold) -> None:
    with SqliteStore(path) as store:
        guard = hold(store)
        store.keep(Step(run_id="r", guard=guard, start=Start(at=1.0, session="s"), rows=[Row(1, Kind.ANSWER)]))
        for _ in range(2):
            with pytest.raises(StoreError):  # its second answer comes first, so nothing of it is kept
                store.keep(Step(run_id="r", guard=guard, rows=[Row(3, Kind.ANSWER), Row(2, Kind.ANSWER)]))
        store.keep(Step(run_id="r", guard=guard, rows=[Row(2, Kind.ANSWER)]))
        assert [row.n for row in store.journal.read("r")] == [1, 2]
