import pytest

from flyball import Limits, TurnBudget
from flyball.loop.effects import Grant
from flyball.runtime.shared_budget import SharedBudgetClient
from flyball.testing import ManualClock


def taking(**amounts: int) -> Grant:
    return Grant(amounts)


def test_counts_are_used_at_once_and_tokens_are_held_until_they_are_settled() -> None:
    envelope = Limits(turns=5, tokens=1_000).open(grace=False)
    lender = SharedBudgetClient(envelope)
    assert lender.apply(taking(turns=1)) is None
    assert lender.apply(taking(tokens=600)) is None
    turns, tokens = envelope.budgets["turns"], envelope.budgets["tokens"]
    assert (turns.used, tokens.used, tokens.available) == (1, 0, 400)
    lender.apply(Grant(settle={"tokens": 150}))
    assert (tokens.used, tokens.available) == (150, 850)


def test_what_is_refused_is_named_and_nothing_is_taken() -> None:
    envelope = Limits(turns=5, tokens=1_000).open(grace=False)
    refusal = SharedBudgetClient(envelope).apply(taking(turns=1, tokens=1_001))
    assert refusal is not None
    assert (refusal.budget, refusal.flag) == ("tokens", "max_tokens_reached")
    assert (envelope.budgets["turns"].used, envelope.budgets["tokens"].available) == (0, 1_000)


def test_what_nobody_settled_is_booked_in_full_at_the_end() -> None:
    envelope = Limits(tokens=1_000).open(grace=False)
    lender = SharedBudgetClient(envelope)
    lender.apply(taking(tokens=600))
    lender.close()
    lender.close()
    assert (envelope.budgets["tokens"].used, envelope.budgets["tokens"].available) == (600, 400)


def test_what_is_given_back_can_be_taken_again() -> None:
    envelope = Limits(turns=1).open(grace=False)
    lender = SharedBudgetClient(envelope)
    assert lender.apply(taking(turns=1)) is None
    assert lender.apply(taking(turns=1)) is not None
    lender.apply(Grant(refund={"cheap_round": {"turns": 1}}))
    assert lender.apply(taking(turns=1)) is None


@pytest.mark.parametrize("seconds", [10, 11])
def test_when_its_time_is_over_everything_is_refused(seconds: float) -> None:
    clock = ManualClock()
    envelope = TurnBudget.create(timeout_s=10, clock=clock)
    clock.move(seconds)
    refusal = SharedBudgetClient(envelope).apply(taking(turns=1))
    assert refusal is not None
    assert (refusal.budget, envelope.budgets["turns"].used) == ("seconds", 0)


def test_a_refusal_names_the_budget_above_if_that_one_is_short() -> None:
    tree = Limits(tool_calls=1).open(grace=False)
    pool = TurnBudget.of({"turns": 5, "tool_calls": None}, tree.hard, prefix="shared_", parent=tree)
    client = SharedBudgetClient(pool)
    assert client.apply(taking(tool_calls=1)) is None
    refusal = client.apply(taking(tool_calls=1))
    assert refusal is not None
    assert (refusal.budget, refusal.flag) == ("tool_calls", "max_tool_calls_reached")
