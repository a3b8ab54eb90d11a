"""What a request may use is known before it is made: from what the last one took, and from the bytes that are new."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from flyball import Agent, Limits, Result, TokenPrice, Usage, tool
from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.event import ModelReplied, ModelRequested
from flyball.loop.plan import ModelCard
from flyball.progress import Notice, Order, Point, Progress, UseModel
from flyball.request import MESSAGE_OVERHEAD_TOKENS, Finish, estimate_request_tokens, estimate_tokens
from flyball.steadiness import Reflection
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, say

PRICE = TokenPrice(input=1, output=10)


@tool(poll=True)
def look(n: int) -> str:
    """Look."""
    return "seen" * n


def played(model: ScriptedModel, **options: Any) -> tuple[Result, ScriptDriver]:
    driver = ScriptDriver(Agent(model=model, tools=[look], **options))
    return assert_honest(driver.run("Go.")), driver


def estimates(result: Result) -> list[int]:
    return [event.estimated_tokens for event in result.events if isinstance(event, ModelRequested)]


def marks(result: Result) -> list[bool]:
    return [event.estimated for event in result.events if isinstance(event, ModelReplied)]


def result_tokens(n: int) -> int:
    return estimate_tokens("seen" * n) + MESSAGE_OVERHEAD_TOKENS


class TestFromTheSecondRequestOn:
    def test_an_estimate_is_the_last_input_and_output_and_what_is_new(self) -> None:
        lines = [call("look", n=30).using(Usage(500, 70)), call("look", n=5).using(Usage(900, 9)), say(".")]
        first, second, third = estimates(played(ScriptedModel(*lines))[0])
        assert first < 500
        assert second == 500 + 70 + MESSAGE_OVERHEAD_TOKENS + result_tokens(30)
        assert third == 900 + 9 + MESSAGE_OVERHEAD_TOKENS + result_tokens(5)

    def test_text_and_several_calls_are_what_the_output_was(self) -> None:
        line = say("Let me see. " * 50, call("look", n=1), call("look", n=2)).using(Usage(500, 70))
        _, second = estimates(played(ScriptedModel(line, say(".")))[0])
        assert second == 500 + 70 + 3 * MESSAGE_OVERHEAD_TOKENS + result_tokens(1) + result_tokens(2)

    @pytest.mark.parametrize("usage", [None, Usage(), Usage(0, 70)])
    def test_without_usage_all_of_it_is_estimated_by_its_bytes(self, usage: Usage | None) -> None:
        model = ScriptedModel(call("look", n=30).using(usage), say("."))
        told, second = estimates(played(model)[0]), model.requests[1]
        assert told[1] >= estimate_request_tokens(second)

    def test_where_the_output_is_not_told_that_is_estimated(self) -> None:
        _, second = estimates(played(ScriptedModel(call("look", n=30).using(Usage(500)), say(".")))[0])
        assert second == 500 + MESSAGE_OVERHEAD_TOKENS + 1 + estimate_tokens("look") + estimate_tokens(
            '{"n": 30}'
        ) + result_tokens(30)

    def test_an_empty_reply_that_is_asked_again_adds_nothing(self) -> None:
        first, second = estimates(played(ScriptedModel(say("").using(Usage(500, 70)), say(".")))[0])
        assert (first < 500, second) == (True, 500)

    def test_a_failure_changes_nothing(self) -> None:
        lines = [call("look", n=1).using(Usage(500, 70)), fail(Retryable("busy", began=True)), say(".")]
        _, second, third = estimates(played(ScriptedModel(*lines))[0])
        assert second == third

    def test_a_notice_counts_in_the_request_that_shows_it(self) -> None:
        def warn(point: Point, progress: Progress, about: object = None) -> list[Notice]:
            return [Notice("Hurry. " * 10)] if point is Point.TURN_STARTED and progress.turn == 2 else []

        lines = [call("look", n=1).using(Usage(500, 70))] * 2
        _, second, third = estimates(played(ScriptedModel(*lines, say(".")), hooks=[warn])[0])
        assert second - third == estimate_tokens("Hurry. " * 10)

    def test_a_reflection_leaves_the_next_estimate_alone(self) -> None:
        lines = [call("look", n=1).using(Usage(500, 70)), say(".")]
        looked = say("Fine.").using(Usage(9_000, 9))
        result, _ = played(ScriptedModel(*lines, reflection=looked), reflection=Reflection(every=1))
        _, _, third = estimates(result)
        guidance = estimate_tokens("Your review of the work so far: Fine.")
        assert third == 500 + 70 + MESSAGE_OVERHEAD_TOKENS + result_tokens(1) + guidance

    def test_when_the_conversation_was_shortened_it_is_by_bytes_again(self) -> None:
        lines = [call("look", n=400).using(Usage(200, 7))] * 2 + [fail(ContextTooLong("long")), say(".")]
        model = ScriptedModel(*lines)
        result, _ = played(model)
        assert "elided" in {event.kind for event in result.events}
        assert estimates(result)[-1] <= estimate_request_tokens(model.requests[-1])
        assert estimates(result)[-1] <= estimates(result)[-2]

    def test_the_estimate_starts_anew_with_another_model(self) -> None:
        def switch(point: Point, progress: Progress, about: object = None) -> Sequence[Order]:
            return [UseModel("other", by="me")] if point is Point.TURN_ENDED and progress.turn == 1 else []

        own = ScriptedModel(call("look", n=400).using(Usage(20, 2)))
        other = ScriptedModel(say("x"), say("."), name="other")
        result, _ = played(own, models={"other": other}, hooks=[switch])
        assert estimates(result)[1] >= estimate_request_tokens(other.requests[0])


class TestCaps:
    def test_where_nothing_limits_the_agents_word_is_sent(self) -> None:
        model = ScriptedModel(say("."), max_output_tokens=300)
        assert played(model)[0].completed
        assert model.requests[0].max_output_tokens is None
        model = ScriptedModel(say("."), max_output_tokens=300)
        played(model, max_output_tokens=900)
        assert model.requests[0].max_output_tokens == 900

    @pytest.mark.parametrize(
        ("agents", "models", "sent"), [(None, 300, 300), (200, 300, 200), (400, 300, 300), (200, None, 200)]
    )
    @pytest.mark.parametrize("limits", [Limits(tokens=90_000), Limits(usd=1)])
    def test_where_a_budget_limits_the_least_of_all_is_held_and_sent(
        self, agents: int | None, models: int | None, sent: int, limits: Limits
    ) -> None:
        model = ScriptedModel(say(".").using(None), max_output_tokens=models, price=PRICE)
        result, _ = played(model, max_output_tokens=agents, limits=limits)
        assert model.requests[0].max_output_tokens == sent
        assert result.budgets["tokens"].used == estimates(result)[0] + sent

    def test_the_report_and_the_reflection_keep_to_it_too(self) -> None:
        line = call("look", n=1)
        model = ScriptedModel.looping(line, grace=say("r"), reflection=say("l"), max_output_tokens=50)
        played(model, limits=Limits(turns=2, tokens=90_000), reflection=Reflection(every=1))
        assert {request.purpose.value for request in model.requests} == {"turn", "reflection", "grace"}
        assert {request.max_output_tokens for request in model.requests} == {50}

    def test_the_cap_of_another_model_counts_from_when_it_is_asked(self) -> None:
        def switch(point: Point, progress: Progress, about: object = None) -> Sequence[Order]:
            return [UseModel("other", by="me")] if point is Point.TURN_ENDED else []

        own, other = ScriptedModel(call("look", n=1), max_output_tokens=50), ScriptedModel(say("x"), say("."))
        other.max_output_tokens = 70
        played(own, models={"other": other}, hooks=[switch], limits=Limits(tokens=90_000))
        assert [one.requests[0].max_output_tokens for one in (own, other)] == [50, 70]

    def test_a_model_that_takes_less_than_the_limits_say_is_shown_less(self) -> None:
        model = ScriptedModel.looping(call("look", n=200).using(None), grace=say("r"), context_tokens=4_000)
        result, _ = played(model, limits=Limits(turns=12))
        assert max(estimates(result)) <= 3_000
        assert "elided" in {event.kind for event in result.events}

    def test_a_reply_may_be_no_longer_than_what_a_model_takes_beside_the_request(self) -> None:
        lines = [call("look", n=200), call("look", n=300), say(".")]
        model = ScriptedModel(*lines, context_tokens=4_000, max_output_tokens=4_000, grace=say("r"))
        result, _ = played(model, limits=Limits(tokens=90_000, turns=2))
        assert [request.purpose for request in model.requests] == ["turn", "turn", "grace"]
        for request, read in zip(model.requests, estimates(result), strict=True):
            assert request.max_output_tokens == 4_000 - read

    def test_a_task_that_is_too_long_for_the_model_is_refused_with_the_true_number(
        self, snapshot: Callable[..., None]
    ) -> None:
        driver = ScriptDriver(Agent(model=ScriptedModel(say("."), context_tokens=400, max_output_tokens=40)))
        result = driver.run("Word " * 400)
        assert (result.stop, result.requests) == ("budget", 0)
        snapshot(result.warning)

    @pytest.mark.parametrize(
        ("card", "limit", "room"),
        [
            (ModelCard(), None, float("inf")),
            (ModelCard(), 100, 100),
            (ModelCard(context_tokens=1_000), None, 750),
            (ModelCard(context_tokens=1_000, max_output_tokens=100), None, 900),
            (ModelCard(context_tokens=1_000, max_output_tokens=800), None, 750),
            (ModelCard(context_tokens=1_000, max_output_tokens=100), 500, 500),
        ],
    )
    def test_the_room_for_a_request_leaves_room_for_its_reply(
        self, card: ModelCard, limit: int | None, room: float
    ) -> None:
        assert card.input_room(limit) == room


LIMITS = Limits(tokens=50_000, usd=1)


class TestWhatNobodyTold:
    @staticmethod
    def run(*lines: Line, **options: Any) -> Result:
        model = ScriptedModel(*lines, price=PRICE, max_output_tokens=100)
        return played(model, limits=LIMITS, **options)[0]

    @pytest.mark.parametrize("error", [Retryable("busy"), ModelError("no")])
    def test_a_request_that_failed_before_it_began_costs_nothing(self, error: ModelError) -> None:
        result = self.run(fail(error), say(".").using(Usage(10, 1)))
        assert marks(result)[0] is False
        assert result.budgets["tokens"].used == result.usage.total
        assert result.estimated_requests == 0

    @pytest.mark.parametrize("error", [Retryable("broke", began=True), ModelError("timed out", began=True)])
    def test_a_failed_request_that_had_begun_is_booked_and_marked(self, error: ModelError) -> None:
        result = self.run(fail(error), say(".").using(Usage(10, 1)))
        held = estimates(result)[0] + 100
        assert marks(result)[0] is True
        assert result.budgets["tokens"].used == held + result.usage.total
        cost = PRICE.max_cost(held - 100, 100) + PRICE.cost(result.usage)
        assert (result.cost, result.budgets["usd"].used) == ({"scripted": cost}, cost)
        assert result.estimated_requests == result.to_dict()["estimated_requests"] == 1

    def test_a_reply_without_usage_is_booked_and_marked(self) -> None:
        result = self.run(say(".").using(None))
        assert (marks(result), result.usage, result.estimated_requests) == ([True], Usage(), 1)
        assert result.budgets["tokens"].used == estimates(result)[0] + 100

    def test_a_reply_that_is_cut_is_booked_and_marked(self) -> None:
        model = ScriptedModel(say("Half a sentence").after(500), price=PRICE, max_output_tokens=100)
        result, _ = played(model, limits=Limits(tokens=50_000, usd=1, seconds=100), grace=False)
        assert (result.finish, marks(result), result.estimated_requests) == (Finish.CUT, [True], 1)
        assert result.budgets["tokens"].used == estimates(result)[0] + 100

    def test_without_a_limit_what_came_is_the_estimate(self) -> None:
        text = "A long answer. " * 40
        result, _ = played(ScriptedModel(say(text).using(None), price=PRICE))
        read, made = estimates(result)[0], estimate_tokens(text)
        assert result.budgets["tokens"].used == read + made
        assert result.cost == {"scripted": PRICE.max_cost(read, made)}
        assert marks(result) == [True]

    @pytest.mark.parametrize("most", [7, 9_000])
    def test_an_estimated_reply_is_booked_with_no_more_than_was_allowed(self, most: int) -> None:
        text = "A long answer. " * 40
        result, _ = played(ScriptedModel(say(text).using(None)), max_output_tokens=most)
        assert result.budgets["tokens"].used == estimates(result)[0] + min(most, estimate_tokens(text))

    def test_what_is_told_is_never_marked(self) -> None:
        result = self.run(call("look", n=1).using(Usage(10, 1)), say(".").using(Usage(20, 2)))
        assert (marks(result), result.estimated_requests) == ([False, False], 0)
