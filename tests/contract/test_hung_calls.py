"""Async code that ignores its cancellation: the run ends all the same, and what the code does later reaches nothing.

On asyncio and for sync callers. Trio has no task that its parent does not wait for, so these tests leave it out.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from threading import Event
from time import monotonic, sleep
from typing import Any

import anyio
import pytest
import trio

from flyball import Agent, Limits, Reserve, Result, tool
from flyball.agent.run import Run
from flyball.outcome import Cancelled, Timeout
from flyball.person import Question
from flyball.request import Reply
from flyball.store import MemoryStore
from flyball.testing import ScriptedModel, call, say, together
from flyball.tools import Tool, ToolContext

LONG, SHORT = 60.0, 0.05
BOUND = 20.0
"""Seconds in which every run here must end; nothing here depends on more than a few."""


class Stubborn:
    """Async code that swallows every cancellation until it is released, and then goes on as if nothing had happened."""

    def __init__(self) -> None:
        self.released = False
        self.started = 0
        self.ended = 0

    async def __call__(self) -> str:
        self.started += 1
        while not self.released:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        self.ended += 1
        return "too late"


def go(door: str, agent: Agent, **options: Any) -> Result:
    """Run an agent through the sync API or on asyncio, in a bounded time."""
    if door == "sync":
        run = agent.start("go", **options)
        return run.result(BOUND)

    async def work() -> Result:
        done, _ = await asyncio.wait([asyncio.create_task(agent.arun("go", **options))], timeout=BOUND)
        assert done, "the run did not end"
        return done.pop().result()

    return asyncio.run(work())


doors = pytest.mark.parametrize("door", ["sync", "asyncio"])


@pytest.fixture
def stubborn() -> Any:
    code = Stubborn()
    yield code
    code.released = True


def build_tool(stubborn: Stubborn, **options: Any) -> Any:
    @tool(effects="read", **options)
    async def fetch(url: str = "") -> str:
        return await stubborn()

    return fetch


@tool(effects="read")
async def look() -> str:
    return "seen"


@doors
def test_a_tool_that_ignores_its_timeout_is_left_behind_and_the_run_continues(door: str, stubborn: Stubborn) -> None:
    model = ScriptedModel(call("fetch"), call("look"), say("done"))
    result = go(door, Agent(model=model, tools=[build_tool(stubborn, timeout=SHORT), look]))
    fetched, seen = result.tool_results
    assert isinstance(fetched, Timeout)
    assert fetched.hung
    assert (seen.text, result.text, result.stop, result.hung) == ("seen", "done", "completed", 1)


@doors
def test_a_tool_that_ignores_the_end_of_the_run_leaves_time_for_the_report(door: str, stubborn: Stubborn) -> None:
    model = ScriptedModel(call("fetch"), grace=say("I report."))
    agent = Agent(model=model, tools=[build_tool(stubborn)], limits=Limits(seconds=4, reserve=Reserve(seconds=3.5)))
    started = monotonic()
    result = go(door, agent)
    assert (result.stop, result.text, result.hung) == ("deadline", "I report.", 1)
    assert monotonic() - started < 4


@doors
def test_parallel_calls_that_ignore_their_timeout_are_left_behind_and_the_others_return(
    door: str, stubborn: Stubborn
) -> None:
    calls = [call("fetch", url=str(n)) for n in range(9)]  # more than run at a time
    model = ScriptedModel(together(*calls, call("look")), say("done"))
    result = go(door, Agent(model=model, tools=[build_tool(stubborn, timeout=SHORT), look]))
    assert [outcome.status.value for outcome in result.tool_results] == ["timed_out"] * 9 + ["done"]
    assert (result.text, result.hung) == ("done", 9)


class StubbornModel(ScriptedModel):
    def __init__(self, stubborn: Stubborn, **options: Any) -> None:
        super().__init__(say("never"), **options)
        self.stubborn = stubborn

    async def ask(self, request: Any, tell: Any = None, /) -> Reply:
        tell("So far")
        await self.stubborn()
        tell(" and more")
        return Reply("too late")


@doors
def test_a_model_that_ignores_the_deadline_is_left_behind(door: str, stubborn: Stubborn) -> None:
    agent = Agent(model=StubbornModel(stubborn), limits=Limits(seconds=SHORT), grace=False)
    result = go(door, agent)
    assert (result.stop, result.text, result.hung) == ("deadline", "So far", 1)


@doors
def test_an_approver_that_ignores_its_timeout_is_left_behind_and_means_no(door: str, stubborn: Stubborn) -> None:
    done = list[str]()

    @tool(approve=True)
    async def delete() -> None:
        done.append("deleted")

    async def approve(question: Question) -> bool:
        await stubborn()
        return True

    model = ScriptedModel(call("delete"), say("ok"))
    result = go(door, Agent(model=model, tools=[delete], approver=approve, approver_seconds=SHORT))
    assert (result.stop, result.hung, done) == ("completed", 1, [])
    assert result.tool_results[0].status.value == "denied"


@doors
@pytest.mark.parametrize("in_parallel", [False, True])
def test_a_child_run_with_such_a_tool_ends_and_so_does_its_parent(
    door: str, stubborn: Stubborn, in_parallel: bool
) -> None:
    child = Agent(
        name="child",
        description="fetches",
        model=ScriptedModel(call("fetch"), say("child done"), call("fetch"), say("child done")),
        tools=[build_tool(stubborn, timeout=SHORT)],
    )
    ask = call("delegate", tasks=[{"child": "child", "goal": "fetch"}])
    model = ScriptedModel(together(ask, call("look")) if in_parallel else ask, say("parent done"))
    result = go(door, Agent(model=model, tools=[look], children=[child]))
    assert (result.stop, result.text) == ("completed", "parent done")
    assert [one.hung for one in result.children] == [1]


@doors
def test_the_deadline_of_a_parent_ends_a_child_run_with_such_a_tool(door: str, stubborn: Stubborn) -> None:
    child = Agent(name="child", description="fetches", model=ScriptedModel(call("fetch")), tools=[build_tool(stubborn)])
    ask = call("delegate", tasks=[{"child": "child", "goal": "fetch"}])
    agent = Agent(model=ScriptedModel(ask), children=[child], limits=Limits(seconds=SHORT), grace=False)
    result = go(door, agent)
    assert (result.stop, [one.stop.value for one in result.children]) == ("deadline", ["cancelled"])


def wait_for_start(stubborn: Stubborn) -> None:
    until = monotonic() + BOUND
    while not stubborn.started and monotonic() < until:
        sleep(0.005)


def build_agent(doing: str, stubborn: Stubborn, **options: Any) -> Agent:
    """Return an agent that does one thing which ignores its cancellation."""

    @tool(approve=True)
    async def delete() -> None: ...

    async def approve(question: Question) -> bool:
        await stubborn()
        return True

    if doing == "model":
        return Agent(model=StubbornModel(stubborn), **options)
    lines = {"tool": call("fetch"), "approver": call("delete")}
    line = lines.get(doing) or together(call("fetch", url="a"), call("fetch", url="b"))
    return Agent(model=ScriptedModel(line), tools=[build_tool(stubborn), delete], approver=approve, **options)


THINGS = ["tool", "tools", "model", "approver"]


@pytest.mark.parametrize("doing", THINGS)
def test_a_sync_run_that_is_cancelled_ends_though_its_code_does_not(doing: str, stubborn: Stubborn) -> None:
    run = build_agent(doing, stubborn).start("go")
    wait_for_start(stubborn)
    assert run.cancel("me")
    result = run.result(BOUND)
    assert (result.stop, result.stopped_by) == ("cancelled", "me")
    assert result.hung == (2 if doing == "tools" else 1)
    assert all(isinstance(one, Cancelled) and one.hung for one in result.tool_results if doing in ("tool", "tools"))
    assert [event.kind for event in result.events].count("run_ended") == 1


@pytest.mark.parametrize("doing", THINGS)
@pytest.mark.parametrize("way", ["cancel", "timeout", "scope"])
def test_a_run_whose_task_is_cancelled_ends_and_raises_the_cancellation(
    way: str, doing: str, stubborn: Stubborn
) -> None:
    events = list[Any]()
    agent = build_agent(doing, stubborn, sinks=[events.append])

    async def run_until_started(cancel: Callable[[], object]) -> None:
        while not stubborn.started:
            await asyncio.sleep(0.005)
        cancel()

    async def cancel() -> None:
        task = asyncio.create_task(agent.arun("go"))
        await run_until_started(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    async def timeout() -> None:
        async with asyncio.timeout(None) as bound:
            asyncio.create_task(run_until_started(lambda: bound.reschedule(0)))  # noqa: RUF006
            await agent.arun("go")

    async def scope() -> None:
        with anyio.CancelScope() as bound:
            asyncio.create_task(run_until_started(bound.cancel))  # noqa: RUF006
            await agent.arun("go")
        assert bound.cancelled_caught

    async def work() -> None:
        work = {"cancel": cancel, "timeout": timeout, "scope": scope}[way]()
        done, _ = await asyncio.wait([asyncio.create_task(work)], timeout=BOUND)
        error = done.pop().exception()
        assert isinstance(error, TimeoutError) if way == "timeout" else error is None

    asyncio.run(work())
    assert (events[-1].kind, events[-1].stop, events[-1].stopped_by) == ("run_ended", "cancelled", "task")


@pytest.mark.parametrize("doing", THINGS)
def test_leaving_an_open_run_ends_it(doing: str, stubborn: Stubborn) -> None:
    async def work() -> Run:
        async with build_agent(doing, stubborn).open("go") as run:
            async for _ in run:
                if stubborn.started:
                    break
                await asyncio.sleep(0.005)
            while not stubborn.started:
                await asyncio.sleep(0.005)
        return run

    async def bounded() -> Run:
        done, _ = await asyncio.wait([asyncio.create_task(work())], timeout=BOUND)
        return done.pop().result()

    run = asyncio.run(bounded())
    assert run.ended


def test_what_code_does_after_it_was_left_behind_reaches_nothing(stubborn: Stubborn) -> None:
    errors = list[str]()
    ended = Event()

    async def fetch(ctx: ToolContext) -> str:
        ctx.state["early"] = 1
        await stubborn()
        ctx.report("late")
        ctx.state["late"] = 1
        for act in (ctx.commit, lambda: ctx.delegate(child, "go")):
            try:
                started = act()
                if started is not None:
                    await started
            except Exception as error:
                errors.append(type(error).__name__)
        ended.set()
        return "too late"

    @tool(effects="read")
    async def release() -> None:
        stubborn.released = True
        while not ended.is_set():
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)

    child = Agent(name="child", description="x", model=ScriptedModel(say("x")))
    model = ScriptedModel(call("fetch"), call("release"), call("look"), say("done"))
    tools = [tool(effects="read", timeout=SHORT)(fetch), release, look]
    result = go("asyncio", Agent(model=model, tools=tools, children=[child]))
    kinds = [event.kind for event in result.events]
    assert (result.text, result.turns, dict(result.state), len(result.tool_results)) == ("done", 4, {}, 3)
    assert errors == ["CallClosed", "CallClosed"]
    assert (kinds.count("late_result_dropped"), kinds.count("tool_reported"), result.hung) == (1, 0, 0)
    assert (len(result.children), kinds.count("run_ended")) == (0, 1)


def test_the_text_of_a_model_that_was_left_behind_is_dropped(stubborn: Stubborn) -> None:
    class Second(StubbornModel):
        asked = 0

        async def ask(self, request: Any, tell: Any = None, /) -> Reply:
            self.asked += 1
            if self.asked == 1:
                return await super().ask(request, tell)
            self.stubborn.released = True
            while not self.stubborn.ended:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.02)
            tell("I report.")
            return Reply("I report.")

    events = list[Any]()
    limits = Limits(seconds=5, reserve=Reserve(seconds=4.9))
    result = go("asyncio", Agent(model=Second(stubborn), limits=limits, sinks=[events.append]))
    assert (result.stop, result.text, result.hung) == ("deadline", "I report.", 0)
    assert [event.text for event in events if event.kind == "delta"] == ["So far", "I report."]


@doors
def test_a_stored_run_whose_model_hung_can_be_resumed(door: str, stubborn: Stubborn) -> None:
    class Once(StubbornModel):
        asked = 0

        async def ask(self, request: Any, tell: Any = None, /) -> Reply:
            self.asked += 1
            return await super().ask(request, tell) if self.asked == 1 else Reply("done")

    agent = Agent(model=Once(stubborn), store=MemoryStore(), limits=Limits(seconds=SHORT))
    result = go(door, agent)
    assert (result.stop, result.hung) == ("deadline", 1)
    resumed = agent.resume(result.run_id, extend={"seconds": 30})
    assert (resumed.text, resumed.hung) == ("done", 1)


@doors
def test_a_stored_run_continues_after_a_call_that_hung(door: str, stubborn: Stubborn) -> None:
    model = ScriptedModel(call("fetch"), call("look"), say("done"))
    agent = Agent(model=model, tools=[build_tool(stubborn, timeout=SHORT), look], store=MemoryStore())
    result = go(door, agent)
    assert (result.text, result.hung, [one.text for one in result.tool_results][1:]) == ("done", 1, ["seen"])


def test_asyncio_run_does_not_wait_for_code_that_was_left_behind() -> None:
    program = """
