"""One budget, what is held of it, and families of budgets."""

import copy
import gc
import math
import pickle
import warnings
from collections.abc import Callable, Generator
from typing import Any

import pytest

from flyball import AmountError, BudgetExceeded, ConfigError, Hold, IterationBudget, Unit


def test_a_claim_counts_until_the_ceiling_and_a_refused_one_changes_nothing() -> None:
    turns = IterationBudget("conversation_turns", 3)
    assert turns.consume()
    assert turns.consume(2)
    before = turns.snapshot()
    assert not turns.consume()
    assert turns.snapshot() == before
    assert (turns.used, turns.current, turns.remaining, turns.exceeded, turns.ratio) == (3, 3, 0, True, 1.0)


def test_a_claim_larger_than_what_is_left_is_refused_whole() -> None:
    turns = IterationBudget("turns", 3)
    assert not turns.consume(4)
    assert turns.used == 0
    assert turns.consume(3)


def test_a_budget_names_its_flag_and_its_warning(snapshot: Callable[..., None]) -> None:
    turns = IterationBudget("conversation_turns", 3)
    assert turns.to_response_flag() == "max_conversation_turns_reached"
    snapshot(turns.warning, "count")
    snapshot(IterationBudget("cost_usd", 4_300_000_000, unit=Unit.USD).warning, "money")


def test_the_loop_of_seed_000_runs_as_often_as_the_ceiling_allows() -> None:
    budget = IterationBudget("my_budget", 5)
    rounds = 0
    while not budget.exceeded:
        budget.increment()
        rounds += 1
    assert rounds == 5
    assert [budget.to_response_flag()] == ["max_my_budget_reached"]


def test_an_increment_may_pass_the_ceiling_and_gives_the_new_count() -> None:
    turns = IterationBudget("turns", 1)
    assert (turns.increment(), turns.increment(3)) == (1, 4)
    assert (turns.used, turns.remaining, turns.ratio, turns.exceeded) == (4, 0, 4.0, True)


def test_without_a_ceiling_everything_is_allowed() -> None:
    free = IterationBudget("tokens", None)
    assert free.consume(10**12)
    with free.hold(10**12):
        assert (free.remaining, free.available, free.ratio, free.exceeded) == (math.inf, math.inf, 0.0, False)
    assert free.snapshot().remaining == math.inf
    assert free.extend(5, by="anybody") == 0
    assert free.refund(10, reason="r") == 10


def test_with_a_ceiling_of_zero_nothing_is_allowed() -> None:
    none = IterationBudget("nudges", 0)
    assert not none.consume()
    assert none.try_hold(1) is None
    assert (none.exceeded, none.ratio, none.remaining) == (True, 1.0, 0)


@pytest.mark.parametrize("start", [3, 4])
def test_a_start_at_or_above_the_ceiling_is_an_exceeded_budget(start: int) -> None:
    turns = IterationBudget("turns", 3, start=start)
    assert turns.exceeded
    assert turns.remaining == 0
    assert not turns.consume()


@pytest.mark.parametrize("found", [True, 2.0, math.nan, math.inf, "3", -1])
@pytest.mark.parametrize("argument", ["ceiling", "start", "maximum", "refund_limit"])
def test_a_number_that_is_none_is_a_config_error_that_names_budget_and_value(argument: str, found: Any) -> None:
    arguments: dict[str, Any] = {"ceiling": 3, argument: found}
    with pytest.raises(ConfigError) as caught:
        IterationBudget("turns", **arguments)
    assert caught.value.where == f"budget 'turns', {argument}"
    assert caught.value.found is found


@pytest.mark.parametrize("name", ["", "  ", None, 7])
def test_a_budget_needs_a_name(name: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        IterationBudget(name, 3)
    assert (caught.value.where, caught.value.found) == ("budget name", name)


def test_a_ceiling_above_the_maximum_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="5") as caught:
        IterationBudget("turns", 9, maximum=5)
    assert (caught.value.where, caught.value.found) == ("budget 'turns', ceiling", 9)
    with pytest.raises(ConfigError) as caught:
        IterationBudget("turns", None, maximum=5)
    assert (caught.value.where, caught.value.found) == ("budget 'turns', ceiling", None)


