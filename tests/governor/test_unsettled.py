"""Turns without a reported usage: they count at their reservation, so that a limit holds."""

from types import SimpleNamespace
from typing import Any

import pytest

from flyball import ConfigError, Limits, Result, TokenPrice, govern

NO_TOKENS = {"prompt_tokens": 0, "completion_tokens": 0}


def run_loop(limits: Limits, *usages: Any, **options: Any) -> Result:
    with govern(limits, **options) as run:
        for turn in run:
            for usage in usages:
                turn.settle(usage)
    return run.result()


@pytest.mark.parametrize("usages", [(), (None,), (NO_TOKENS,), (SimpleNamespace(input_tokens=0, output_tokens=0),)])
def test_a_loop_that_reports_no_usage_ends_by_its_token_limit(usages: tuple[Any, ...]) -> None:
    result = run_loop(Limits(turns=50, tokens=100), *usages)
    assert (result.stop, result.turns, result.flags) == ("budget", 1, ("max_tokens_reached",))
    assert (result.budgets["tokens"].used, result.budgets["tokens"].held) == (100, 0)
    assert (result.requests, result.estimated_requests, result.usage.total) == (2, 2, 0)


def test_a_loop_that_reports_no_usage_ends_by_its_money_limit() -> None:
    result = run_loop(Limits(turns=50, usd=0.5), price=TokenPrice(input=3, output=15))
    assert (result.stop, result.turns, result.flags) == ("budget", 1, ("max_cost_usd_reached",))
    assert sum(result.cost.values()) == result.budgets["usd"].used > 490_000_000


def test_an_unreported_turn_counts_its_longest_reply_and_the_likely_input() -> None:
    with govern(Limits(turns=9, tokens=10_000), max_output_tokens=100) as run:
        next(run).settle({"input_tokens": 700, "output_tokens": 20})
        next(run)
        next(run)
        run.complete()
    assert run.result().budgets["tokens"].used == 720 + 800 + 800
    assert run.result().estimated_requests == 2


def test_an_unreported_turn_counts_the_input_that_it_expected() -> None:
    with govern(Limits(turns=9, tokens=10_000), max_output_tokens=100) as run:
        assert next(run).expect(300)
        run.complete()
    assert run.result().budgets["tokens"].used == 400


def test_an_unreported_turn_without_a_token_or_money_limit_counts_only_as_a_request() -> None:
    result = run_loop(Limits(turns=3))
    assert (result.turns, result.requests, result.estimated_requests, result.usage.total) == (3, 4, 4, 0)


def test_one_unreported_request_among_others_counts_its_own_reservation() -> None:
    with govern(Limits(tokens=10_000), max_output_tokens=100) as run:
        turn = next(run)
        turn.settle({"input_tokens": 40, "output_tokens": 10})
        turn.settle(None)
        run.complete()
    result = run.result()
    assert (result.budgets["tokens"].used, result.requests, result.estimated_requests) == (190, 2, 1)


def test_refused_unsettled_turns_end_the_run_as_failed_with_what_to_do() -> None:
    result = run_loop(Limits(turns=50, tokens=1_000), unsettled="refuse")
    assert (result.stop, result.turns, result.budgets["tokens"].used) == ("failed", 1, 800)
    assert "turn.settle" in (result.error or {})["message"]


def test_ignored_unsettled_turns_count_nothing_and_release_their_reservation() -> None:
    with govern(Limits(turns=5, tokens=1_000), unsettled="ignore") as run:
        for turn in run:
            assert turn.max_output_tokens
    result = run.result()
    assert (result.turns, result.budgets["tokens"].used, result.budgets["tokens"].held) == (5, 0, 0)
    assert result.estimated_requests == 6


def test_a_turn_refunded_because_it_never_started_counts_nothing() -> None:
    with govern(Limits(turns=5, tokens=1_000)) as run:
        turn = next(run)
        assert turn.max_output_tokens == 800
        turn.refund("round_never_started")
        run.complete()
    result = run.result()
    assert (result.turns, result.requests, result.budgets["tokens"].used, result.estimated_requests) == (0, 0, 0, 0)


def test_an_unknown_handling_of_unsettled_turns_is_an_error() -> None:
    with pytest.raises(ConfigError, match="govern, unsettled"):
        govern(unsettled="believe")  # pyright: ignore[reportArgumentType]
