from typing import Any

import pytest

from flyball import BudgetExceeded, ConfigError, IterationBudget, Unit


def test_a_claim_counts_for_every_ancestor() -> None:
    tree = IterationBudget("tree", 10)
    parent = IterationBudget("parent", 8, parent=tree)
    child = IterationBudget("child", 5, parent=parent)
    assert child.consume(3)
    assert parent.consume(1)
    assert (child.used, parent.used, tree.used) == (3, 4, 4)


def test_a_claim_that_an_ancestor_refuses_counts_for_none() -> None:
    tree = IterationBudget("tree", 2)
    child = IterationBudget("child", 5, parent=tree)
    assert not child.consume(3)
    assert child.try_hold(3) is None
    assert (child.used, tree.used, child.held, tree.held) == (0, 0, 0, 0)


def test_a_loud_refusal_names_the_ancestor_that_refused() -> None:
    tree = IterationBudget("tree", 2)
    child = IterationBudget("child", 5, parent=IterationBudget("parent", 5, parent=tree))
    with pytest.raises(BudgetExceeded) as caught:
        child.spend(3)
    error = caught.value
    assert (error.budget, error.asked, error.remaining, error.ceiling) == ("tree", 3, 2, 2)


def test_remaining_is_its_own_and_available_is_the_least() -> None:
    tree = IterationBudget("tree", 4)
    child = IterationBudget("child", 5, parent=tree)
    assert (child.remaining, child.available) == (5, 4)
    tree.increment(9)
    assert (child.remaining, child.available) == (5, 0)


def test_holds_and_increments_count_for_every_ancestor() -> None:
    tree = IterationBudget("tree", 10)
    child = IterationBudget("child", 10, parent=tree)
    hold = child.hold(6)
    assert (tree.held, tree.remaining) == (6, 4)
    assert not tree.consume(5)
    hold.settle(7)
    child.increment(2)
    assert (child.used, tree.used, tree.held) == (9, 9, 0)


def test_a_refund_gives_back_the_least_that_every_one_can() -> None:
    tree = IterationBudget("tree", 10, refund_limit=1)
    child = IterationBudget("child", 10, parent=tree)
    child.spend(5)
    assert child.refund(3, reason="r") == 1
    assert (child.used, tree.used, child.refunds, tree.refunds) == (4, 4, {"r": 1}, {"r": 1})
    assert child.refund(3, reason="r") == 0


def test_a_start_counts_here_only() -> None:
    tree = IterationBudget("tree", 10)
    child = IterationBudget("child", 10, start=4, parent=tree)
    assert (child.used, tree.used) == (4, 0)
    tree.increment(5)
    assert child.refund(4, reason="r") == 0
    assert (child.used, tree.used) == (4, 5)


def test_what_was_brought_is_never_given_back_to_an_ancestor_but_what_was_claimed_is() -> None:
    tree = IterationBudget("tree", 20)
    other = IterationBudget("other", 10, parent=tree)
    child = IterationBudget("child", 20, start=10, parent=tree)
    other.spend(10)
    child.spend(3)
    assert child.refund(9, reason="r") == 3
    assert (child.used, tree.used, other.used) == (10, 10, 10)


def test_a_restored_family_gives_back_what_it_had_claimed_before() -> None:
    tree = IterationBudget("tree", 20)
    child = IterationBudget("child", 20, start=2, parent=tree)
    child.spend(5)
    tree = IterationBudget.restore(tree.snapshot())
    child = IterationBudget.restore(child.snapshot(), parent=tree)
    assert child.refund(9, reason="r") == 5
    assert (child.used, tree.used) == (2, 0)


def test_siblings_share_what_their_parent_has() -> None:
    tree = IterationBudget("tree", 60)
    children = [IterationBudget(f"child_{n}", 50, parent=tree) for n in range(3)]
    taken = [sum(child.consume() for _ in range(50)) for child in children]
    assert taken == [50, 10, 0]


def test_an_extension_raises_its_own_ceiling_only() -> None:
    tree = IterationBudget("tree", 2)
    child = IterationBudget("child", 1, parent=tree)
    child.extend(5, by="a rule")
    assert (child.ceiling, tree.ceiling) == (6, 2)
    assert not child.consume(3)


def test_a_family_has_one_lock() -> None:
    tree = IterationBudget("tree", 2)
    child = IterationBudget("child", 1, parent=tree)
    beside = IterationBudget("tokens", 100, beside=child)
    locks = {id(budget._lock) for budget in (tree, child, beside)}  # pyright: ignore[reportPrivateUsage]
    assert len(locks) == 1
    beside.spend(50)
    assert (tree.used, child.used) == (0, 0)


@pytest.mark.parametrize("role", ["parent", "beside"])
def test_a_relative_must_be_a_budget(role: str) -> None:
    relatives: dict[str, Any] = {role: "tree"}
    with pytest.raises(ConfigError) as caught:
        IterationBudget("child", 1, **relatives)
    assert (caught.value.where, caught.value.found) == (f"budget 'child', {role}", "tree")


def test_a_refusal_in_a_family_is_told_in_the_unit_of_the_one_that_refused() -> None:
    tree = IterationBudget("tree", 10**9, unit=Unit.USD)
    with pytest.raises(BudgetExceeded, match=r"'tree'.*\$2.00.*\$1.00.*\$1.00"):
        IterationBudget("child", 9 * 10**9, parent=tree, unit=Unit.USD).spend(2 * 10**9)


def test_a_parent_and_a_neighbour_of_two_families_are_refused() -> None:
    tree, other = IterationBudget("tree", 2), IterationBudget("other", 2)
    with pytest.raises(ConfigError) as caught:
        IterationBudget("child", 1, parent=tree, beside=other)
    assert (caught.value.where, caught.value.found) == ("budget 'child', beside", "other")
    assert IterationBudget("child", 1, parent=tree, beside=tree).consume()
