import gc
import warnings
from collections.abc import Generator
from typing import Any

import pytest

from flyball import AmountError, BudgetExceeded, Hold, IterationBudget


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
