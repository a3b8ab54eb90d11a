"""A cancel ends a run at once, from wherever it comes, and keeps what was done."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, tool
from flyball.agent.run import Run
from flyball.budget.price import Price
from flyball.errors import Retryable
from flyball.event import Event as RunEvent
from flyball.message import MessageType
from flyball.models.model import OnText
from flyball.outcome import Cancelled, Status
from flyball.request import Purpose, Reply, Request
from flyball.testing import ScriptedModel, call, fail, say, together

LONG = 60.0
Watch = Callable[..., Result]


@dataclass
class Plain:
    """A model of one function."""

    ask: Callable[[Request, OnText], Reply | Awaitable[Reply]]
    name: str = "plain"
    provider: str | None = None
    price: Price | None = None

    def ready(self) -> str | None:
        return None


@dataclass
class At:
    """Cancels a run when it comes to an event of this kind, and remembers whether that was said to have reached it."""

    kind: str
    way: str = "here"
    told: list[bool] = field(default_factory=list[bool])

    def __call__(self, run: Run, event: RunEvent) -> None:
        if event.kind != self.kind or self.told:
            return
        if self.way == "here":
            self.told.append(run.cancel("test"))
        else:
            thread = Thread(target=lambda: self.told.append(run.cancel("test")))
            thread.start()
            thread.join(LONG)


def cancelled(result: Result) -> bool:
    return (result.stop, result.stopped_by, result.completed) == ("cancelled", "test", False)


@tool(effects="read", poll=True)
def add(a: int, b: int) -> int:
    return a + b


@tool(effects="read")
async def wait() -> None:
    await anyio.sleep(LONG)


@pytest.mark.every_door
@pytest.mark.parametrize(("kind", "way"), [("async", "here"), ("def", "from another thread")])
def test_a_cancel_cuts_the_model_and_keeps_what_it_said(watch: Watch, release: Event, kind: str, way: str) -> None:
    async def aask(request: Request, tell: OnText) -> Reply:
        tell("So far")
        await anyio.sleep(LONG)
        return Reply("too late")

    def ask(request: Request, tell: OnText) -> Reply:
        tell("So far")
        release.wait(LONG)
        return Reply("too late")

    at = At("delta", way)
    result = watch(Agent(model=Plain(aask if kind == "async" else ask)), at)
    assert cancelled(result)
    assert (at.told, result.text, result.finish) == ([True], "So far", "cut")
    assert result.messages[-1].content == "So far"


@pytest.mark.parametrize(("calls", "way"), [(1, "here"), (3, "from another thread")])
def test_a_cancel_cuts_calls_in_progress_and_keeps_those_done_before(watch: Watch, calls: int, way: str) -> None:
    model = ScriptedModel(call("add", a=1, b=2), together(*[call("wait")] * calls, call("add", a=3, b=4)))

    @tool
    async def write() -> None: ...

    at = At("tool_started", way)
    seen: list[str] = []

    def watching(run: Run, event: RunEvent) -> None:
        seen.append(event.kind)
        if seen.count("tool_started") == 2:
            at(run, event)

    result = watch(Agent(model=model, tools=[add, wait, write]), watching)
    assert cancelled(result)
    first, *waited, last = result.tool_results
    assert (first.text, {outcome.status for outcome in waited}) == ("3", {Status.CANCELLED})
    assert last.status in (Status.DONE, Status.CANCELLED)  # it stood beside those that were cut


def test_calls_that_wait_for_a_write_are_not_made_after_a_cancel(watch: Watch) -> None:
    made: list[str] = []

    @tool
    async def write() -> None:
        made.append("write")
        await anyio.sleep(LONG)

    model = ScriptedModel(together(call("write"), call("write"), call("add", a=1, b=2)))
    result = watch(Agent(model=model, tools=[write, add]), At("tool_started"))
    assert cancelled(result)
    assert ([outcome.status for outcome in result.tool_results], made) == ([Status.CANCELLED] * 3, ["write"])


def test_a_cancelled_run_gives_up_a_tool_that_hangs_in_a_thread(watch: Watch, release: Event) -> None:
    began = Event()

    @tool
    def hang() -> None:
        began.set()
        release.wait(LONG)

    def watching(run: Run, event: RunEvent) -> None:
        if event.kind == "tool_started":
            Thread(target=lambda: began.wait(LONG) and run.cancel("test")).start()

    result = watch(Agent(model=ScriptedModel(call("hang")), tools=[hang]), watching)
    assert cancelled(result)
    [outcome] = result.tool_results
    assert isinstance(outcome, Cancelled)
    assert (outcome.hung, result.hung) == (True, 1)


def test_a_cancel_cuts_the_wait_before_a_retry(watch: Watch) -> None:
    model = ScriptedModel(fail(Retryable("busy", after=LONG)), say("x"))
    at = At("retried")
    result = watch(Agent(model=model), at)
    assert cancelled(result)
    assert (result.requests, at.told) == (1, [True])


def test_a_cancel_cuts_the_grace_turn_and_is_the_reason(watch: Watch) -> None:
    async def ask(request: Request, tell: OnText) -> Reply:
        if request.purpose is Purpose.GRACE:
            tell("I have")
            await anyio.sleep(LONG)
        return await script.ask(request)

    script = ScriptedModel.looping(call("add", a=1, b=2))
    at = At("delta")
    result = watch(Agent(model=Plain(ask), tools=[add], limits=Limits(turns=1)), at)
    assert cancelled(result)
    assert (at.told, result.flags) == ([True], ("max_agent_iterations_reached",))
    assert "I have" in result.text


@pytest.mark.one_door
@pytest.mark.parametrize("kind", ["run_started", "turn_started", "model_replied", "tool_ended", "turn_ended"])
def test_a_sink_cancels_the_run_at_any_event(door: str, closed: Any, kind: str) -> None:
    handles, told = list[Run](), list[bool]()

    def sink(event: RunEvent) -> None:
        if event.kind == kind and handles and not told:
            told.append(handles[0].cancel("test"))

    model = ScriptedModel.looping(call("add", a=1, b=2).after(0.001))
    agent = Agent(model=model, tools=[add], sinks=[sink], limits=Limits(turns=500))

    async def opened() -> Result:
        with anyio.fail_after(LONG):
            run = agent.open("go")
            handles.append(run)
            async with run:
                return await run.aresult()

    if door == "sync":
        run = agent.start("go")
        handles.append(run)
        if kind == "run_started":  # it may have begun before its handle was there
            told.append(run.cancel("test"))
        result = run.result(LONG)
    else:
        result = anyio.run(opened, backend=door)
    assert cancelled(closed(result))
    assert told == [True]


def test_an_async_tool_cancels_its_own_run_which_ends_as_cancelled(watch: Watch) -> None:
    handles, told = list[Run](), list[bool]()

    @tool
    async def stop() -> str:
        while not handles:
            await anyio.sleep(0.001)
        told.append(handles[0].cancel("test"))
        return "stopped"

    def watching(run: Run, _: RunEvent) -> None:
        handles.append(run)

    result = watch(Agent(model=ScriptedModel(call("stop")), tools=[stop]), watching)
    assert cancelled(result)
    assert (told, [outcome.tool for outcome in result.tool_results]) == ([True], ["stop"])


def test_a_run_cancelled_before_it_begins_asks_no_model(here: Any, closed: Any) -> None:
    model = ScriptedModel(say("x"))

    async def work() -> tuple[bool, Result]:
        run = Agent(model=model).open("go")
        told = run.cancel("test")
        async with run:
            return told, await run.aresult()

    told, result = here(work)
    assert cancelled(closed(result))
    assert (told, [message.type for message in result.messages]) == (True, [MessageType.TEXT])
    model.assert_asked(0)


@pytest.mark.one_door
def test_a_second_cancel_is_accepted_until_the_run_has_ended(watch: Watch) -> None:
    told: list[bool] = []

    def watching(run: Run, event: RunEvent) -> None:
        if event.kind in ("model_requested", "run_ended"):
            told.extend((run.cancel("test"), run.cancel("test")))

    result = watch(Agent(model=ScriptedModel(say("x").after(LONG))), watching)
    assert cancelled(result)
    assert (told[0], told[2:]) == (True, [False, False])  # between the first two it may have ended
    assert [event.kind for event in result.events].count("run_ended") == 1


@pytest.mark.one_door
def test_a_cancel_after_many_turns_keeps_every_turn(watch: Watch) -> None:
    count: list[int] = []

    def watching(run: Run, event: RunEvent) -> None:
        if event.kind == "turn_ended":
            count.append(event.turn)
            if len(count) == 5:
                run.cancel("test")

    model = ScriptedModel.looping(call("poll").after(0.001))
    polling = tool(poll=True, effects="read", name="poll")(lambda: None)
    result = watch(Agent(model=model, tools=[polling], limits=Limits(turns=500)), watching)
    assert cancelled(result)
    assert 5 <= result.turns < 500
    assert len(result.tool_results) in (result.turns, result.turns - 1)
