"""The writer: one at a time, for all who wait."""

import gc
import signal
import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import Any

import pytest

from flyball.errors import StoreError
from flyball.message import Message
from flyball.store import Guard, Kind, Row, SqliteStore, Start, Step
from flyball.store.sqlite import writer
from flyball.testing import until

Hold = Callable[..., Guard]
Said = Callable[..., list[Message]]


def waiting_in(store: SqliteStore) -> list[Any]:
    """Return the jobs that wait behind the one that is being written."""
    return store._database._writer._waiting  # type: ignore[reportPrivateUsage, reportOptionalMemberAccess]


class Queue:
    """Acts that wait behind one that is being written, so that they become one transaction."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.go, self.begun = Event(), Event()
        self.raised: dict[int, BaseException] = {}
        self.threads = [Thread(target=self._first)]
        self.threads[0].start()
        assert self.begun.wait(60)

    def _first(self) -> None:
        def act(_connection: sqlite3.Connection) -> None:
            self.begun.set()
            assert self.go.wait(60)

        self.store.write(act)

    def add(self, act: Callable[[], object]) -> None:
        place = len(self.threads)

        def work() -> None:
            try:
                act()
            except BaseException as error:
                self.raised[place] = error

        waiting = waiting_in(self.store)
        before = len(waiting)
        self.threads.append(Thread(target=work))
        self.threads[-1].start()
        until(lambda: len(waiting) > before)

    def run(self) -> None:
        self.go.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def test_those_who_wait_are_one_commit(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store:
        guards = [hold(store, f"s{n}") for n in range(5)]
        traced: list[str] = []
        store.write(lambda connection: connection.set_trace_callback(traced.append))
        queue = Queue(store)
        for guard in guards:
            queue.add(lambda guard=guard: store.transcript.append(guard, said("one")))
        queue.run()
        store.write(lambda connection: connection.set_trace_callback(None))
        assert traced.count("COMMIT") == 3  # that of the first trace, of the one in front, and of all five
        assert [store.transcript.read(f"s{n}") for n in range(5)] == [said("one")] * 5


def test_a_step_that_is_refused_takes_no_other_down(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store:
        guards = [hold(store, f"s{n}") for n in range(3)]
        guards[1] = Guard("s1", 99)
        queue = Queue(store)
        for guard in guards:
            queue.add(lambda guard=guard: store.transcript.append(guard, said("one")))
        twice = [Row(1, Kind.ANSWER), Row(1, Kind.ANSWER)]
        queue.add(lambda: store.keep(Step(run_id="r", start=Start(at=1.0, session="s3"), rows=twice)))
        queue.add(lambda: store.runs.start("other", Start(at=1.0)))
        queue.run()
        assert [type(error).__name__ for _, error in sorted(queue.raised.items())] == ["StaleFence", "StoreError"]
        assert [len(store.transcript.read(f"s{n}")) for n in range(3)] == [1, 0, 1]
        assert [entry.run_id for entry in store.runs.list()] == ["other"]
        assert store.transcript.sessions("s3") == []


def test_a_commit_that_fails_is_told_to_all_who_waited_for_it(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store:
        guards = [hold(store, f"s{n}") for n in range(3)]
        store.write(lambda connection: connection.execute("PRAGMA max_page_count = 30").fetchall())
        queue = Queue(store)
        for guard, size in zip(guards, (10, 500_000, 10), strict=True):
            queue.add(lambda guard=guard, size=size: store.transcript.append(guard, said("x" * size)))
        queue.run()
        kept = [len(store.transcript.read(f"s{n}")) for n in range(3)]
        assert kept[1] == 0
        assert sorted(queue.raised) == [place + 1 for place, count in enumerate(kept) if not count]
        store.transcript.append(guards[0], said("after"))


def test_ctrl_c_ends_the_wait_of_whoever_writes_and_the_writer_goes_on(path: Path, hold: Hold, said: Said) -> None:
    def interrupt(_connection: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    with SqliteStore(path) as store:
        guard = hold(store)
        queue = Queue(store)
        queue.add(lambda: store.write(interrupt))
        queue.add(lambda: store.transcript.append(guard, said("one")))
        queue.run()
        assert type(queue.raised[1]) is KeyboardInterrupt
        assert isinstance(queue.raised[2], StoreError)
        assert "interrupted" in str(queue.raised[2])
        store.transcript.append(guard, said("two"))
        assert store.transcript.read("s") == said("two")


def test_ctrl_c_ends_a_wait_and_those_behind_it_get_their_turn(path: Path, hold: Hold, said: Said) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = get_ident()
    with SqliteStore(path) as store:
        guard = hold(store)
        queue = Queue(store)

        def interrupt() -> None:
            until(lambda: len(waiting_in(store)) == 1)
            queue.add(lambda: store.transcript.append(guard, said("behind")))
            while not gone.wait(0.01):  # Python does not see a signal that comes just before it begins to wait
                signal.pthread_kill(main, signal.SIGINT)

        gone = Event()
        helper = Thread(target=interrupt)
        helper.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                store.transcript.append(guard, said("interrupted"))
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            gone.set()
            helper.join(60)
            signal.signal(signal.SIGINT, before)
        queue.run()
        assert store.transcript.read("s") == said("behind")
        assert queue.raised == {}


def test_closing_lets_those_who_wait_be_done_first(path: Path, hold: Hold, said: Said) -> None:
    store = SqliteStore(path)
    guard = hold(store)
    queue = Queue(store)
    queue.add(lambda: store.transcript.append(guard, said("one")))
    store.close()  # waits for nothing
    queue.run()
    assert queue.raised == {}
    assert list(path.parent.iterdir()) == [path]  # the last to write has closed the file
    with pytest.raises(StoreError, match="closed"):
        store.transcript.append(guard, said("two"))
    with SqliteStore(path) as again:
        assert again.transcript.read("s") == said("one")


def test_a_store_that_nobody_has_closed_lets_go_of_its_file(path: Path, hold: Hold) -> None:
    store = SqliteStore(path)
    hold(store)
    assert store.transcript.read("s") == []
    gone = weakref.ref(store)
    del store
    gc.collect()
    assert gone() is None
    SqliteStore(path).close()  # opening a store gives up those that were collected
    assert list(path.parent.iterdir()) == [path]  # its log is gone with the last connection


def test_many_readers_leave_few_connections(path: Path) -> None:
    with SqliteStore(path) as store:
        threads = [Thread(target=lambda: store.transcript.sessions()) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(store._database._readers._idle) <= 4  # pyright: ignore[reportPrivateUsage]


def test_a_checkpoint_happens_in_another_thread_and_loses_nothing(
    path: Path, hold: Hold, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_WRITES_PER_CHECKPOINT", 20)
    with SqliteStore(path) as store:
        guard, size = hold(store), path.stat().st_size
        step = Step(guard=guard, messages=said("one"))
        for _ in range(30):
            until(lambda: store.keep_now([step]) == [None])
        until(lambda: path.stat().st_size > size)
        until(lambda: not store._database._writer.is_busy)  # type: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        assert store.keep_now([step]) == [None]
        assert len(store.transcript.read(guard.session)) == 31


def test_a_store_that_waits_for_the_disk_keeps_nothing_at_once(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path, synchronous="full") as store:
        step = Step(guard=hold(store), messages=said("one"))
        assert store.keep_now([step]) is None
        assert store.keep_all([step, Step(run_id="unknown", rows=[Row(0, Kind.STARTED)]), step])[1] is not None
        assert len(store.transcript.read(step.guard.session if step.guard else "")) == 2


def test_more_steps_than_a_batch_are_all_written(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store:
        guard = hold(store)
        steps = [Step(guard=guard, messages=said(str(n))) for n in range(250)]
        others = [Thread(target=lambda: store.keep_all(steps)) for _ in range(3)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join(60)
        assert store.keep_all(steps) == [None] * 250
        assert len(store.transcript.read(guard.session)) == 1_000


def test_a_step_that_fails_leaves_no_trace_of_itself_in_a_batch(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store:
        guard = hold(store)
        fine = Step(guard=guard, messages=said("one"))
        bad = Step(guard=guard, run_id="unknown", rows=[Row(0, Kind.STARTED)], messages=said("two"))
        for keep in (store.keep_all, store.keep_now):
            errors = keep([fine, bad, fine])
            assert errors is not None
            assert [error is None for error in errors] == [True, False, True]
        assert [message.content for message in store.transcript.read(guard.session)] == ["one"] * 4