import asyncio
from flyball import Agent, tool
from flyball.testing import ScriptedModel, call, say, together
@tool(timeout=0.05, effects="read")
async def fetch(n: int = 0):
    while True:
        try: await asyncio.sleep(3600)
        except BaseException: pass
async def main():
    model = ScriptedModel(call("fetch"), together(call("fetch", n=1), call("fetch", n=2)), say("done"))
    result = await Agent(model=model, tools=[fetch]).arun("go")
    print(result.text, result.hung, flush=True)
asyncio.run(main())
print("over", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=False)
    assert (done.stdout, done.returncode) == ("done 3\nover\n", 0)


@doors
def test_a_tool_that_only_takes_a_while_to_end_is_not_left_behind(door: str) -> None:
    ended = list[str]()

    @tool(timeout=SHORT)
    async def write() -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(0.2)
            ended.append("cleaned up")

    result = go(door, Agent(model=ScriptedModel(call("write"), say("done")), tools=[write]))
    assert (result.text, result.hung, ended) == ("done", 0, ["cleaned up"])


@doors
@pytest.mark.parametrize("when", ["open", "close"])
def test_a_tool_source_that_ignores_its_cancellation_is_left_behind(door: str, when: str, stubborn: Stubborn) -> None:
    class Source:
        name = "source"

        @asynccontextmanager
        async def open(self) -> AsyncGenerator[list[Tool]]:
            if when == "open":
                await stubborn()
            yield [look]
            await stubborn()

    model = ScriptedModel(call("look"), say("done"))
    agent = Agent(model=model, tools=[Source()], limits=Limits(seconds=1), grace=False)
    result = go(door, agent)
    assert result.stop == ("failed" if when == "open" else "completed")


def test_on_trio_a_run_ends_as_soon_as_its_code_lets_go() -> None:
    swallowed = list[int]()

    @tool(effects="read", timeout=SHORT)
    async def fetch() -> str:
        while len(swallowed) < 100:
            try:
                await trio.sleep(LONG)
            except trio.Cancelled:
                swallowed.append(1)
        return "too late"

    model = ScriptedModel(call("fetch"), say("done"))
    result = trio.run(Agent(model=model, tools=[fetch]).arun, "go")
    assert (result.text, result.tool_results[0].status.value, len(swallowed)) == ("done", "timed_out", 100)
