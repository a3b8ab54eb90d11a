"""When the task around a run is cancelled, the run closes first, and then the cancellation is raised again."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from threading import Event
from typing import Any

import anyio
import pytest
import trio

from flyball import Agent, Limits, Result, tool
from flyball.agent.run import Run
from flyball.errors import Retryable
from flyball.event import Event as RunEvent
from flyball.event import RunEnded
from flyball.outcome import Status
from flyball.testing import ScriptedModel, call, fail, say

LONG = 60.0


class Watched:
    """An agent that is busy with one thing for ever, what it told, and a bell that rings when it is busy."""

    def __init__(self, doing: str) -> None:
        self.events: list[RunEvent] = []
        self.release = Event()
        self.doing = {"model": "model_requested", "retry": "retried"}.get(doing, "tool_started")
        lines = {
            "model": [say("x").after(LONG)],
            "retry": [fail(Retryable("busy", after=LONG))],
            "batch": [say("", call("wait"), call("hang"), call("wait"))],
        }
        self.model = ScriptedModel(*lines.get(doing, [call(doing)]))
        self.agent = Agent(model=self.model, tools=[self.wait(), self.hang()], sinks=[self.events.append])

    def wait(self) -> Any:
        async def wait() -> None:
            await anyio.sleep(LONG)

        return tool(effects="read")(wait)

    def hang(self) -> Any:
        def hang() -> None:
            self.release.wait(LONG)

        return tool(effects="read")(hang)

    async def busy(self) -> None:
        while self.doing not in [event.kind for event in self.events]:
            await anyio.sleep(0.001)
        await anyio.sleep(0.002)

    def check(self) -> None:
        self.release.set()
        kinds = [event.kind for event in self.events]
        assert (kinds.count("run_ended"), kinds[-1]) == (1, "run_ended")
        for started, ended in (("turn_started", "turn_ended"), ("model_requested", "model_replied")):
            assert kinds.count(started) == kinds.count(ended)
        assert kinds.count("tool_started") == kinds.count("tool_ended")
        end = self.events[-1]
        assert isinstance(end, RunEnded)
        assert (end.stop, end.stopped_by) == ("cancelled", "task")


EVERYTHING = ["model", "retry", "wait", "hang", "batch"]


@pytest.mark.every_door
@pytest.mark.parametrize("doing", EVERYTHING)
def test_a_cancelled_scope_closes_the_run_and_raises_the_cancellation_again(here: Any, doing: str) -> None:
    watched = Watched(doing)

    async def work() -> bool:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await watched.busy()
                    scope.cancel()

                tasks.start_soon(cancel)
                await watched.agent.arun("go")
                raise AssertionError("the cancellation was not raised again")
        return scope.cancelled_caught

    assert here(work)
    watched.check()


@pytest.mark.parametrize(
    ("way", "doing"),
    [*[("cancel", doing) for doing in EVERYTHING], ("timeout", "model"), ("timeout", "hang"), ("wait_for", "batch")],
)
def test_a_run_that_asyncio_cancels_is_closed_and_raises_the_cancellation(way: str, doing: str) -> None:
    watched = Watched(doing)

    async def cancel() -> None:
        task = asyncio.create_task(watched.agent.arun("go"))
        await watched.busy()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    async def timeout() -> None:
        bound = asyncio.timeout(None)

        async def soon() -> None:
            await watched.busy()
            bound.reschedule(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(soon())
            with pytest.raises(TimeoutError):
                async with bound:
                    await watched.agent.arun("go")

    async def wait_for() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watched.agent.arun("go"), 0.05)

    ways: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "cancel": cancel,
        "timeout": timeout,
        "wait_for": wait_for,
    }
    asyncio.run(asyncio.wait_for(ways[way](), LONG))
    watched.check()


@pytest.mark.parametrize("doing", ["model", "batch"])
def test_a_run_in_a_cancelled_trio_nursery_is_closed(doing: str) -> None:
    watched = Watched(doing)

    async def work() -> None:
        with trio.fail_after(LONG):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watched.agent.arun, "go")
                await watched.busy()
                nursery.cancel_scope.cancel()

    trio.run(work)
    watched.check()


def test_an_open_run_is_closed_with_the_task_around_it(here: Any) -> None:
    for doing in EVERYTHING:
        watched, runs = Watched(doing), list[Run]()

        async def work(watched: Watched = watched, runs: list[Run] = runs) -> bool:
            with anyio.CancelScope() as scope:
                async with watched.agent.open("go") as run:
                    runs.append(run)
                    await watched.busy()
                    scope.cancel()
                    await anyio.sleep(LONG)
            return scope.cancelled_caught

        assert here(work), doing
        assert runs[0].ended, doing
        assert [event.kind for event in watched.events].count("run_ended") == 1, doing
        watched.release.set()


def test_a_task_cancelled_before_its_first_wait_closes_the_run(here: Any) -> None:
    watched = Watched("wait")

    async def work() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await watched.agent.arun("go")

    here(work)
    watched.check()


def test_a_task_cancelled_twice_closes_the_run_once(here: Any) -> None:
    watched = Watched("hang")

    async def work() -> None:
        async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:
            inner.start_soon(watched.agent.arun, "go")
            await watched.busy()
            inner.cancel_scope.cancel()
            outer.cancel_scope.cancel()

    here(work)
    watched.check()


def test_a_cancelled_run_leaves_other_runs_of_the_loop_alone(here: Any) -> None:
    @tool(effects="read")
    async def wait(long: bool) -> str:
        await anyio.sleep(LONG if long else 0.01)
        return "waited"

    agent = Agent(model=ScriptedModel(call("wait", long=False), say("done")), tools=[wait], limits=Limits(turns=5))
    stuck = Agent(model=ScriptedModel(call("wait", long=True)), tools=[wait])
    results: list[Result] = []

    async def keep(work: Callable[[], Awaitable[Result]]) -> None:
        results.append(await work())

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(keep, lambda: agent.arun("go"))
            with anyio.move_on_after(0.001):
                await stuck.arun("go")

    here(work)
    assert [(result.stop, result.tool_results[0].status) for result in results] == [("completed", Status.DONE)] * 5
