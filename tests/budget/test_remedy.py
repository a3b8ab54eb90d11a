"""Options that a refusal, an explanation and `flyball why` name."""

from typing import Any

import pytest

from flyball import Agent, Limits, govern, tool
from flyball.agent.conversation import run_conversation
from flyball.budget.remedy import describe_remedy
from flyball.budget.snapshot import BudgetSnapshot
from flyball.event import BudgetRefused
from flyball.record import parse_event
from flyball.result import Result
from flyball.testing import ManualClock, ScriptDriver, ScriptedModel, call, say
from flyball.unit import NANO, Unit


@tool(effects="read")
def look(n: int = 0) -> str:
    """Look."""
    return f"seen {n}"


def looper(limits: Limits, **options: Any) -> Agent:
    model = ScriptedModel(*[call("look", n=n) for n in range(20)], grace=say("I report."), max_output_tokens=10)
    return Agent(model=model, tools=[look], limits=limits, **options)


def run(limits: Limits, **options: Any) -> Result:
    return ScriptDriver(looper(limits, **options)).run("Go.")


def remedies(result: Result) -> list[str]:
    return [event.remedy for event in result.events if isinstance(event, BudgetRefused)]


TURNS = "Limits(turns=16), --turns 16 or the setting max_iterations"


def test_a_refused_turn_names_the_options_for_twice_the_turns() -> None:
    result = run(Limits(turns=8))
    assert remedies(result) == [TURNS]
    assert result.explain().endswith(f"A higher limit would let it continue: {TURNS}.")


def test_a_governed_loop_names_the_same_options() -> None:
    with govern(Limits(turns=8)) as loop:
        for _ in loop:
            pass
    assert remedies(loop.result()) == [TURNS]
    assert TURNS in loop.result().explain()


@pytest.mark.parametrize(
    ("limits", "remedy"),
    [
        (Limits(tool_calls=3, turns=6), "Limits(tool_calls=6), --tool-calls 6 or the setting max_tool_calls"),
        (Limits(calls={"look": 2}, turns=6), 'Limits(calls={"look": 4})'),
        (Limits(tokens=100), "Limits(tokens=200), --tokens 200 or the setting max_tokens"),
    ],
    ids=["calls", "calls of a tool", "tokens"],
)
def test_each_limit_names_its_own_options(limits: Limits, remedy: str) -> None:
    result = run(limits)
    assert remedies(result)[0] == remedy
    assert remedy in result.explain()


def test_time_that_is_over_names_the_seconds() -> None:
    model = ScriptedModel(call("look").after(30), call("look", n=2), grace=say("I report."))
    result = ScriptDriver(Agent(model=model, tools=[look], limits=Limits(seconds=20))).run("Go.")
    assert remedies(result) == ["Limits(seconds=40), --seconds 40 or the setting max_seconds"]
    assert "More time would let it continue: Limits(seconds=" in result.explain()


@pytest.mark.parametrize("name", ["turns", "tool_calls", "tokens"])
def test_a_limit_of_a_shared_budget_is_named_instead_of_the_runs_own(name: str) -> None:
    own: Any = {"turns": 20, "tool_calls": 20, "tokens": 5_000}
    amounts: Any = {"turns": 2, "tool_calls": 2, "tokens": 300}
    with Limits(**{name: amounts[name]}).open() as shared:
        result = looper(Limits(**own)).run("Go.", within=shared)
    remedy = f"Limits({name}=…) of the shared budget (within= or the parent run)"
    assert remedies(result)[0] == remedy
    assert result.explain().endswith(f"A higher limit would let it continue: {remedy}.")


def test_a_governed_loop_names_the_shared_budget_too() -> None:
    with Limits(turns=2).open() as shared, govern(Limits(turns=8), within=shared) as loop:
        for _ in loop:
            pass
    assert "continue: Limits(turns=…) of the shared budget" in loop.result().explain()


@pytest.mark.parametrize(("seconds", "is_shared"), [(5, False), (50, True)])
def test_time_that_is_over_names_the_shared_budget_only_if_that_ends_earlier(seconds: float, is_shared: bool) -> None:
    clock = ManualClock()
    limits = Limits(seconds=seconds)
    with Limits(seconds=20).open(clock=clock) as shared, govern(limits, within=shared, clock=clock) as loop:
        for _ in loop:
            clock.move(8)
    assert loop.result().stop == "deadline"
    assert ("Limits(seconds=…) of the shared budget" in loop.result().explain()) is is_shared


def test_a_limit_at_its_maximum_says_so() -> None:
    budget = BudgetSnapshot("conversation_turns", 50, 50, maximum=50)
    assert describe_remedy("turns", budget) == "50 is the maximum allowed for turns"


def test_a_limit_is_doubled_up_to_its_maximum() -> None:
    budget = BudgetSnapshot("conversation_turns", 30, 30, maximum=50)
    assert describe_remedy("turns", budget) == "run_conversation(max_turns=50) or the setting max_turns"


def test_a_child_names_no_option_of_the_command_line() -> None:
    budget = BudgetSnapshot("child_iterations", 4, 4, maximum=250)
    assert describe_remedy("turns", budget) == "Limits(turns=8) or the setting delegation.max_iterations"


def test_money_is_written_in_dollars() -> None:
    budget = BudgetSnapshot("cost_usd", NANO // 4, NANO // 4, unit=Unit.USD)
    assert describe_remedy("usd", budget) == "Limits(usd=0.5), --usd 0.5 or the setting max_usd"


def test_a_conversation_names_its_own_setting() -> None:
    model = ScriptedModel(*[call("look", n=n) for n in range(5)], grace=say("I report."))
    result = run_conversation([{"role": "user", "content": "Go."}], [look], model=model, max_turns=2)
    assert "run_conversation(max_turns=4) or the setting max_turns" in result.explain()


def test_an_event_of_an_earlier_version_has_no_remedy() -> None:
    [refused] = [event for event in run(Limits(turns=1)).events if isinstance(event, BudgetRefused)]
    row = refused.to_dict()
    assert parse_event(row).to_dict() == row
    del row["remedy"]
    assert parse_event(row).to_dict()["remedy"] == ""
