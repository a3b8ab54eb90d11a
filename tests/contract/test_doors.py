"""What a run does is the same through every door."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Barrier, Event, Lock, get_ident
from typing import Any

import anyio
import anyio.to_thread
import pytest

from flyball import Agent, Limits, Result, tool
from flyball.budget.price import Price
from flyball.event import Event as RunEvent
from flyball.models.model import OnText
from flyball.progress import Order, Point, Progress
from flyball.request import Call, Finish, Reply, Request
from flyball.testing import ScriptedModel, call, say, together
from flyball.tools import ToolContext

LONG = 60.0
Running = Callable[..., Result]

who: ContextVar[str] = ContextVar("who", default="nobody")


@dataclass
class Plain:
    """A model of one function."""

    ask: Callable[[Request, OnText], Reply | Awaitable[Reply]]
    name: str = "plain"
    provider: str | None = None
    price: Price | None = None

    def ready(self) -> str | None:
        return None


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool
async def aadd(a: int, b: int) -> int:
    await anyio.sleep(0)
    return a + b


def asking_for(name: str) -> Callable[[Request], Reply]:
    def reply(request: Request) -> Reply:
        if len(request.messages) == 1:
            return Reply("", (Call("c", name, {"a": 1, "b": 2}),), finish=Finish.CALLS)
        return Reply(f"It is {request.messages[-1].content}.")

    return reply


@pytest.mark.parametrize(("model", "name"), [("async", "add"), ("def", "aadd")])
def test_a_run_gives_the_same_result_and_events_through_every_door(run: Running, model: str, name: str) -> None:
    reply = asking_for(name)

    async def aask(request: Request, tell: OnText) -> Reply:
        await anyio.sleep(0)
        return reply(request)

    def ask(request: Request, tell: OnText) -> Reply:
        return reply(request)

    agent = Agent(model=Plain(aask if model == "async" else ask), tools=[add, aadd], limits=Limits(turns=5))
    result = run(agent)
    assert (result.text, result.stop, result.turns, result.requests, result.flags) == (
        "It is 3.",
        "completed",
        2,
        2,
        (),
    )
    assert [event.kind for event in result.events] == [
        "run_started",
        *("turn_started", "model_requested", "model_replied", "tool_started", "tool_ended", "turn_ended"),
        *("turn_started", "model_requested", "model_replied", "turn_ended"),
        "run_ended",
    ]


def test_a_run_that_meets_its_limit_reports_through_every_door(run: Running) -> None:
    stubborn = ScriptedModel.looping(call("add", a=1, b=2), grace=say("I added."))
    result = run(Agent(model=stubborn, tools=[add], limits=Limits(turns=3)))
    assert (result.stop, result.text, result.turns, result.requests) == ("budget", "I added.", 3, 4)
    assert result.flags == ("max_agent_iterations_reached",)


@pytest.mark.parametrize("model", ["async", "def"])
def test_context_variables_reach_models_tools_hooks_and_callbacks(run: Running, model: str) -> None:
    seen: dict[str, str] = {}
    script = ScriptedModel(together(call("look"), call("alook")), say("done"))

    async def aask(request: Request, tell: OnText) -> Reply:
        seen["model"] = who.get()
        return await script.ask(request)

    def ask(request: Request, tell: OnText) -> Reply:
        seen["model"] = who.get()
        line, place = script.take_line(request)
        return line.build_reply(place * 10)

    def look() -> None:
        seen["def tool"] = who.get()

    async def alook() -> None:
        seen["async tool"] = who.get()

    def hook(point: Point, progress: Progress, about: object = None, /) -> tuple[Order, ...]:
        seen["hook"] = who.get()
        return ()

    def should_continue(_: Progress) -> bool:
        seen["callback"] = who.get()
        return True

    def sink(_: RunEvent) -> None:
        seen["sink"] = who.get()

    agent = Agent(
        model=Plain(aask if model == "async" else ask),
        tools=[look, alook],
        hooks=[hook],
        should_continue=should_continue,
        sinks=[sink],
    )
    token = who.set("me")
    try:
        assert run(agent).completed
    finally:
        who.reset(token)
    assert seen == dict.fromkeys(["model", "def tool", "async tool", "hook", "callback", "sink"], "me")


@pytest.mark.every_door
@pytest.mark.parametrize("kind", ["async", "def"])
def test_read_calls_of_one_turn_overlap_in_time(run: Running, kind: str) -> None:
    threads, met, waiting = Barrier(3), anyio.Event, list[anyio.Event]()

    @tool(effects="read", name="read")
    def read() -> str:
        return f"met {threads.wait(LONG) < 3}"

    @tool(effects="read", name="read")
    async def aread() -> str:
        waiting.append(met())
        if len(waiting) == 3:
            for one in waiting:
                one.set()
        await waiting[-1].wait()
        return "met True"

    model = ScriptedModel(together(*[call("read")] * 3), say("done"))
    result = run(Agent(model=model, tools=[read if kind == "def" else aread]))
    assert [outcome.text for outcome in result.tool_results] == ["met True"] * 3


@pytest.mark.one_door
@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_write_call_overlaps_with_no_other_call(run: Running, kind: str) -> None:
    under_way, seen, lock = list[str](), list[tuple[str, ...]](), Lock()

    def began(name: str) -> None:
        with lock:
            under_way.append(name)
            seen.append(tuple(under_way))

    def ended(name: str) -> None:
        with lock:
            under_way.remove(name)

    def work(name: str) -> None:
        began(name)
        Event().wait(0.005)
        ended(name)

    async def awork(name: str) -> None:
        began(name)
        await anyio.sleep(0.005)
        ended(name)

    async def aread() -> None:
        await awork("read")

    async def awrite() -> None:
        await awork("write")

    chosen = (lambda: work("read"), lambda: work("write")) if kind == "def" else (aread, awrite)
    tools = [tool(name="read", effects="read")(chosen[0]), tool(name="write")(chosen[1])]
    asked = ["read", "read", "write", "write", "read", "read"]
    result = run(Agent(model=ScriptedModel(together(*map(call, asked)), say("done")), tools=tools))
    assert [outcome.tool for outcome in result.tool_results] == asked
    assert [names for names in seen if "write" in names] == [("write",), ("write",)]


@pytest.mark.one_door
@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_tool_sees_its_call_and_reports_progress(run: Running, kind: str) -> None:
    told: dict[str, Any] = {}

    def look(ctx: ToolContext) -> str:
        told.update(run=ctx.run_id, call=ctx.call_id, used=ctx.budgets["turns"].used, before=ctx.state["n"])
        told.update(expired=ctx.token.is_expired(), left=0 < ctx.token.remaining_s() <= 5)
        ctx.state["n"] += 1
        ctx.report("half")
        ctx.commit()
        return "whole"

    async def alook(ctx: ToolContext) -> str:
        return look(ctx)

    events: list[RunEvent] = []
    made = tool(name="look", timeout=5)(look if kind == "def" else alook)
    agent = Agent(model=ScriptedModel(call("look"), say("done")), tools=[made], sinks=[events.append])
    result = run(agent, run_id="r", state={"n": 1})
    assert told == {"run": "r", "call": "call-0", "used": 1, "before": 1, "expired": False, "left": True}
    assert (result.state, result.completed) == ({"n": 2}, True)
    kinds = [event.kind for event in events]
    where = kinds.index("tool_reported")
    assert kinds[where - 1 : where + 2] == ["tool_started", "tool_reported", "tool_ended"]
    assert events[where].to_dict()["text"] == "half"


def test_sinks_are_called_on_the_thread_of_the_run_only(run: Running) -> None:
    threads, deltas = set[int](), list[str]()

    def sink(event: RunEvent) -> None:
        threads.add(get_ident())
        if event.kind == "delta":
            deltas.append(str(event.to_dict()["text"]))

    async def here(request: Request, tell: OnText) -> Reply:
        for piece in ("one ", "two ", "three"):
            tell(piece)
        await anyio.sleep(0)
        return Reply("one two three")

    async def in_a_thread(request: Request, tell: OnText) -> Reply:
        for piece in ("one ", "two ", "three"):
            await anyio.to_thread.run_sync(tell, piece)
        return Reply("one two three")

    def blocking(request: Request, tell: OnText) -> Reply:
        for piece in ("one ", "two ", "three"):
            tell(piece)
        return Reply("one two three")

    for ask in (here, in_a_thread, blocking):
        threads.clear()
        deltas.clear()
        result = run(Agent(model=Plain(ask), sinks=[sink]))
        expected = ("one two three", ["one ", "two ", "three"], 1)
        assert (result.text, deltas, len(threads)) == expected, ask.__name__
        assert "delta" not in {event.kind for event in result.events}


@pytest.mark.one_door
@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_a_run_that_never_waits_lets_other_tasks_run(here: Any, closed: Any, groups: int) -> None:
    @tool(poll=True)
    async def touch() -> None: ...

    model = ScriptedModel.looping(together(*[call("touch")] * groups))
    agent = Agent(model=model, tools=[touch], limits=Limits(turns=500), grace=False)

    async def work() -> Result:
        async with agent.open("go") as run:
            for _ in range(3):  # the others have their turn again and again
                await anyio.sleep(0)
            run.cancel("another task")
            return await run.aresult()

    result = closed(here(work))
    assert (result.stop, result.stopped_by) == ("cancelled", "another task")