CLAIMS: list[Callable[[IterationBudget, Any], object]] = [
    lambda budget, amount: budget.consume(amount),
    lambda budget, amount: budget.spend(amount),
    lambda budget, amount: budget.hold(amount),
    lambda budget, amount: budget.try_hold(amount),
    lambda budget, amount: budget.increment(amount),
    lambda budget, amount: budget.refund(amount, reason="r"),
    lambda budget, amount: budget.extend(amount, by="b"),
]


@pytest.mark.parametrize("found", [0, -1, True, 1.0, math.nan, "1", None])
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("parent", [None, IterationBudget("tree", 9)])
def test_an_amount_below_one_or_no_int_is_a_value_error(
    claim: Callable[[IterationBudget, Any], object], found: Any, parent: IterationBudget | None
) -> None:
    budget = IterationBudget("turns", 3, parent=parent)
    with pytest.raises(AmountError) as caught:
        claim(budget, found)
    assert isinstance(caught.value, ValueError)
    assert (caught.value.budget, caught.value.least) == ("turns", 1)
    assert caught.value.found is found
    assert budget.snapshot() == IterationBudget("turns", 3).snapshot()


def test_spend_raises_and_says_what_was_asked_and_what_is_left() -> None:
    tokens = IterationBudget("tokens", 1_000)
    tokens.spend(400)
    with pytest.raises(BudgetExceeded) as caught:
        tokens.spend(601)
    error = caught.value
    assert (error.code, error.budget, error.asked, error.remaining, error.ceiling) == (
        "budget_exceeded",
        "tokens",
        601,
        600,
        1_000,
    )


class TestRefunds:
    def test_a_refund_gives_back_and_tells_how_much(self) -> None:
        turns = IterationBudget("turns", 3)
        turns.spend(3)
        assert turns.refund(reason="round_never_started") == 1
        assert turns.refund(2, reason="cheap_round") == 2
        assert turns.used == 0
        assert turns.refunds == {"round_never_started": 1, "cheap_round": 2}

    def test_a_refund_never_goes_below_zero_used(self) -> None:
        turns = IterationBudget("turns", 5)
        assert turns.refund(reason="r") == 0
        turns.spend(2)
        assert turns.refund(4, reason="r") == 2
        assert turns.used == 0
        assert turns.refunds == {"r": 2}

    def test_a_loop_that_always_asks_for_its_turn_back_still_ends(self) -> None:
        turns = IterationBudget("turns", 10)
        rounds = 0
        while turns.consume():
            rounds += 1
            turns.refund(reason="cheap_round")
        assert rounds == 20
        assert turns.claimed == 20

    def test_the_refund_limit_bounds_all_reasons_together(self) -> None:
        turns = IterationBudget("turns", 10, refund_limit=3)
        turns.spend(10)
        assert [turns.refund(2, reason="a"), turns.refund(2, reason="b"), turns.refund(reason="c")] == [2, 1, 0]
        assert turns.refunds == {"a": 2, "b": 1}

    def test_the_claimed_fact_never_goes_down(self) -> None:
        turns = IterationBudget("turns", 3)
        turns.spend(2)
        turns.refund(2, reason="r")
        assert (turns.used, turns.claimed) == (0, 2)
        turns.spend(1)
        assert (turns.used, turns.claimed) == (1, 3)

    def test_the_default_refund_limit_grows_with_the_ceiling(self) -> None:
        turns = IterationBudget("turns", 1)
        turns.increment(5)
        turns.extend(1, by="a person")
        assert turns.refund(5, reason="r") == 2

    @pytest.mark.parametrize("reason", ["", " ", None, 3])
    def test_a_refund_has_a_reason(self, reason: Any) -> None:
        with pytest.raises(ConfigError, match=r"'turns'.*reason") as caught:
            IterationBudget("turns", 3, start=1).refund(reason=reason)
        assert caught.value.found is reason

    def test_the_refunds_that_one_reads_are_a_copy(self) -> None:
        turns = IterationBudget("turns", 3, start=1)
        turns.refund(reason="r")
        turns.refunds["r"] = 99
        assert turns.refunds == {"r": 1}


