"""What one turn of a governed loop may use: tokens, money, calls."""

import contextlib
from threading import Thread
from typing import Any

import pytest

from flyball import ConfigError, Limits, Reserve, TokenPrice, Usage, govern
from flyball.event import Refunded
from flyball.governor.turn import Turn
from flyball.testing import ManualClock

USED = {"input_tokens": 40, "output_tokens": 10}


class TestTokens:
    def test_the_reply_may_have_what_is_left_for_work(self) -> None:
        seen: list[int | None] = []
        with govern(Limits(turns=3, tokens=1_000)) as run:
            for turn in run:
                seen.append(turn.max_output_tokens)
                turn.settle({"input_tokens": 100, "output_tokens": 100})
        # 800 for work; then room for the largest input there was; the reserve of 200 is for the last one
        assert seen == [800, 500, 300, 300]

    def test_without_a_limit_it_is_none_or_the_cap(self) -> None:
        with govern(Limits(turns=1)) as run:
            assert [turn.max_output_tokens for turn in run] == [None, 4_000]  # a report has its own cap
        with govern(Limits(turns=1), max_output_tokens=50) as run:
            assert [turn.max_output_tokens for turn in run] == [50, 50]

    def test_what_it_says_is_set_aside_and_the_same_when_read_again(self) -> None:
        with govern(Limits(tokens=1_000)) as run:
            for turn in run:
                assert (turn.max_output_tokens, turn.max_output_tokens) == (800, 800)
                assert turn.envelope.budgets["tokens"].available == 0
                turn.settle(USED)
                assert turn.envelope.budgets["tokens"].available == 750
                run.complete()
        assert run.result().budgets["tokens"].held == 0

    def test_expected_input_is_set_aside_first(self) -> None:
        with govern(Limits(tokens=1_000)) as run:
            for turn in run:
                assert turn.expect(300)
                assert turn.max_output_tokens == 500
                assert turn.expect(1) is False
                run.complete()
        assert run.result().flags == ("max_tokens_reached",)

    def test_where_input_is_expected_nothing_is_guessed(self) -> None:
        with govern(Limits(turns=9, tokens=10_000)) as run:
            first = next(run)
            first.expect(4_500)
            first.settle({"input_tokens": 4_500, "output_tokens": 100})
            second = next(run)  # 3,400 are left for work, less than the largest input so far
            assert second.expect(200)
            assert (second.grace, second.max_output_tokens) == (False, 3_200)
            run.complete()
        assert run.result().flags == ()

    def test_where_it_is_not_room_is_left_for_the_largest_so_far(self) -> None:
        with govern(Limits(turns=9, tokens=10_000)) as run:
            next(run).settle({"input_tokens": 500, "output_tokens": 0})
            next(run).settle({"input_tokens": 100, "output_tokens": 0})
            assert next(run).max_output_tokens == 8_000 - 600 - 500
            run.complete()
        assert run.result().completed

    def test_whoever_goes_on_after_a_refused_input_has_no_room_for_a_reply(self) -> None:
        with govern(Limits(tokens=1_000)) as run:
            turn = next(run)
            assert not turn.expect(900)
            assert turn.max_output_tokens == 0
            run.complete()
        refusals = [event for event in run.result().events if event.kind == "budget_refused"]
        assert [event.to_dict()["budget"] for event in refusals] == ["tokens"]

    def test_input_above_the_context_is_refused(self) -> None:
        with govern(Limits(context_tokens=100)) as run:
            turn = next(run)
            assert [turn.expect(101), turn.max_output_tokens] == [False, 0]
            run.complete()
        assert run.result().flags == ("max_context_tokens_reached",)

    def test_a_usage_that_cannot_be_leaves_the_hold_to_be_booked(self) -> None:
        run = govern(Limits(tokens=1_000))
        with pytest.raises(ConfigError, match=r"output_tokens.*-5"), run:
            turn = next(run)
            assert turn.max_output_tokens == 800
            turn.settle({"input_tokens": 3, "output_tokens": -5})
        assert run.result().budgets["tokens"].used == 800

    def test_workers_that_expect_while_the_loop_goes_on_leave_no_hold_behind(self) -> None:
        for _ in range(20):
            workers: list[Thread] = []
            with govern(Limits(turns=3, tokens=100_000)) as run:
                for turn in run:
                    workers.append(Thread(target=expect_until_it_is_over, args=(turn,)))
                    workers[-1].start()
            for worker in workers:
                worker.join(60)
            assert run.result().budgets["tokens"].held == 0

    def test_a_turn_that_is_not_settled_books_what_it_set_aside(self) -> None:
        with govern(Limits(turns=5, tokens=1_000), max_output_tokens=100) as run:
            for turn in run:
                assert turn.max_output_tokens is not None
        result = run.result()
        # eight times 100 are the 800 for work, so five turns fit; the report has the reserve
        assert result.turns == 5
        assert result.budgets["tokens"].used == 600

    def test_when_tokens_are_used_up_no_turn_is_claimed_and_the_report_comes(self) -> None:
        graces: list[bool] = []
        with govern(Limits(turns=9, tokens=1_000)) as run:
            for turn in run:
                graces.append(turn.grace)
                turn.settle({"input_tokens": 50, "output_tokens": 0 if turn.grace else 700})
        result = run.result()
        assert graces == [False, True]
        assert (result.stop, result.flags, result.turns) == ("budget", ("max_tokens_reached",), 1)
        assert (result.budgets["turns"].refunds, result.budgets["turns"].claimed) == ({}, 1)

    def test_no_report_is_asked_for_when_the_reserve_cannot_hold_it(self) -> None:
        with govern(Limits(turns=9, tokens=1_000)) as run:
            graces = [(turn.grace, turn.settle({"input_tokens": 300, "output_tokens": 400})) for turn in run]
        assert graces == [(False, None)]
        with govern(Limits(turns=1, tokens=10, reserve=Reserve(tokens=0))) as run:
            for turn in run:
                assert not turn.grace
                turn.settle({"input_tokens": 10, "output_tokens": 0})
        assert run.result().stop == "budget"

    def test_a_fact_that_passes_the_limit_is_booked_and_readable(self) -> None:
        with govern(Limits(turns=9, tokens=100)) as run:
            for turn in run:
                turn.settle({"input_tokens": 400, "output_tokens": 100})
        tokens = run.result().budgets["tokens"]
        assert (tokens.used, tokens.remaining, tokens.exceeded) == (500, 0, True)

    def test_two_requests_in_one_turn_are_both_booked(self) -> None:
        with govern(Limits(tokens=1_000)) as run:
            for turn in run:
                turn.settle(USED)
                turn.settle(USED)
                run.complete()
        assert (run.result().usage.total, run.result().requests, run.result().turns) == (100, 2, 1)

    def test_each_request_of_a_turn_is_set_aside_anew(self) -> None:
        with govern(Limits(tokens=1_000)) as run:
            for turn in run:
                assert turn.max_output_tokens == 800
                turn.settle({"input_tokens": 100, "output_tokens": 100})
                assert turn.max_output_tokens == 500
                turn.settle({"input_tokens": 100, "output_tokens": 500})
                run.complete()
        assert run.result().budgets["tokens"].used == 800

    def test_a_turn_that_is_over_takes_nothing_more(self) -> None:
        with govern(Limits(turns=2, tokens=1_000)) as run:
            first = next(run)
            first.settle(USED)
            next(run).settle(USED)
            for late in (lambda: first.settle(USED), lambda: first.expect(1), lambda: first.max_output_tokens):
                with pytest.raises(ConfigError, match="turn 1"):
                    late()
            assert (first.claim_tool("x"), first.refund("late")) == (False, 0)
        assert run.result().budgets["tokens"].used == 100

    @pytest.mark.parametrize("found", [{}, "many"])
    def test_a_usage_that_cannot_be_read_is_an_error_and_the_hold_is_booked(self, found: Any) -> None:
        run = govern(Limits(tokens=1_000))
        with pytest.raises(ConfigError, match="usage"), run:
            for turn in run:
                assert turn.max_output_tokens == 800
                turn.settle(found)
        assert (run.result().stop, run.result().budgets["tokens"].used) == ("failed", 800)


