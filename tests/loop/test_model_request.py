"""One request: what is set aside for it, what is booked, and when it is asked again."""

from collections.abc import Sequence
from typing import Any

import pytest

from flyball import Agent, ConfigError, Limits, tool
from flyball.budget.limits import Reserve
from flyball.budget.price import TokenPrice
from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.event import ModelRequested, Retried
from flyball.loop.effects import Ask, Wait
from flyball.progress import Notice, Order, Point, Progress
from flyball.request import Request, Usage, estimate_request_tokens
from flyball.result import Result
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, say

BUSY = fail(Retryable("busy"))
PRICE = TokenPrice(input=1.0, output=10.0)


@tool(poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SUM = call("add", a=1, b=2)


def script(*lines: Line, limits: Limits | None = None, price: TokenPrice | None = None, **options: Any) -> ScriptDriver:
    model = ScriptedModel(*lines, grace=say("Reported."), price=price)
    return ScriptDriver(Agent(model=model, tools=[add], limits=limits or Limits(), **options))


def waits(driver: ScriptDriver, run_id: str = "r") -> list[float]:
    """How long each wait of a run was, and that the run was honest."""
    return [wait.wait_s for wait in events(assert_honest(driver.run("Go.", run_id=run_id)), Retried)]


def events(result: Result, kind: type[Any]) -> list[Any]:
    return [event for event in result.events if isinstance(event, kind)]


class TestRetries:
    @pytest.mark.parametrize("failures", [1, 2, 5, 10])
    def test_a_failure_that_may_pass_is_tried_again_and_costs_no_turn(self, failures: int) -> None:
        result = assert_honest(script(*[BUSY] * failures, say("done")).run("Go."))
        assert (result.stop, result.text, result.flags) == ("completed", "done", ())
        assert (result.turns, result.requests) == (1, failures + 1)
        assert (result.budgets["retries"].used, result.budgets["turns"].used) == (failures, 1)

    @pytest.mark.parametrize("retries", [0, 1, 3])
    def test_when_no_retry_is_left_the_run_fails_with_the_models_error(self, retries: int) -> None:
        result = assert_honest(script(*[BUSY] * 20, limits=Limits(retries=retries)).run("Go."))
        assert (result.stop, result.flags, result.requests) == ("failed", ("max_retries_reached",), retries + 1)
        assert result.error == {"code": "model_unavailable", "kind": "Retryable", "message": "busy"}
        assert (result.turns, result.budgets["turns"].used) == (0, 0)

    def test_retries_are_counted_over_the_whole_run(self) -> None:
        result = assert_honest(script(BUSY, SUM, BUSY, SUM, BUSY, say("."), limits=Limits(retries=2)).run("Go."))
        assert (result.stop, result.turns, result.requests) == ("failed", 2, 5)

    @pytest.mark.parametrize("error", [ModelError("no key"), ValueError("odd"), OSError("gone")])
    def test_a_final_error_is_not_tried_again(self, error: Exception) -> None:
        result = assert_honest(script(SUM, fail(error), say("never")).run("Go."))
        assert (result.stop, result.requests, result.budgets["retries"].used) == ("failed", 2, 0)
        assert result.error is not None
        assert (result.error["kind"], result.error["message"]) == (type(error).__name__, str(error))
        assert len(result.tool_results) == 1

    def test_a_model_that_said_nothing_is_asked_again_with_its_notices(self) -> None:
        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return [Notice("Be quick.")] if point is Point.RUN_STARTED else ()

        for usage in (None, Usage(10, 5)):
            driver = script(say("").using(usage), SUM.using(usage), say("done"), hooks=[hook])
            asked = events(assert_honest(driver.run("Go.")), ModelRequested)
            requests = [effect.request for effect in driver.effects if isinstance(effect, Ask)]
            assert [request.notices for request in requests] == [("Be quick.",), ("Be quick.",), ()]
            estimates = [
                event.estimated_tokens >= estimate_request_tokens(one)
                for event, one in zip(asked, requests, strict=True)
            ]
            assert usage or all(estimates)

    def test_the_same_request_is_asked_again_with_its_notices(self) -> None:
        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return [Notice("Be quick.")] if point is Point.RUN_STARTED else ()

        driver = script(BUSY, SUM, say("done"), hooks=[hook])
        driver.run("Go.")
        first, second, third = [effect.request for effect in driver.effects if isinstance(effect, Ask)]
        assert list(first.messages) == list(second.messages)
        assert [first.notices, second.notices, third.notices] == [("Be quick.",), ("Be quick.",), ()]

    def test_the_attempts_are_numbered(self) -> None:
        result = script(BUSY, BUSY, SUM, BUSY, say(".")).run("Go.")
        assert [event.attempt for event in events(result, ModelRequested)] == [1, 2, 3, 1, 2]
        assert [(event.attempt, event.error) for event in events(result, Retried)] == [
            (1, "busy"),
            (2, "busy"),
            (1, "busy"),
        ]

    def test_grace_is_asked_once_even_if_it_might_pass(self) -> None:
        model = ScriptedModel.looping(SUM, grace=BUSY)
        result = assert_honest(ScriptDriver(Agent(model=model, tools=[add], limits=Limits(turns=1))).run("Go."))
        assert (result.requests, result.budgets["retries"].used, result.stop) == (2, 0, "budget")


class TestWaits:
    def test_each_is_up_to_twice_as_long_and_never_above_a_minute(self) -> None:
        limits = Limits(retries=12, seconds=10_000)
        times = waits(script(*[BUSY] * 12, say("."), limits=limits))
        usual = [min(60.0, 0.5 * 2**n) for n in range(12)]
        assert all(most / 2 <= wait <= most for wait, most in zip(times, usual, strict=True))

    def test_waits_are_the_same_for_the_same_run_and_others_for_another(self) -> None:
        def times(run_id: str) -> list[float]:
            return waits(script(*[BUSY] * 5, say(".")), run_id)

        assert times("one") == times("one")
        assert times("one") != times("two")

    def test_the_jitter_changes_from_wait_to_wait(self) -> None:
        times = waits(script(*[BUSY] * 6, say(".")))
        assert len({wait / 2**n for n, wait in enumerate(times)}) == 6

    @pytest.mark.parametrize("after", [1.0, 30.0, 120.0])
    def test_the_providers_word_is_honoured(self, after: float) -> None:
        assert waits(script(fail(Retryable("busy", after)), say("."))) == [after]

    @pytest.mark.parametrize("after", [0.0, 0.001])
    def test_a_shorter_word_of_the_provider_does_not_shorten_the_wait(self, after: float) -> None:
        assert waits(script(fail(Retryable("busy", after)), say(".")))[0] >= 0.25

    def test_the_wait_that_is_told_is_the_wait_that_is_made(self) -> None:
        driver = script(BUSY, BUSY, say("."))
        result = driver.run("Go.")
        untils = [effect.until for effect in driver.effects if isinstance(effect, Wait)]
        told = [event.wait_s for event in events(result, Retried)]
        assert untils == pytest.approx([told[0], told[0] + told[1]])
        assert result.seconds == pytest.approx(sum(told))

    @pytest.mark.parametrize("after", [85.0, 86.0, 1e6])
    def test_no_wait_goes_past_the_time_for_work(self, after: float) -> None:
        driver = script(fail(Retryable("busy", after)), say("never"), limits=Limits(seconds=100))
        result = assert_honest(driver.run("Go."))
        assert (result.stop, result.text, result.seconds) == ("deadline", "Reported.", 0.0)
        assert not any(isinstance(effect, Wait) for effect in driver.effects)
        assert result.budgets["turns"].used == 0
        assert result.error is not None
        assert result.error["message"] == "busy"

    def test_a_wait_that_ends_before_the_time_for_work_is_made(self) -> None:
        result = assert_honest(script(fail(Retryable("busy", 84.9)), say("ok"), limits=Limits(seconds=100)).run("Go."))
        assert (result.stop, result.seconds) == ("completed", 84.9)


class TestEmptyReply:
    @pytest.mark.parametrize("text", ["", " ", "\n\t"])
    def test_an_empty_reply_is_asked_for_once_more(self, text: str) -> None:
        result = assert_honest(script(say(text), say("done")).run("Go."))
        assert (result.stop, result.text, result.turns, result.requests) == ("completed", "done", 1, 2)
        assert result.budgets["retries"].used == 1
        [retried] = events(result, Retried)
        assert (retried.attempt, retried.wait_s, retried.turn) == (1, 0.0, 1)
        assert "empty" in retried.error
        assert [message.content for message in result.messages] == ["Go.", "done"], "the empty reply leaves no trace"

    def test_a_second_empty_reply_is_taken_as_it_is(self) -> None:
        result = assert_honest(script(say(""), say(""), say("never")).run("Go."))
        assert (result.stop, result.text, result.requests) == ("completed", "", 2)

    def test_without_a_retry_left_it_is_taken_at_once_and_flagged(self) -> None:
        result = assert_honest(script(say(""), say("never"), limits=Limits(retries=0)).run("Go."))
        assert (result.stop, result.requests, result.flags) == ("completed", 1, ("max_retries_reached",))

    def test_calls_without_text_are_no_empty_reply(self) -> None:
        assert script(SUM, say(".")).run("Go.").budgets["retries"].used == 0

    @pytest.mark.parametrize("finish", ["length", "content_filter"])
    def test_an_empty_reply_that_was_cut_off_is_not_asked_for_again(self, finish: str) -> None:
        assert assert_honest(script(say("").ending(finish), say("x")).run("Go.")).requests == 1

    def test_an_empty_reply_is_asked_for_again_in_every_turn_anew(self) -> None:
        result = assert_honest(script(say(""), SUM, say(""), say(".")).run("Go."))
        assert (result.turns, result.requests, result.budgets["retries"].used) == (2, 4, 2)

    def test_no_turn_and_no_time_is_spent_on_it(self) -> None:
        result = script(say(""), say(".")).run("Go.")
        assert (result.seconds, result.budgets["turns"].used) == (0.0, 1)


class TestContext:
    def test_a_provider_that_finds_it_too_long_leads_to_grace(self) -> None:
        result = assert_honest(script(SUM, fail(ContextTooLong("8,192 at most")), say("never")).run("Go."))
        assert (result.stop, result.flags, result.text) == ("budget", ("max_context_tokens_reached",), "Reported.")
        assert (result.turns, result.requests, result.budgets["retries"].used) == (1, 3, 0)

    def test_our_own_limit_refuses_before_the_model_is_asked(self) -> None:
        driver = script(say("never"), limits=Limits(context_tokens=1_000), instructions="i " * 3_000)
        result = assert_honest(driver.run("Go."))
        assert (result.stop, result.flags, result.requests) == ("budget", ("max_context_tokens_reached",), 0)

    def test_a_models_own_counter_is_believed(self) -> None:
        class Counting(ScriptedModel):
            def count(self, request: Request) -> int:
                return 10 * len(request.messages)

        agent = Agent(
            model=Counting(SUM, SUM, say("never"), grace=say("R.")), tools=[add], limits=Limits(context_tokens=40)
        )
        result = assert_honest(ScriptDriver(agent).run("Go."))
        assert (result.stop, result.turns) == ("budget", 2)


class TestTokens:
    def test_what_was_used_is_booked(self) -> None:
        lines = [SUM.using(Usage(100, 20)), say(".").using(Usage(150, 30))]
        result = assert_honest(script(*lines, limits=Limits(tokens=100_000)).run("Go."))
        assert (result.budgets["tokens"].used, result.usage) == (300, Usage(250, 50))

    def test_tokens_are_counted_without_a_limit(self) -> None:
        result = assert_honest(script(say(".").using(Usage(100, 20))).run("Go."))
        assert result.budgets["tokens"].used == 120

    def test_a_provider_that_tells_nothing_is_booked_the_whole_hold(self) -> None:
        driver = script(SUM.using(None), say("."), limits=Limits(tokens=100_000), max_output_tokens=1_000)
        result = assert_honest(driver.run("Go."))
        [first, _] = events(result, ModelRequested)
        assert result.budgets["tokens"].used == first.estimated_tokens + 1_000 + 15
        assert result.usage == Usage(10, 5)

    def test_one_request_without_usage_and_without_a_bound_takes_all_that_work_may_use(self) -> None:
        result = assert_honest(script(SUM.using(None), say("never"), limits=Limits(tokens=10_000)).run("Go."))
        assert (result.stop, result.text, result.flags) == ("budget", "Reported.", ("max_tokens_reached",))
        assert result.budgets["tokens"].used == 8_000 + 15

    def test_a_reply_may_be_as_long_as_what_is_left(self) -> None:
        driver = script(SUM.using(Usage(500, 500)), say("."), limits=Limits(tokens=10_000))
        result = driver.run("Go.")
        first, second = [effect.request for effect in driver.effects if isinstance(effect, Ask)]
        told = [event.estimated_tokens for event in events(result, ModelRequested)]
        assert first.max_output_tokens == 8_000 - told[0]
        assert second.max_output_tokens == 7_000 - told[1]

    def test_a_failed_request_has_used_nothing(self) -> None:
        result = assert_honest(script(BUSY, BUSY, say("."), limits=Limits(tokens=5_000)).run("Go."))
        assert result.budgets["tokens"].used == 15

    def test_a_fact_above_the_hold_is_booked_and_ends_the_work(self) -> None:
        driver = script(SUM.using(Usage(9_000, 9_000)), say("never"), limits=Limits(tokens=10_000))
        result = assert_honest(driver.run("Go."))
        assert (result.stop, result.budgets["tokens"].used) == ("budget", 18_000)

    def test_what_is_set_aside_is_never_less_than_the_estimate_of_the_request(self) -> None:
        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return [Notice("n" * 4_000)] if point is Point.TURN_STARTED else ()

        lines = [say("word " * 50, SUM).using(None)] * 3
        driver = script(*lines, say("."), hooks=[hook], instructions="i" * 300, max_output_tokens=10)
        result = assert_honest(driver.run("Go."))
        sizes = [estimate_request_tokens(effect.request) for effect in driver.effects if isinstance(effect, Ask)]
        told = [event.estimated_tokens for event in events(result, ModelRequested)]
        assert [held >= size for held, size in zip(told, sizes, strict=True)] == [True] * 4


class TestMoney:
    def test_a_model_without_a_price_refuses_a_money_limit(self) -> None:
        with pytest.raises(ConfigError, match=r"price of scripted"):
            Agent(model=ScriptedModel(say(".")), limits=Limits(usd=1))

    def test_what_it_cost_is_booked_in_billionths(self) -> None:
        driver = script(say(".").using(Usage(1_000, 100)), limits=Limits(usd=1), price=PRICE)
        result = assert_honest(driver.run("Go."))
        assert result.budgets["usd"].used == PRICE.cost(Usage(1_000, 100)) == 2_000_000
        assert result.cost == {"scripted": 2_000_000}

    def test_a_price_without_a_limit_is_counted_too(self) -> None:
        result = assert_honest(script(say(".").using(Usage(1_000, 100)), price=PRICE).run("Go."))
        assert result.cost == {"scripted": 2_000_000}

    def test_without_a_price_there_is_no_cost(self) -> None:
        assert script(say(".")).run("Go.").cost == {}

    def test_a_request_that_cannot_be_paid_is_not_made(self) -> None:
        result = assert_honest(script(say("never"), limits=Limits(usd=0.00001), price=PRICE).run("Go."))
        assert (result.stop, result.flags, result.requests) == ("budget", ("max_cost_usd_reached",), 0)
        assert (result.budgets["turns"].used, result.budgets["usd"].used) == (0, 0)

    def test_a_reply_may_be_as_long_as_the_money_lasts(self) -> None:
        driver = script(say("."), limits=Limits(usd=0.01, reserve=Reserve(usd=0.001)), price=PRICE)
        result = assert_honest(driver.run("Go."))
        [asked] = [effect.request for effect in driver.effects if isinstance(effect, Ask)]
        [told] = events(result, ModelRequested)
        assert asked.max_output_tokens is not None
        cost = PRICE.cost(Usage(told.estimated_tokens, asked.max_output_tokens))
        assert cost <= 9_000_000 < PRICE.max_cost(told.estimated_tokens, asked.max_output_tokens + 1)

    def test_nobody_telling_the_usage_costs_the_whole_hold(self) -> None:
        driver = script(say(".").using(None), limits=Limits(usd=1), price=PRICE, max_output_tokens=100)
        result = assert_honest(driver.run("Go."))
        [told] = events(result, ModelRequested)
        assert result.cost == {"scripted": PRICE.cost(Usage(told.estimated_tokens, 100))}
        assert result.budgets["usd"].used == result.cost["scripted"]

    def test_work_ends_when_the_money_is_spent_and_the_report_is_paid_from_the_reserve(self) -> None:
        line = SUM.using(Usage(1_000, 1_000))
        driver = script(*[line] * 50, limits=Limits(usd=0.1), price=PRICE)
        result = assert_honest(driver.run("Go."))
        assert (result.stop, result.flags, result.text) == ("budget", ("max_cost_usd_reached",), "Reported.")
        assert result.budgets["usd"].used <= 100_000_000
