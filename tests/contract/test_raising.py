"""Whatever a collaborator raises or returns, the run ends with one reason and everything closed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from flyball import Agent, Limits, Result, tool
from flyball.event import Event as RunEvent
from flyball.models.model import Tell
from flyball.outcome import Failure
from flyball.price import Price
from flyball.progress import Order, Point, Progress
from flyball.request import Call, Reply, Request, Usage
from flyball.testing import ScriptedModel, call, fail, say, together

Running = Callable[..., Result]

ANYTHING = [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration]
"""What a function that runs in a worker may raise: no Ctrl-C ever comes there."""


@dataclass
class Plain:
    """A model of one function."""

    ask: Callable[[Request, Tell], Reply | Awaitable[Reply]]
    name: str = "plain"
    provider: str | None = None
    price: Price | None = None

    def ready(self) -> str | None:
        return None


class Mute(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize("error", ANYTHING)
@pytest.mark.parametrize("beside", [0, 1])
def test_what_a_def_tool_raises_is_what_its_call_came_to(run: Running, error: type[BaseException], beside: int) -> None:
    @tool(effects="read")
    def broken() -> None:
        raise error("no disk")

    model = ScriptedModel(together(*[call("broken")] * (beside + 1)), say("done"))
    result = run(Agent(model=model, tools=[broken]))
    assert (result.stop, result.text) == ("completed", "done")
    for outcome in result.tool_results:
        assert isinstance(outcome, Failure)
        assert (outcome.kind, outcome.error) == (error.__name__, "no disk")


@pytest.mark.parametrize("error", [ValueError, SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("beside", [0, 1])
def test_what_an_async_tool_raises_is_what_its_call_came_to(
    run: Running, error: type[BaseException], beside: int
) -> None:
    @tool(effects="read")
    async def broken() -> None:
        raise error("no disk")

    model = ScriptedModel(together(*[call("broken")] * (beside + 1)), say("done"))
    result = run(Agent(model=model, tools=[broken]))
    assert (result.stop, result.text) == ("completed", "done")
    for outcome in result.tool_results:
        assert isinstance(outcome, Failure)
        assert outcome.kind == error.__name__


@pytest.mark.parametrize("error", ANYTHING)
def test_what_a_def_model_raises_ends_the_run_as_failed(run: Running, error: type[BaseException]) -> None:
    def ask(request: Request, tell: Tell) -> Reply:
        raise error("no line")

    result = run(Agent(model=Plain(ask)))
    assert (result.stop, result.requests) == ("failed", 1)
    assert result.error is not None
    assert "no line" in str(result.error["message"])


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError, Mute])
def test_what_an_async_model_raises_ends_the_run_as_failed(run: Running, error: type[BaseException]) -> None:
    async def ask(request: Request, tell: Tell) -> Reply:
        raise error("no line")

    result = run(Agent(model=Plain(ask)))
    assert (result.stop, result.requests) == ("failed", 1)
    assert result.error is not None
    assert result.error["kind"] == error.__name__


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        "text",
        {"text": "hello"},
        Reply(cast("str", None)),
        Reply(cast("str", 5)),
        Reply("x", cast("Any", None)),
        Reply("x", cast("Any", ["no call"])),
        Reply("x", cast("Any", [Call("1", "touch", {})])),
        Reply("x", (Call(cast("str", 7), "touch", {}),)),
        Reply("x", (Call("1", cast("str", None), {}),)),
        Reply("x", (Call("1", "touch", cast("str", None)),)),
        Reply("x", (), cast("Usage", {"input_tokens": 5})),
        Reply("x", (), cast("Usage", "many")),
        Reply("x", finish=cast("Any", "stop")),
        Reply("x", finish=cast("Any", "because")),
        Reply("x", finish=cast("Any", None)),
    ],
    ids=str,
)
def test_garbage_from_a_model_ends_the_run_or_is_answered_but_never_raised(run: Running, garbage: Any) -> None:
    async def ask(request: Request, tell: Tell) -> Reply:
        return garbage

    @tool
    async def touch() -> None: ...

    result = run(Agent(model=Plain(ask), tools=[touch], limits=Limits(turns=3, tokens=100_000)))
    assert result.stop in ("failed", "completed", "budget")
    assert isinstance(result.text, str)
    result.to_dict()


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
def test_a_sink_that_raises_changes_nothing_and_is_counted(run: Running, error: type[BaseException]) -> None:
    def sink(event: RunEvent) -> None:
        raise error("full")

    model = ScriptedModel(call("touch"), say("").streaming("d", "one"))

    @tool
    async def touch() -> None: ...

    result = run(Agent(model=model, tools=[touch], sinks=[sink]))
    assert (result.stop, result.text) == ("completed", "done")
    assert result.sink_errors >= len(result.events) - 1


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("who", ["should_continue", "completion", "hook", "ready", "count"])
def test_a_callback_that_raises_ends_the_run_as_failed(run: Running, who: str, error: type[BaseException]) -> None:
    class Guarded(ScriptedModel):
        def ready(self) -> str | None:
            return raise_it(None) if who == "ready" else None

        def count(self, request: Request) -> int:
            return raise_it(None) if who == "count" else 10

    def raise_it(_: Any) -> Any:
        raise error("no idea")

    def hook(point: Point, progress: Progress, about: object = None, /) -> tuple[Order, ...]:
        return raise_it(point) if who == "hook" and point is Point.TURN_ENDED else ()

    agent = Agent(
        model=Guarded(call("touch"), say("done")),
        tools=[tool(name="touch")(lambda: None)],
        should_continue=raise_it if who == "should_continue" else None,
        completion=raise_it if who == "completion" else None,
        hooks=[hook],
    )
    result = run(agent)
    assert result.stop == "failed"
    assert result.error is not None
    assert (result.error["kind"], result.error["message"]) == (error.__name__, "no idea")


def test_a_model_that_raises_in_the_grace_turn_leaves_a_report_without_it(run: Running) -> None:
    model = ScriptedModel.looping(call("touch"), grace=fail(SystemExit("gone")))
    result = run(Agent(model=model, tools=[tool(name="touch")(lambda: None)], limits=Limits(turns=2)))
    assert (result.stop, result.requests) == ("budget", 3)
    assert "touch (2)" in result.text


def test_a_model_that_is_not_ready_is_not_asked(run: Running) -> None:
    result = run(Agent(model=ScriptedModel(say("x"), not_ready="there is no key")))
    assert (result.stop, result.requests, result.turns) == ("failed", 0, 0)
    assert result.error is not None
    assert result.error["message"] == "there is no key"