def expect_until_it_is_over(turn: Turn) -> None:
    with contextlib.suppress(ConfigError):
        while turn.expect(1):
            pass


class TestMoney:
    PRICE = TokenPrice(input=1_000, output=10_000)  # a tenth of a cent, and a cent, for each token

    def test_a_money_limit_needs_a_price(self) -> None:
        with pytest.raises(ConfigError, match=r"\$2\.00.*without a price"):
            govern(Limits(usd=2)).__enter__()

    def test_money_bounds_the_reply(self) -> None:
        seen: list[int | None] = []
        with govern(Limits(turns=3, usd=2), price=self.PRICE) as run:
            for turn in run:
                seen.append(turn.max_output_tokens)
                turn.settle({"input_tokens": 100, "output_tokens": 40})
        # $1.80 for work buys 180 tokens; each turn costs 50 cents, and 10 are kept for the input; $0.20 are the reserve
        assert seen == [180, 120, 70, 40]
        result = run.result()
        assert result.budgets["usd"].used == sum(result.cost.values()) == 2_000_000_000
        assert result.stop == "budget"

    def test_the_expected_input_is_paid_first(self) -> None:
        with govern(Limits(usd=2), price=self.PRICE) as run:
            for turn in run:
                assert turn.expect(800)
                assert turn.max_output_tokens == 100
                assert turn.expect(1) is False
                run.complete()
        assert run.result().flags == ("max_cost_usd_reached",)

    def test_when_money_is_used_up_it_stops(self) -> None:
        with govern(Limits(usd=2, turns=9), price=self.PRICE) as run:
            for turn in run:
                turn.settle({"input_tokens": 100, "output_tokens": 0 if turn.grace else 165})
        result = run.result()
        assert (result.turns, result.stop, result.flags) == (1, "budget", ("max_cost_usd_reached",))

    def test_a_cache_that_is_dearer_is_held_for(self) -> None:
        price = TokenPrice(input=1_000, output=1_000, cached=2_000)
        with govern(Limits(usd=2, reserve=Reserve(usd=0)), price=price) as run:
            turn = next(run)
            assert turn.expect(600)
            assert turn.max_output_tokens == 800
            turn.settle(Usage(600, 800, cached=600))
            run.complete()
        assert run.result().budgets["usd"].used == 2_000_000_000

    def test_cached_input_is_settled_at_its_own_price(self) -> None:
        price = TokenPrice(input=1_000, output=1_000, cached=100)
        with govern(Limits(usd=2), price=price, model="gpt") as run:
            next(run).settle(Usage(100, 0, cached=100))
            run.complete()
        assert run.result().cost == {"gpt": 10_000_000}

    def test_where_output_is_free_money_does_not_bound_it(self) -> None:
        with govern(Limits(usd=2), price=TokenPrice(input=1, output=0)) as run:
            assert next(run).max_output_tokens is None
            run.complete()
        assert run.result().completed

    def test_a_price_without_a_limit_still_counts(self) -> None:
        with govern(Limits(turns=1), price=self.PRICE) as run:
            for turn in run:
                turn.settle(USED)
        assert sum(run.result().cost.values()) == 2 * (40 * 10**6 + 10 * 10**7)


