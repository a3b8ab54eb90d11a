"""Whatever a collaborator raises or returns, the run ends with one reason and everything closed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from flyball import Agent, Limits, Result, tool
from flyball.budget.price import Price
from flyball.event import Event as RunEvent
from flyball.models.model import OnText
from flyball.outcome import Failure
from flyball.progress import Order, Point, Progress
from flyball.request import Call, Reply, Request, Usage
from flyball.steadiness import Thresholds
from flyball.testing import ScriptedModel, call, fail, say, together

Running = Callable[..., Result]

PATIENT = Thresholds(same=None, rounds=None, failures=None)

ANYTHING = [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration]
"""What a function that runs in a worker may raise: no Ctrl-C ever comes there."""


@dataclass
class Plain:
    """A model of one function."""

    ask: Callable[[Request, OnText], Reply | Awaitable[Reply]]
    name: str = "plain"
    provider: str | None = None
    price: Price | None = None

    def ready(self) -> str | None:
        return None


class Mute(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def broken_tools(errors: Sequence[type[BaseException]]) -> tuple[Any, Any]:
    """Tools that raise what they are asked for, and the names of all that they may raise."""
    kinds = {error.__name__: error for error in errors}

    @tool(effects="read", name="broken")
    def broken(kind: str) -> None:
        raise kinds[kind]("no disk")

    @tool(effects="read", name="broken")
    async def abroken(kind: str) -> None:
        raise kinds[kind]("no disk")

    return broken, abroken


def check_failures(run: Running, broken: Any, errors: Sequence[type[BaseException]]) -> list[Failure]:
    """Have a tool raise every error, alone in its turn and beside another call."""
    lines = [together(*[call("broken", kind=error.__name__)] * calls) for error in errors for calls in (1, 2)]
    result = run(Agent(model=ScriptedModel(*lines, say("done")), tools=[broken], repetition=PATIENT))
    assert (result.stop, result.text) == ("completed", "done")
    failures = [outcome for outcome in result.tool_results if isinstance(outcome, Failure)]
    assert [outcome.kind for outcome in failures] == [error.__name__ for error in errors for _ in range(3)]
    return failures


def test_a_def_tool_that_raises_anything_fails_its_call_only(run: Running) -> None:
    failures = check_failures(run, broken_tools(ANYTHING)[0], ANYTHING)
    assert {outcome.error for outcome in failures} == {"no disk"}


def test_an_async_tool_that_raises_anything_fails_its_call_only(run: Running) -> None:
    errors = [ValueError, SystemExit, GeneratorExit, asyncio.CancelledError]
    check_failures(run, broken_tools(errors)[1], errors)


def test_a_def_model_that_raises_anything_fails_the_run(run: Running) -> None:
    for error in ANYTHING:

        def ask(request: Request, tell: OnText, error: type[BaseException] = error) -> Reply:
            raise error("no line")

        result = run(Agent(model=Plain(ask)))
        assert (result.stop, result.requests) == ("failed", 1), error
        assert "no line" in str((result.error or {})["message"]), "the words of the model's error are kept"


def test_an_async_model_that_raises_anything_fails_the_run(run: Running) -> None:
    for error in (ValueError, SystemExit, asyncio.CancelledError, Mute):

        async def ask(request: Request, tell: OnText, error: type[BaseException] = error) -> Reply:
            raise error("no line")

        result = run(Agent(model=Plain(ask)))
        assert (result.stop, result.requests) == ("failed", 1), error
        assert (result.error or {})["kind"] == error.__name__


GARBAGE: list[Any] = [
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
]


@pytest.mark.one_door
def test_garbage_from_a_model_ends_the_run_and_is_never_raised(run: Running) -> None:
    @tool
    async def touch() -> None: ...

    for garbage in GARBAGE:

        async def ask(request: Request, tell: OnText, garbage: Any = garbage) -> Reply:
            return garbage

        result = run(Agent(model=Plain(ask), tools=[touch], limits=Limits(turns=3, tokens=100_000)))
        assert result.stop in ("failed", "completed", "budget"), garbage
        assert isinstance(result.text, str), garbage
        result.to_dict()


@pytest.mark.one_door
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


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError])
def test_a_callback_that_raises_what_event_loops_treat_specially_fails_the_run(
    run: Running, error: type[BaseException]
) -> None:
    for who in ("should_continue", "completion", "hook", "ready", "count"):
        result = run(guarded(who, error))
        assert (result.stop, (result.error or {}).get("kind")) == ("failed", error.__name__), who


def guarded(who: str, error: type[BaseException]) -> Agent:
    """An agent with one callback that raises."""

    class Guarded(ScriptedModel):
        def ready(self) -> str | None:
            return raise_it(None) if who == "ready" else None

        def count(self, request: Request) -> int:
            return raise_it(None) if who == "count" else 10

    def raise_it(_: Any) -> Any:
        raise error("no idea")

    def hook(point: Point, progress: Progress, about: object = None, /) -> tuple[Order, ...]:
        return raise_it(point) if who == "hook" and point is Point.TURN_ENDED else ()

    return Agent(
        model=Guarded(call("touch"), say("done")),
        tools=[tool(name="touch")(lambda: None)],
        should_continue=raise_it if who == "should_continue" else None,
        completion=raise_it if who == "completion" else None,
        hooks=[hook],
    )


@pytest.mark.one_door
def test_a_model_that_raises_in_the_grace_turn_is_replaced_by_a_report_from_the_record(run: Running) -> None:
    model = ScriptedModel.looping(call("touch"), grace=fail(SystemExit("gone")))
    result = run(Agent(model=model, tools=[tool(name="touch")(lambda: None)], limits=Limits(turns=2)))
    assert (result.stop, result.requests) == ("budget", 3)
    assert "touch (2)" in result.text
