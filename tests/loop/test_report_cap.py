"""A report has its own cap of tokens and seconds, whatever is left of the run's limits."""

import pytest

from flyball import Agent, IterationBudgetRegistry, Limits, govern, tool
from flyball.budget.limits import Reserve
from flyball.loop.effects import Ask
from flyball.request import Purpose
from flyball.result import Result
from flyball.testing import ManualClock, ScriptDriver, ScriptedModel, assert_honest, call, say


@tool(poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def drive(limits: Limits, report_s: float = 0.0) -> tuple[Result, ScriptDriver]:
    model = ScriptedModel.looping(call("add", a=1, b=2), grace=say("I added 1 and 2.").after(report_s))
    script = ScriptDriver(Agent(model=model, tools=[add], limits=limits))
    return assert_honest(script.run("Go.")), script


def find_request(limits: Limits) -> Ask:
    _, script = drive(limits)
    [ask] = [effect for effect in script.effects if isinstance(effect, Ask) and effect.request.purpose is Purpose.GRACE]
    return ask


def test_a_report_has_30_seconds_and_4000_tokens_of_a_run_that_has_an_hour_left() -> None:
    ask = find_request(Limits(turns=2))
    assert (ask.deadline, ask.request.max_output_tokens) == (30.0, 4_000)


def test_a_report_that_takes_48_seconds_is_replaced_by_the_one_from_the_record() -> None:
    result, _ = drive(Limits(turns=2), report_s=48)
    assert result.seconds == 30.0
    assert "Calls that succeeded: add (2)." in result.text


@pytest.mark.parametrize(
    ("limits", "seconds", "tokens"),
    [
        (Limits(turns=2, report_tokens=100, report_seconds=5), 5.0, 100),
        (Limits(turns=2, report_tokens=None, report_seconds=None), 3_600.0, None),
        (Limits(turns=2, seconds=200, reserve=Reserve(seconds=60)), 60.0, 4_000),
        (Limits(turns=2, seconds=200, reserve=Reserve(seconds=60), report_seconds=10), 10.0, 4_000),
        (Limits(turns=2, seconds=20), 20.0, 4_000),
        (Limits(turns=2, tokens=90_000, reserve=Reserve(tokens=10_000)), 30.0, 10_000),
    ],
)
def test_the_cap_is_a_limit_and_never_below_the_reserve_unless_asked(
    limits: Limits, seconds: float, tokens: int | None
) -> None:
    ask = find_request(limits)
    assert (ask.deadline, ask.request.max_output_tokens) == (seconds, tokens)


def test_the_cap_has_settings() -> None:
    registry = IterationBudgetRegistry(settings={"max_report_seconds": 7, "max_report_tokens": 64})
    report = Limits().resolve(registry).report
    assert (report.seconds, report.tokens) == (7, 64)


def test_a_governed_report_has_the_same_cap() -> None:
    clock = ManualClock()
    with govern(Limits(turns=1, report_tokens=90, report_seconds=8), clock=clock) as run:
        assert next(run).max_output_tokens is None
        grace = next(run)
        assert (grace.grace, grace.max_output_tokens) == (True, 90)
        assert (grace.remaining_s(), grace.deadline.remaining) == (8.0, 8.0)
        clock.move(9)
        assert grace.remaining_s() == 0.0
        assert grace.call(lambda: {"usage": {"input_tokens": 1, "output_tokens": 1}}) is None
    assert run.result().stop == "budget"


def test_each_governed_conversation_has_the_cap_for_its_own_report() -> None:
    clock = ManualClock()
    with govern(Limits(turns=2, report_tokens=90, report_seconds=8), clock=clock) as run:
        for name in "ab":
            turn = run.begin_turn(name)
            assert turn is not None
            turn.settle({"input_tokens": 1, "output_tokens": 1})
            turn.end()
        assert run.begin_turn("a") is None
        first = run.enter_grace("a")
        clock.move(9)
        second = run.enter_grace("b")
        assert first is not None
        assert second is not None
        assert (first.remaining_s(), second.remaining_s(), second.max_output_tokens) == (0.0, 8.0, 90)
