"""The commits of all runs of one store: batched, in order, and waking each event loop once."""

import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event, get_ident
from typing import Any

import anyio
import pytest

from flyball import Agent, tool
from flyball._internal.workers import get_call_soon
from flyball.errors import StoreError
from flyball.runtime.commit_queue import CommitJob, CommitQueue
from flyball.store import MemoryStore, Query, SqliteStore, Start, Step
from flyball.testing import ScriptedModel, call, say, until
from flyball.tools import Tool

LONG = 60.0


class SlowStore(MemoryStore):
    """Notes the steps of each batch, and waits in the first until the test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.leave = Event(), Event()
        self.batches: list[list[str | None]] = []

    def keep_all(self, steps: list[Step]) -> list[Exception | None]:
        self.batches.append([step.run_id for step in steps])
        self.entered.set()
        self.leave.wait(LONG)
        return [StoreError("x", "refused") if step.run_id == "bad" else None for step in steps]


def start_step(run_id: str) -> Step:
    return Step(run_id=run_id, start=Start(at=1.0))


def test_steps_that_wait_are_one_batch_that_wakes_the_event_loop_once() -> None:
    store, woken, finished, done = SlowStore(), list[str](), list[str](), Event()

    def call_soon(work: Callable[[], object]) -> None:
        woken.append("once")
        work()
        done.set()

    def job(run_id: str) -> CommitJob:
        return CommitJob(start_step(run_id), lambda job: None, (call_soon, lambda: finished.append(run_id)))

    queue = CommitQueue.of(store)
    assert CommitQueue.of(store) is queue
    queue.submit(job("first"))
    assert store.entered.wait(LONG)
    jobs = [job(name) for name in ("a", "bad", "c")]
    for one in jobs:
        queue.submit(one)
    dropped = job("dropped")
    dropped.is_abandoned = True
    queue.submit(dropped)
    store.leave.set()
    until = threading.Event()
    while len(finished) < 4:
        assert done.wait(LONG)
        until.wait(0.001)
    assert (store.batches, woken) == ([["first"], ["a", "bad", "c"]], ["once", "once"])
    assert [one.error is None for one in jobs] == [True, False, True]


class FreedStore(SlowStore):
    """Must wait for its first batch only, and notes where it writes the others."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once: list[tuple[int, list[str | None]]] = []

    def keep_now(self, steps: list[Step]) -> list[Exception | None] | None:
        if not self.leave.is_set():
            return None
        if steps:
            self.at_once.append((get_ident(), [step.run_id for step in steps]))
        return [StoreError("x", "refused") if step.run_id == "bad" else None for step in steps]


def test_the_thread_leaves_later_steps_to_their_event_loop_once_the_store_need_not_wait() -> None:
    store, outcomes = FreedStore(), list[bool]()
    queue = CommitQueue.of(store)

    async def write(run_id: str) -> None:
        done = anyio.Event()
        job = CommitJob(start_step(run_id), lambda job: None, (get_call_soon(), done.set))
        queue.submit(job)
        await done.wait()
        outcomes.append(job.error is None)

    async def work() -> int:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, "first")
            await anyio.to_thread.run_sync(store.entered.wait, LONG)
            for name in ("a", "bad", "c"):
                tasks.start_soon(write, name)
            await anyio.wait_all_tasks_blocked()
            store.leave.set()
        return get_ident()

    here = anyio.run(work)
    assert store.batches == [["first"]]
    assert store.at_once == [(here, ["a", "bad", "c"])]
    assert outcomes == [True, True, False, True]


def test_steps_whose_event_loop_is_closed_are_written_by_the_thread() -> None:
    store, finished = FreedStore(), list[str]()

    def closed(work: Callable[[], object]) -> None:
        raise RuntimeError("the event loop is closed")

    queue = CommitQueue.of(store)
    for name in ("first", "a"):
        queue.submit(
            CommitJob(start_step(name), lambda job: finished.append(job.step.run_id or ""), (closed, lambda: None))
        )
        assert store.entered.wait(LONG)
    store.leave.set()
    until(lambda: finished == ["first", "a"])
    assert store.batches == [["first"], ["a"]]


@tool
async def look() -> str:
    """Look."""
    return "seen"


def writers(store: SqliteStore) -> list[int]:
    """Note the threads that write to a store from now on."""
    threads, write_step = list[int](), store.step_writer.write_step

    def noted(connection: Any, encoded: Any, now: float) -> None:
        threads.append(get_ident())
        write_step(connection, encoded, now)

    store.step_writer.write_step = noted  # pyright: ignore[reportAttributeAccessIssue]
    return threads