class TestExtensions:
    def test_an_extension_raises_the_ceiling_and_is_recorded(self) -> None:
        turns = IterationBudget("turns", 2)
        turns.spend(2)
        assert turns.extend(3, by="a person") == 3
        assert turns.ceiling == 5
        assert turns.consume(3)
        assert [(e.amount, e.by) for e in turns.extensions] == [(3, "a person")]

    def test_an_extension_never_goes_above_the_maximum(self) -> None:
        turns = IterationBudget("turns", 2, maximum=4)
        assert [turns.extend(5, by="rule"), turns.extend(1, by="rule")] == [2, 0]
        assert turns.ceiling == 4
        assert [(e.amount, e.by) for e in turns.extensions] == [(2, "rule")]

    def test_an_extension_keeps_what_is_held(self) -> None:
        turns = IterationBudget("turns", 4)
        with turns.hold(3):
            turns.extend(2, by="rule")
            assert turns.remaining == 3
        assert turns.remaining == 6

    @pytest.mark.parametrize("by", ["", None])
    def test_an_extension_without_an_author_is_refused(self, by: Any) -> None:
        with pytest.raises(ConfigError, match="'turns'") as caught:
            IterationBudget("turns", 2).extend(1, by=by)
        assert caught.value.found is by


def test_a_unit_is_checked_and_may_be_named_by_its_word() -> None:
    assert IterationBudget("cost", 10**9, unit="usd").unit is Unit.USD  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"'cost', unit.*'euro'"):
        IterationBudget("cost", 1, unit="euro")  # pyright: ignore[reportArgumentType]


def test_a_budget_cannot_be_copied_or_pickled_into_a_second_allowance() -> None:
    turns = IterationBudget("turns", 3)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"snapshot\(\).*restore\(\)"):
            duplicate(turns)


def test_a_hold_cannot_be_copied_or_pickled_and_settled_twice() -> None:
    tokens = IterationBudget("tokens", 1_000)
    with tokens.hold(800) as hold:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="hold cannot be copied"):
                duplicate(hold)
        hold.settle(350)
    assert (tokens.used, tokens.held) == (350, 0)


def test_an_absurd_number_does_not_break_the_message() -> None:
    with pytest.raises(ConfigError, match="'turns', ceiling"):
        IterationBudget("turns", -(10**5_000))
    with pytest.raises(BudgetExceeded, match="'turns'") as caught:
        IterationBudget("turns", 3).spend(10**5_000)
    assert len(str(caught.value)) < 200


def test_what_is_fixed_reads_as_given() -> None:
    turns = IterationBudget("turns", 2, maximum=4, refund_limit=1)
    assert (turns.name, turns.maximum, turns.refund_limit, turns.unit) == ("turns", 4, 1, Unit.COUNT)


def test_the_repr_shows_where_it_stands() -> None:
    cost = IterationBudget("cost_usd", 2_000_000_000, start=500_000_000, unit=Unit.USD)
    assert repr(cost) == "<IterationBudget cost_usd: $0.50 of $2.00>"
    with cost.hold(10_000_000) as hold:
        assert repr(cost) == "<IterationBudget cost_usd: $0.50 of $2.00, $0.01 held>"
        assert repr(hold) == "<Hold of $0.01 on cost_usd: open>"
    assert repr(hold) == "<Hold of $0.01 on cost_usd: settled at $0.00>"


def test_what_is_held_is_not_available_to_others() -> None:
    tokens = IterationBudget("tokens", 1_000)
    hold = tokens.hold(700)
    assert (tokens.used, tokens.held, tokens.remaining) == (0, 700, 300)
    assert not tokens.consume(301)
    assert tokens.try_hold(301) is None
    assert tokens.consume(300)
    hold.release()


def test_settling_books_the_fact_and_frees_the_rest() -> None:
    tokens = IterationBudget("tokens", 1_000, start=100)
    with tokens.hold(500) as hold:
        assert hold.open
        assert hold.settled is None
        assert hold.settle(321)
    assert (tokens.used, tokens.held, tokens.remaining) == (421, 0, 579)
    assert (hold.amount, hold.settled, hold.overshoot, hold.open) == (500, 321, 0, False)


