"""assert_honest passes what is honest, and says what is not."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.event import Event, RunEnded, ToolEnded
from flyball.outcome import Success
from flyball.result import Result, Stop
from flyball.testing import Script, ScriptedModel, assert_honest, call, say, together


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def result(turns: int = 5) -> Result:
    model = ScriptedModel(together(call("add", a=1, b=2), call("add", a=3, b=4)), say("10"), grace=say("R."))
    return Script(Agent(model=model, tools=[add], limits=Limits(turns=turns))).run("Go.")


def events(keep: Callable[[Event], bool], honest: Result) -> Sequence[Event]:
    return [event for event in honest.events if keep(event)]


def without(kind: str) -> Callable[[Result], dict[str, Any]]:
    return lambda honest: {"events": events(lambda event: event.kind != kind, honest)}


def ended_as(**fields: Any) -> Callable[[Result], dict[str, Any]]:
    """A run_ended that agrees with the lie, so that only the lie itself is wrong."""

    def lie(honest: Result) -> dict[str, Any]:
        last = honest.events[-1]
        assert isinstance(last, RunEnded)
        told = {name: value for name, value in fields.items() if name in ("stop", "flags", "stopped_by")}
        return {**fields, "events": [*honest.events[:-1], replace(last, **told)]}

    return lie


LIES: dict[str, tuple[Callable[[Result], dict[str, Any]], str]] = {
    "no run_ended": (without("run_ended"), "not run_ended"),
    "two run_ended": (lambda honest: {"events": [*honest.events, honest.events[-1]]}, "2 run_ended"),
    "an open turn": (without("turn_ended"), "inside another"),
    "an open request": (without("model_replied"), "inside .*model_requested"),
    "a call that never started": (without("tool_started"), "never started"),
    "a call that never ended": (without("tool_ended"), "not ended|twice|inside the calls"),
    "no run_started": (without("run_started"), "the first event"),
    "another reason": (lambda honest: {"stop": Stop.HALTED}, "run_ended says"),
    "a limit without a flag": (ended_as(stop=Stop.BUDGET), "no budget refused"),
    "a limit without a word": (ended_as(stop=Stop.BUDGET, flags=("f",)), "the flags are"),
    "a failure without an error": (ended_as(stop=Stop.FAILED), "nobody says of what"),
    "a halt by nobody": (ended_as(stop=Stop.HALTED), "nobody says by whom"),
    "an answer with an error": (lambda honest: {"error": {"code": "x"}}, "has the error"),
    "an answer with a warning": (lambda honest: {"warning": "x"}, "has the warning"),
    "one request more": (ended_as(requests=9), "run_ended says"),
    "a lost result": (lambda honest: {"messages": honest.messages[:-2]}, "exactly one result"),
    "an outcome twice": (lambda honest: {"tool_results": [*honest.tool_results] * 2}, "more than one outcome"),
    "an outcome that no message tells": (
        lambda honest: {"tool_results": [*honest.tool_results, Success(call_id="x", tool="add", content="")]},
        "no message tells",
    ),
    "an order that is not the events'": (lambda honest: {"tool_results": honest.tool_results[::-1]}, "the events tell"),
    "time that goes back": (
        lambda honest: {"events": [replace(honest.events[0], at=9.0), *honest.events[1:]]},
        "was at",
    ),
    "numbers that go back": (lambda honest: {"events": [*honest.events[-2::-1], honest.events[-1]]}, "comes behind"),
    "a budget above its ceiling": (
        lambda honest: {"budgets": {"turns": replace(honest.budgets["turns"], used=99)}},
        "99 of turns are used",
    ),
    "a hold that nobody settled": (
        lambda honest: {"budgets": {"tokens": replace(honest.budgets["tokens"], held=5)}},
        "still held",
    ),
    "usage that nobody told": (lambda honest: {"usage": replace(honest.usage, input=999)}, "the events tell"),
}


@pytest.mark.parametrize("turns", [1, 5])
def test_an_honest_result_comes_back(turns: int) -> None:
    honest = result(turns)
    assert assert_honest(honest) is honest


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_found_and_named(name: str) -> None:
    lie, words = LIES[name]
    honest = result()
    with pytest.raises(AssertionError, match=words):
        assert_honest(replace(honest, **lie(honest)))


def test_where_old_events_were_dropped_the_rest_is_checked() -> None:
    honest = result()
    kept = replace(honest, events=honest.events[-3:], events_dropped=len(honest.events) - 3)
    assert_honest(kept)
    with pytest.raises(AssertionError, match="exactly one result"):
        assert_honest(replace(kept, messages=honest.messages[:-2]))


def test_where_no_event_was_kept_the_rest_is_checked() -> None:
    honest = result()
    kept = replace(honest, events=(), events_dropped=len(honest.events))
    assert_honest(kept)
    with pytest.raises(AssertionError, match="exactly one result"):
        assert_honest(replace(kept, messages=honest.messages[:-2]))
    with pytest.raises(AssertionError, match="there are no events"):
        assert_honest(replace(kept, events_dropped=0))


def test_a_report_that_says_nothing_is_found() -> None:
    with pytest.raises(AssertionError, match="says nothing"):
        assert_honest(replace(result(1), text=" "))


def test_the_calls_of_a_tool_are_counted_by_their_ends() -> None:
    honest = result()
    assert len([event for event in honest.events if isinstance(event, ToolEnded)]) == len(honest.tool_results)
