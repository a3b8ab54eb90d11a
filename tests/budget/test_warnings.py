"""Warnings before a limit is reached: above seven tenths, once for each limit."""

from typing import Any

from flyball import Agent, Limits, govern
from flyball.budget.warnings import BudgetWarning
from flyball.event import BudgetWarned
from flyball.testing import ManualClock, ScriptDriver, ScriptedModel, call, say


def warned(events: Any) -> list[tuple[int, str, int, int]]:
    return [(e.turn, e.budget, e.used, e.ceiling) for e in events if isinstance(e, BudgetWarned)]


def test_a_limit_is_warned_of_once_above_seven_tenths() -> None:
    budget = Limits(turns=90).open(clock=ManualClock())
    for _ in range(63):
        budget.claim_step()
    assert list(budget.warnings.take(budget, budget.clock.now())) == []
    budget.claim_step()
    assert list(budget.warnings.take(budget, budget.clock.now())) == [BudgetWarning("turns", 64, 90)]
    budget.claim_step()
    assert list(budget.warnings.take(budget, budget.clock.now())) == []


def test_time_is_warned_of_when_seven_tenths_of_the_work_are_over_and_moves_with_the_deadline() -> None:
    clock = ManualClock()
    budget = Limits(seconds=100).open(clock=clock)  # 15 of them are kept for the report
    clock.move(59)
    assert list(budget.warnings.take(budget, budget.clock.now())) == []
    budget.postpone(15, "a person")
    clock.move(10)
    assert list(budget.warnings.take(budget, budget.clock.now())) == []
    clock.move(2)
    assert list(budget.warnings.take(budget, budget.clock.now())) == [BudgetWarning("seconds", 71, 100)]
    clock.move(20)
    assert list(budget.warnings.take(budget, budget.clock.now())) == []


def test_a_run_far_from_its_limits_has_no_warning() -> None:
    assert warned(ScriptDriver(Agent(model=ScriptedModel(say("done")))).run("Go.").events) == []


def test_an_agent_and_govern_warn_of_the_same_turn() -> None:
    model = ScriptedModel.looping(call("nothing"), grace=say("Reported."))
    result = ScriptDriver(Agent(model=model, limits=Limits(turns=4))).run("Go.")
    with govern(Limits(turns=4)) as run:
        for turn in run:
            turn.settle({"input_tokens": 1, "output_tokens": 1})
    assert warned(result.events) == warned(run.result().events) == [(3, "turns", 3, 4)]


def test_every_ceiling_is_warned_of_at_the_first_use_above_seven_tenths() -> None:
    for ceiling in range(1, 200):
        budget = Limits(turns=ceiling).open(clock=ManualClock())
        seen: list[int] = []
        for used in range(1, ceiling + 1):
            budget.claim_step()
            seen += [used for _ in budget.warnings.take(budget, 0.0)]
        assert seen == [used for used in range(1, ceiling) if used / ceiling > 0.7][:1], ceiling


def test_a_limit_that_was_used_up_is_warned_of_after_an_extension() -> None:
    budget = Limits(turns=3).open(clock=ManualClock())
    for _ in range(3):
        budget.claim_step()
    assert list(budget.warnings.take(budget, 0.0)) == []
    budget.budgets["turns"].extend(2, by="a test")
    budget.claim_step()
    assert list(budget.warnings.take(budget, 0.0)) == [BudgetWarning("turns", 4, 5)]
