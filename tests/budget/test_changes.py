"""Changes of a run's budgets: when rules and warnings look at them, and when they need not."""

import math
from collections.abc import Callable

import pytest

from flyball import IterationBudget, Limits, TurnBudget
from flyball.testing import ManualClock


def open_quiet(turns: int = 10) -> TurnBudget:
    """Return the budget of a run whose watchers have looked, and want to look again at 8 turns."""
    budget = Limits(turns=turns, tokens=1_000, seconds=100).open(clock=ManualClock())
    assert budget.take_changes(0.0)  # a new run has not been looked at
    budget.warnings.take(budget, 0.0)
    return budget


def test_claims_below_the_mark_are_no_changes_and_those_from_it_on_are() -> None:
    budget, seen = open_quiet(), list[int]()
    for turn in range(1, 11):
        assert budget.claim_step()
        if budget.take_changes(0.0):
            seen.append(turn)
    assert seen == [8, 9, 10]


CHANGES: dict[str, Callable[[TurnBudget], object]] = {
    "refund": lambda budget: budget.budgets["turns"].refund(reason="a test"),
    "extend": lambda budget: budget.budgets["turns"].extend(5, by="a test"),
    "set": lambda budget: budget.budgets["turns"].set_current(2),
    "settle": lambda budget: budget.budgets["tokens"].settle(0, 900),
    "increment": lambda budget: budget.budgets["tokens"].increment(900),
    "hold": lambda budget: budget.budgets["tokens"].hold(800).settle(800),
    "postpone": lambda budget: budget.postpone(5, "a test"),
    "open reserve": lambda budget: budget.open_reserve(),
    "restore reserve": lambda budget: budget.restore_reserve(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_else_changes_a_budget_is_looked_at_once(change: Callable[[TurnBudget], object]) -> None:
    budget = open_quiet()
    budget.claim_step()
    assert not budget.take_changes(0.0)
    change(budget)
    assert budget.take_changes(0.0)
    assert not budget.take_changes(0.0)


def test_a_claim_of_a_child_counts_as_a_change_of_its_parent() -> None:
    parent = open_quiet()
    child = IterationBudget("of_a_child", 10, parent=parent.budgets["turns"])
    assert child.consume(7)
    assert not parent.take_changes(0.0)
    assert child.consume()
    assert parent.take_changes(0.0)


def test_time_is_looked_at_when_seven_tenths_of_it_are_over() -> None:
    budget = open_quiet()
    assert budget.look_at == budget.nearly_over_at < math.inf
    assert not budget.take_changes(budget.nearly_over_at - 0.1)
    assert budget.take_changes(budget.nearly_over_at)


def test_a_budget_of_several_runs_is_looked_at_each_time() -> None:
    budget = TurnBudget({"turns": IterationBudget("turns", 10)}, Limits().open(clock=ManualClock()).hard)
    assert [budget.take_changes(0.0) for _ in range(3)] == [True, True, True]


def test_runs_of_limits_with_marks_start_quietly_and_look_at_the_lowest_mark() -> None:
    limits = Limits(turns=10, seconds=100).resolve().with_marks({"turns": 3, "retries": 1}, 50.0)
    budget = limits.open(clock=ManualClock())
    assert budget.look_at == budget.clock.now() + 50.0
    seen = [(budget.claim_step(), budget.take_changes(budget.clock.now())) for _ in range(3)]
    assert seen == [(True, False), (True, False), (True, True)]
    other = limits.open(clock=ManualClock())
    assert other.claim(retries=1)
    assert other.take_changes(other.clock.now())
