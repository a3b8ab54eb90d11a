"""assert_honest passes what is honest, and says what is not."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.event import Event, RunEnded, ToolEnded
from flyball.outcome import Success
from flyball.result import Result, Stop
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, say, together


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def result(turns: int = 5) -> Result:
    model = ScriptedModel(together(call("add", a=1, b=2), call("add", a=3, b=4)), say("10"), grace=say("R."))
    return ScriptDriver(Agent(model=model, tools=[add], limits=Limits(turns=turns))).run("Go.")


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


LIES: dict[str, Callable[[Result], dict[str, Any]]] = {
    "no run_ended": without("run_ended"),
    "two run_ended": lambda honest: {"events": [*honest.events, honest.events[-1]]},
    "an open turn": without("turn_ended"),
    "an open request": without("model_replied"),
    "a call that never started": without("tool_started"),
    "a call that never ended": without("tool_ended"),
    "no run_started": without("run_started"),
    "another reason": lambda honest: {"stop": Stop.HALTED},
    "a limit without a flag": ended_as(stop=Stop.BUDGET),
    "a limit without a word": ended_as(stop=Stop.BUDGET, flags=("f",)),
    "a failure without an error": ended_as(stop=Stop.FAILED),
    "a halt by nobody": ended_as(stop=Stop.HALTED),
    "an answer with an error": lambda honest: {"error": {"code": "x"}},
    "an answer with a warning": lambda honest: {"warning": "x"},
    "one request more": ended_as(requests=9),
    "a lost result": lambda honest: {"messages": honest.messages[:-2]},
    "an outcome twice": lambda honest: {"tool_results": [*honest.tool_results] * 2},
    "an outcome that no message tells": lambda honest: {
        "tool_results": [*honest.tool_results, Success(call_id="x", tool="add", content="")]
    },
    "an order that is not the events'": lambda honest: {"tool_results": honest.tool_results[::-1]},
    "time that goes back": lambda honest: {"events": [replace(honest.events[0], at=9.0), *honest.events[1:]]},
    "numbers that go back": lambda honest: {"events": [*honest.events[-2::-1], honest.events[-1]]},
    "a budget above its ceiling": lambda honest: {"budgets": {"turns": replace(honest.budgets["turns"], used=99)}},
    "a hold that nobody settled": lambda honest: {"budgets": {"tokens": replace(honest.budgets["tokens"], held=5)}},
    "usage that nobody told": lambda honest: {"usage": replace(honest.usage, input=999)},
}


@pytest.mark.parametrize("turns", [1, 5])
def test_an_honest_result_comes_back(turns: int) -> None:
    honest = result(turns)
    assert assert_honest(honest) is honest


@pytest.mark.parametrize("name", LIES)
def test_a_lie_in_a_result_is_found_and_named(name: str, snapshot: Callable[..., None]) -> None:
    honest = result()
    with pytest.raises(AssertionError) as caught:
        assert_honest(replace(honest, **LIES[name](honest)))
    snapshot(str(caught.value).splitlines()[0])


def test_where_old_events_were_dropped_the_rest_is_checked() -> None:
    honest = result()
    kept = replace(honest, events=honest.events[-3:], events_dropped=len(honest.events) - 3)
    assert_honest(kept)
    with pytest.raises(AssertionError):
        assert_honest(replace(kept, messages=honest.messages[:-2]))


def test_where_no_event_was_kept_the_rest_is_checked() -> None:
    honest = result()
    kept = replace(honest, events=(), events_dropped=len(honest.events))
    assert_honest(kept)
    with pytest.raises(AssertionError):
        assert_honest(replace(kept, messages=honest.messages[:-2]))
    with pytest.raises(AssertionError):
        assert_honest(replace(kept, events_dropped=0))


def test_a_report_that_says_nothing_is_found() -> None:
    with pytest.raises(AssertionError):
        assert_honest(replace(result(1), text=" "))


def test_the_calls_of_a_tool_are_counted_by_their_ends() -> None:
    honest = result()
    assert len([event for event in honest.events if isinstance(event, ToolEnded)]) == len(honest.tool_results)
