import math
from threading import Thread

import pytest

from flyball import Deadline, IterationBudget, Limits, TurnBudget, Unit
from flyball.budget.budget_set import COUNTED, BudgetSet, build_templates, narrow
from flyball.testing import ManualClock

NEVER = Deadline(math.inf, ManualClock())


def envelopes() -> list[TurnBudget]:
    return [
        Limits(turns=3).open(grace=False),
        TurnBudget.create(max_steps=3),
        TurnBudget.of({"turns": 3}, NEVER),
        TurnBudget({"turns": IterationBudget("turns", 3)}, NEVER),
    ]


@pytest.mark.parametrize("envelope", envelopes(), ids=["limits", "create", "of", "constructor"])
def test_every_factory_gives_every_budget_under_one_lock(envelope: TurnBudget) -> None:
    assert all(name in envelope.budgets for name in COUNTED)
    assert {id(envelope.budgets[name].lock) for name in COUNTED} == {id(envelope.lock)}
    assert envelope.budgets["turns"].ceiling == 3
    assert envelope.budgets["usd"].unit is Unit.USD


def test_a_budget_that_was_not_given_refuses_nothing_and_is_not_listed() -> None:
    envelope = TurnBudget.create(max_steps=3)
    before = envelope.snapshot().keys()
    assert envelope.claim(tokens=10**9)
    assert envelope.budgets["tokens"].used == 10**9
    assert list(envelope.snapshots()) == ["turns", "tool_calls", "reflections"]
    assert envelope.snapshot().keys() == before


def test_a_budget_that_is_set_is_listed() -> None:
    budgets = BudgetSet(build_templates())
    assert (budgets.get("calls.search"), "calls.search" in budgets, len(budgets)) == (None, False, len(COUNTED))
    budgets["calls.search"] = IterationBudget("calls_of_search", 1, beside=budgets["turns"])
    assert ("calls.search" in budgets, [*budgets]) == (True, [*COUNTED, "calls.search"])
    assert [name for name, _ in budgets.items()] == list(budgets.keys())


def test_templates_are_never_used_themselves() -> None:
    for _ in range(2):
        assert TurnBudget.of({"turns": 1}, NEVER, prefix="chain_").claim(turns=1)
    assert [budget.used for budget in build_templates("chain_").values()] == [0] * len(COUNTED)


def test_the_prefix_is_in_names_and_flags() -> None:
    pool = TurnBudget.of({"usd": 0, "turns": 0}, NEVER, prefix="shared_")
    assert not pool.claim(turns=1, usd=1)
    assert pool.flags == ("max_shared_turns_reached", "max_shared_usd_reached")
    plain = TurnBudget.of({"usd": 0, "turns": 0}, NEVER)
    assert not plain.claim(turns=1, usd=1)
    assert plain.flags == ("max_agent_iterations_reached", "max_cost_usd_reached")


def test_claims_count_in_the_parent_where_ceilings_were_given() -> None:
    parent = TurnBudget.create(max_steps=2)
    pool = TurnBudget.of({"turns": 5, "tokens": None}, NEVER, parent=parent)
    assert [pool.claim(turns=1, tokens=7) for _ in range(3)] == [True, True, False]
    assert pool.claim(tool_calls=100)
    assert {name: parent.budgets[name].used for name in ("turns", "tokens", "tool_calls")} == {
        "turns": 2,
        "tokens": 14,
        "tool_calls": 0,
    }
    assert pool.remaining("turns", "tokens") == {"turns": 0}


def test_a_given_ceiling_is_a_cap_that_cannot_be_raised() -> None:
    budget = TurnBudget.of({"turns": 2}, NEVER).budgets["turns"]
    assert (budget.extend(5, by="a rule"), budget.ceiling) == (0, 2)


def test_threads_get_the_same_budget() -> None:
    budgets, seen = BudgetSet(build_templates()), list[IterationBudget]()
    threads = [Thread(target=lambda: seen.append(budgets["tokens"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(budget) for budget in seen} == {id(budgets["tokens"])}


def test_remaining_leaves_out_unlimited_budgets_and_counts_holds() -> None:
    envelope = TurnBudget.of({"turns": 4, "tokens": 100}, NEVER)
    assert envelope.claim(turns=1)
    with envelope.budgets["tokens"].hold(30):
        assert envelope.remaining("turns", "tokens", "usd") == {"turns": 3, "tokens": 70}
    assert envelope.remaining() == {}


def test_narrow_takes_the_lowest_of_each_name() -> None:
    assert narrow({"turns": 3, "usd": 9}, {"tokens": 5}, {"turns": 2, "usd": 10}) == {"turns": 2, "usd": 9, "tokens": 5}
    assert narrow() == narrow({}, {}) == {}