def test_a_fact_larger_than_the_hold_is_booked_and_the_overshoot_readable() -> None:
    tokens = IterationBudget("tokens", 1_000)
    hold = tokens.hold(900)
    hold.settle(1_200)
    assert hold.overshoot == 300
    assert (tokens.used, tokens.remaining, tokens.exceeded, tokens.ratio) == (1_200, 0, True, 1.2)


def test_leaving_the_block_unsettled_gives_all_back() -> None:
    tokens = IterationBudget("tokens", 10)
    with tokens.hold(10):
        pass
    assert tokens.remaining == 10


def test_a_block_that_raised_gives_all_back_and_the_error_goes_on() -> None:
    tokens = IterationBudget("tokens", 10)
    with pytest.raises(ZeroDivisionError), tokens.hold(10):
        _ = 1 / 0
    assert (tokens.remaining, tokens.held) == (10, 0)


def test_a_block_that_raised_after_settling_keeps_the_fact() -> None:
    tokens = IterationBudget("tokens", 10)
    with pytest.raises(ZeroDivisionError), tokens.hold(10) as hold:
        hold.settle(4)
        _ = 1 / 0
    assert tokens.used == 4


def test_the_first_of_settle_and_release_stands() -> None:
    tokens = IterationBudget("tokens", 10)
    settled, released = tokens.hold(5), tokens.hold(5)
    assert settled.settle(3)
    assert not settled.settle(5)
    assert not settled.release()
    assert released.release()
    assert not released.settle(5)
    assert not released.release()
    assert (tokens.used, tokens.held) == (3, 0)
    assert (settled.settled, released.settled) == (3, 0)


@pytest.mark.parametrize("found", [-1, True, 1.5, "3", None])
def test_settling_takes_zero_but_no_nonsense_and_the_hold_stays_open(found: Any) -> None:
    tokens = IterationBudget("tokens", 10)
    hold = tokens.hold(5)
    with pytest.raises(AmountError) as caught:
        hold.settle(found)
    assert (caught.value.budget, caught.value.least) == ("tokens", 0)
    assert caught.value.found is found
    assert hold.open
    assert hold.settle(0)
    assert tokens.used == 0


def test_a_refused_hold_raises_or_is_none() -> None:
    tokens = IterationBudget("tokens", 10)
    with pytest.raises(BudgetExceeded) as caught:
        tokens.hold(11)
    error = caught.value
    assert (error.budget, error.asked, error.remaining, error.ceiling) == ("tokens", 11, 10, 10)
    assert tokens.try_hold(11) is None
    assert tokens.snapshot() == IterationBudget("tokens", 10).snapshot()


def test_a_hold_made_by_hand_is_a_claim_like_any_other() -> None:
    tokens = IterationBudget("tokens", 10)
    with pytest.raises(BudgetExceeded):
        Hold(tokens, 500)
    Hold(tokens, 4).settle(4)
    assert (tokens.used, tokens.held, tokens.remaining) == (4, 0, 6)


def test_a_leaked_hold_is_a_warning_and_nothing_more() -> None:
    tokens = IterationBudget("tokens", 10)
    hold: Hold | None = tokens.hold(4)
    with pytest.warns(ResourceWarning, match="Hold of 4 on tokens: open"):
        del hold
        gc.collect()
    assert tokens.held == 4


def test_a_closed_hold_leaves_no_warning() -> None:
    tokens = IterationBudget("tokens", 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokens.hold(4).settle(2)
        tokens.hold(4).release()
        gc.collect()
    assert tokens.used == 2


def test_a_finaliser_that_releases_inside_a_critical_section_does_not_deadlock() -> None:
    tokens = IterationBudget("tokens", 10)

    def work() -> Generator[None]:
        with tokens.hold(4):
            yield

    abandoned = work()
    next(abandoned)
    with tokens._lock:  # pyright: ignore[reportPrivateUsage]
        abandoned.close()
    assert tokens.held == 0


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


def test_the_budget_that_is_short_is_the_nearest_one_without_room() -> None:
    tree = IterationBudget("tree", 5)
    child = IterationBudget("child", 9, parent=tree)
    assert child.consume(4)
    assert child.find_short() is None
    assert child.find_short(2) is tree
    assert child.find_short(6) is child