class TestTools:
    def test_calls_are_claimed_by_name(self) -> None:
        with govern(Limits(tool_calls=3, calls={"search": 1})) as run:
            for turn in run:
                claims = [turn.claim_tool(name) for name in ("search", "search", "read", "read", "read")]
                assert claims == [True, False, True, True, False]
                run.complete()
        assert run.result().flags == ("max_calls_of_search_reached", "max_tool_calls_reached")
        assert run.result().completed

    def test_the_report_has_no_tools(self) -> None:
        with govern(Limits(turns=1)) as run:
            assert [turn.claim_tool("search") for turn in run] == [True, False]
        assert run.result().flags == ("max_agent_iterations_reached",)

    def test_there_is_none_after_the_time_for_work(self) -> None:
        clock = ManualClock()
        with govern(Limits(seconds=100), clock=clock) as run:
            for turn in run:
                clock.move(86)
                assert not turn.claim_tool("search")
                run.complete()
        assert run.result().flags == ("max_seconds_reached",)

    def test_a_turn_can_be_given_back_but_not_the_report(self) -> None:
        given: list[int] = []
        with govern(Limits(turns=2)) as run:
            for turn in run:
                given.append(turn.refund("cheap_round") if turn.grace or turn.number <= 2 else 0)
        result = run.result()
        assert given == [1, 1, 0, 0, 0]
        assert (result.turns, result.budgets["turns"].used, result.requests) == (4, 2, 5)
        assert [event.amount for event in result.events if isinstance(event, Refunded)] == [1, 1]

    def test_a_tool_gets_a_token_with_its_own_seconds(self) -> None:
        limits = Limits(seconds=100, tool_seconds={"search": 7})
        with govern(limits, clock=ManualClock()) as run:
            turn = next(run)
            seconds = [
                turn.token("search").remaining_s(),
                turn.token("read", 30).remaining_s(),
                turn.token().remaining_s(),
            ]
            run.complete()
        assert seconds == [7.0, 30.0, 85.0]

    def test_a_turn_can_be_given_back_once(self) -> None:
        with govern(Limits(turns=2)) as run:
            next(run).refund("cheap_round")
            turn = next(run)
            assert [turn.refund("cheap_round"), turn.refund("cheap_round")] == [1, 0]
        assert (run.result().turns, run.result().budgets["turns"].used) == (2, 0)

    def test_notices_have_their_place(self) -> None:
        with govern(Limits(turns=1)) as run:
            assert [turn.messages_to_add for turn in run] == [(), ()]
