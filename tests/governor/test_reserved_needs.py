"""Needs of a gateway's requests: a model and a report of their own, and turns that count when they are answered."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from flyball import Limits, TokenPrice
from flyball.event import TurnEnded, TurnStarted
from flyball.governor.ending import RunEnding
from flyball.governor.govern_options import GovernOptions
from flyball.governor.governed_run import GovernedRun
from flyball.governor.model_card import GovernedModel
from flyball.governor.reservation import Need
from flyball.request import Usage
from flyball.testing import ManualClock

CHEAP = GovernedModel("cheap", TokenPrice(input=1, output=1))
DEAR = GovernedModel("dear", TokenPrice(input=10, output=10), TokenPrice(input=20, output=20))


def open_run(clock: ManualClock | None = None, **limits: Any) -> GovernedRun:
    options = GovernOptions(Limits(**limits), unpriced="tokens_only", clock=clock or ManualClock())
    run = GovernedRun(options, RunEnding(), reserves_each_report=True)
    run.start(None, {})
    return run


def need(tokens: int, output: int = 100, **more: Any) -> Need:
    return replace(Need(tokens, output, turns=1, report_tokens=50, is_pending=True), **more)


def run_async(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_turn_reserves_the_report_that_follows_it() -> None:
    run = open_run(turns=5, tokens=1_000)

    async def work() -> None:
        turn = await run.areserve_turn("a", need(200))
        assert turn is not None
        tokens = run.envelope.budgets["tokens"]
        assert tokens.held == (200 + 100) + (200 + 100 + 50)
        turn.confirm()
        turn.settle(Usage(200, 20))
        turn.end()
        assert (tokens.used, tokens.held) == (220, 200 + 20 + 50)
        assert await run.areserve_turn("b", need(400)) is None
        report = await run.areserve_grace("a", need(220))
        assert report is not None
        assert (report.grace, report.max_output_tokens) == (True, 100)
        assert await run.areserve_grace("b", need(10)) is None  # it had no turn
        report.settle(Usage(220, 60))
        report.end()
        assert (tokens.used, tokens.held) == (500, 0)

    run_async(work)
    run.close(None)


def test_a_pending_turn_that_is_withdrawn_leaves_no_trace_in_any_budget() -> None:
    run = open_run(turns=1, tokens=10_000)

    async def work() -> None:
        for _ in range(5):  # more often than refunds are allowed
            turn = await run.areserve_turn("a", need(200))
            assert turn is not None
            assert run.envelope.budgets["turns"].held == 1
            turn.withdraw("status 429")
            turn.end()
        budgets = run.envelope.budgets
        assert [(budgets[name].used, budgets[name].held) for name in ("turns", "tokens", "usd")] == [(0, 0)] * 3
        turn = await run.areserve_turn("a", need(200))
        assert turn is not None
        turn.confirm()
        turn.withdraw("too late")
        assert budgets["turns"].used == 1

    run_async(work)
    run.close(None)
    assert run.result is not None
    assert run.result.turns == 1
    kinds = [type(event) for event in run.result.events]
    assert kinds.count(TurnStarted) == kinds.count(TurnEnded) == 6


def test_a_turn_that_may_be_given_back_lets_the_next_one_wait() -> None:
    run = open_run(turns=1)

    async def work() -> None:
        first = await run.areserve_turn("a", need(10))
        assert first is not None
        second = asyncio.ensure_future(run.areserve_turn("b", need(10)))
        await asyncio.sleep(0)
        assert not second.done()
        first.withdraw("status 500")
        first.end()
        assert await second is not None

    run_async(work)
    run.close(None)


def test_each_turn_is_paid_at_the_price_of_its_model() -> None:
    run = open_run(turns=5, usd=1)

    async def work() -> None:
        for model in (CHEAP, DEAR):
            turn = await run.areserve_turn(model.name, need(1_000, model=model))
            assert turn is not None
            turn.confirm()
            turn.settle(Usage(1_000, 100))
            turn.end()

    run_async(work)
    run.close(None)
    assert run.result is not None
    assert run.result.cost == {"cheap": 1_100_000, "dear": 11_000_000}


@pytest.mark.parametrize("seen", [(100, 20), (100, 90_000)])
def test_a_request_without_usage_counts_what_was_seen_and_at_most_its_reservation(seen: tuple[int, int]) -> None:
    run = open_run(turns=5, tokens=10_000)

    async def work() -> None:
        turn = await run.areserve_turn("a", need(200))
        assert turn is not None
        turn.settle_observed(*seen)
        turn.end()

    run_async(work)
    assert run.envelope.budgets["tokens"].used == min(sum(seen), 300)
    run.close(None)


def test_conversations_that_may_be_over_give_their_reserve_to_others() -> None:
    clock = ManualClock()
    run = open_run(clock, turns=50, tokens=2_500)

    async def take_turn(name: str, is_over: bool) -> bool:
        turn = await run.areserve_turn(name, need(400))
        if turn is None:
            return False
        turn.settle(Usage(400, 10))
        turn.may_be_over = is_over
        turn.end()
        return True

    async def work() -> None:
        assert await take_turn("a", False)
        assert await take_turn("b", True)
        assert await take_turn("c", False)  # from what was reserved for b
        assert run.envelope.budgets["tokens"].held == 2 * (400 + 10 + 50)

    run_async(work)
    run.close(None)


def test_a_conversation_without_turns_for_long_may_be_over() -> None:
    clock = ManualClock()
    run = open_run(clock, turns=50, tokens=2_000, seconds=3_600)

    async def take_turn(name: str) -> bool:
        turn = await run.areserve_turn(name, need(400))
        if turn is not None:
            turn.settle(Usage(400, 10))
            turn.end()
        return turn is not None

    async def work() -> None:
        assert await take_turn("a")
        clock.move(301)
        assert await take_turn("b")

    run_async(work)
    run.close(None)


def test_requests_beside_the_turns_count_as_money_and_no_turn() -> None:
    run = open_run(turns=1, usd=1)

    async def work() -> None:
        side = await run.areserve_turn("a", need(1_000, turns=0, model=CHEAP, report_tokens=None))
        assert side is not None
        side.settle(Usage(1_000, 0))
        side.end()

    run_async(work)
    run.close(None)
    assert run.result is not None
    assert (run.result.turns, run.result.requests, run.result.cost) == (0, 1, {"cheap": 1_000_000})