@pytest.mark.parametrize(("synchronous", "here"), [("normal", True), ("full", False)])
def test_a_run_commits_in_the_event_loop_only_if_the_store_does_not_wait_for_the_disk(
    synchronous: str, here: bool, tmp_path: Path
) -> None:
    with SqliteStore(tmp_path / "runs.db", synchronous=synchronous) as store:
        threads = writers(store)
        agent = Agent(model=ScriptedModel(call("look"), say("Done.")), tools=[look], store=store, settings={})

        async def work() -> int:
            assert (await agent.arun("go")).completed
            return get_ident()

        assert (anyio.run(work) in threads) is here
        assert threads


def test_many_runs_at_once_on_a_store_that_waits_share_their_commits(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "runs.db", synchronous="full") as store:
        agent = Agent(model=ScriptedModel(*[say("Done.")] * 30), tools=[look], store=store, settings={})

        async def work() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(30):
                    tasks.start_soon(agent.arun, "go")

        anyio.run(work)
        assert len(store.runs.list(Query(stop="completed", limit=100))) == 30


class CountingStore:
    """A SQLite store that notes how many steps it is given at once."""

    def __init__(self, store: SqliteStore, *, refuses: bool = False) -> None:
        self._store, self._refuses = store, refuses
        self.at_once: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def keep_now(self, steps: list[Step]) -> Any:
        self.at_once.append(len(steps))
        return None if self._refuses else self._store.keep_now(steps)


def make_meeting(count: int) -> Tool[..., Any]:
    """Return a tool that waits until so many runs call it. So all of them write their next step at the same time."""
    arrived, everybody_is_here = list[str](), anyio.Event()

    @tool(poll=True)
    async def meet() -> str:
        arrived.append("one")
        if len(arrived) >= count:
            everybody_is_here.set()
        await everybody_is_here.wait()
        return "met"

    return meet


def run_at_once(store: Any, count: int) -> list[str]:
    """Run agents of two turns at once, and return the ids of the runs that are complete in the store."""
    ids: list[str] = []
    meet = make_meeting(count)

    async def run_one() -> None:
        agent = Agent(model=ScriptedModel(call("meet"), say("Done.")), tools=[meet], store=store, settings={})
        result = await agent.arun("go")
        assert (result.completed, result.store_error) == (True, None)
        ids.append(result.run_id)

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(run_one)

    anyio.run(work)
    return ids


def test_runs_at_once_share_the_commits_of_their_event_loop(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "runs.db") as store:
        counting = CountingStore(store)
        ids = run_at_once(counting, 20)
        assert max(counting.at_once) > 1
        for run_id in ids:
            assert [event["event"] for event in store.runs.events(run_id)][-1] == "run_ended"


def test_a_lone_run_commits_each_step_at_once(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "runs.db") as store:
        counting = CountingStore(store)
        run_at_once(counting, 1)
        assert set(counting.at_once) == {1}


def test_steps_that_would_have_to_wait_are_written_by_the_thread(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "runs.db") as store:
        ids = run_at_once(CountingStore(store, refuses=True), 20)
        assert len(store.runs.list(Query(stop="completed", limit=100))) == len(ids) == 20


def test_a_run_whose_step_is_refused_does_not_fail_the_others_of_its_batch(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "runs.db") as store:
        queue, outcomes = CommitQueue(store), list[object]()
        queue.add_runs(2)

        async def wait(step: Step) -> None:
            due = queue.add_due(step)
            assert due is not None
            try:
                outcomes.append(await due)
            except StoreError:
                outcomes.append("refused")

        async def work() -> None:
            async with anyio.create_task_group() as tasks:
                for step in (start_step("a"), start_step("a"), start_step("b")):
                    tasks.start_soon(wait, step)

        anyio.run(work)
        assert outcomes == [True, "refused", True]
        assert [entry.run_id for entry in store.runs.list()] == ["b", "a"]


def test_a_run_cancelled_while_its_step_is_due_is_stored_as_cancelled(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "runs.db") as store:

        class Cancelling(CountingStore):
            """Cancels all runs in the middle of a batch."""

            scope: anyio.CancelScope | None = None

            def keep_now(self, steps: list[Step]) -> Any:
                if len(steps) > 1 and self.scope is not None:
                    self.scope.cancel()
                return super().keep_now(steps)

        cancelling = Cancelling(store)

        meet = make_meeting(10)

        async def run_one() -> None:
            model = ScriptedModel(*[call("meet")] * 80)
            await Agent(model=model, tools=[meet], store=cancelling, settings={}).arun("go")  # type: ignore[arg-type]

        async def work() -> None:
            with anyio.CancelScope() as scope:
                cancelling.scope = scope
                async with anyio.create_task_group() as tasks:
                    for _ in range(10):
                        tasks.start_soon(run_one)

        anyio.run(work)
        # A run that is cancelled while it opens is not stored.
        assert {entry.finish and entry.finish.stop for entry in store.runs.list()} == {"cancelled"}
