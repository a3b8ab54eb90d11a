"""Fallback models: which failures lead to them, in which order, and what each attempt costs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, ConfigError, Limits, run_conversation, tool
from flyball.budget.price import TokenPrice
from flyball.errors import ContextTooLong, ModelError, Retryable, UsageError
from flyball.event import FellBack, ModelRequested, Retried
from flyball.loop import Ask
from flyball.models.openai import OpenAIModel
from flyball.progress import Order, Point, Progress, UseModel
from flyball.record import from_record
from flyball.request import Usage
from flyball.result import Result
from flyball.store import MemoryStore
from flyball.testing import Line, ModelServer, ScriptDriver, ScriptedModel, assert_honest, call, fail, say, status

BUSY, BROKEN = fail(Retryable("busy")), fail(ModelError("bad key"))


@tool(poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SUM = call("add", a=1, b=2)


def model(name: str, *lines: Line, **options: Any) -> ScriptedModel:
    scripted = ScriptedModel(*lines, **options)
    scripted.name = name
    return scripted


def asked(result: Result) -> list[str | None]:
    return [event.model for event in result.events if isinstance(event, ModelRequested)]


def run(*models: ScriptedModel, **options: Any) -> Result:
    agent = Agent(model=models[0], fallback_models=models[1:], tools=[add], **options)
    return assert_honest(ScriptDriver(agent).run("Go.", run_id="run"))


class TestOrder:
    @pytest.mark.parametrize("failure", [BUSY, BROKEN, fail(TimeoutError("late"))])
    def test_a_failure_leads_to_the_next_model_at_once(self, failure: Line) -> None:
        result = run(model("a", failure), model("b", say("done")))
        assert (result.stop, result.text, asked(result)) == ("completed", "done", ["a", "b"])
        assert (result.turns, result.requests, result.budgets["retries"].used) == (1, 2, 1)
        [change] = [event for event in result.events if isinstance(event, FellBack)]
        assert (change.model, change.to, change.wait_s) == ("a", "b", 0.0)
        assert [(one["model"], one["to"], one["error"]) for one in result.fallbacks] == [("a", "b", change.error)]
        assert from_record(result.to_dict()).fallbacks == result.fallbacks
        assert "so b was asked" in result.explain()

    def test_the_run_stays_with_the_model_that_answered(self) -> None:
        result = run(model("a", BUSY, say("never")), model("b", SUM, SUM, say("done")))
        assert asked(result) == ["a", "b", "b", "b"]

    def test_after_the_last_model_the_list_starts_again_after_a_wait(self) -> None:
        result = run(model("a", BUSY, BUSY), model("b", BUSY, say("done")))
        assert asked(result) == ["a", "b", "a", "b"]
        waits = [event.wait_s for event in result.events if isinstance(event, FellBack)]
        assert waits[0] == waits[2] == 0.0 < waits[1]

    def test_a_model_that_failed_for_good_is_not_asked_again(self) -> None:
        result = run(model("a", BUSY, BUSY, say("done")), model("b", BROKEN))
        assert asked(result) == ["a", "b", "a", "a"]
        assert len([event for event in result.events if isinstance(event, Retried)]) == 1

    def test_a_run_fails_with_the_last_error_when_no_model_is_left(self) -> None:
        result = run(model("a", fail(ModelError("no a"))), model("b", fail(ModelError("no b"))))
        assert (result.stop, result.requests, result.budgets["retries"].used) == ("failed", 2, 1)
        assert result.error is not None
        assert result.error["message"] == "no b"

    def test_attempts_are_within_the_retries(self) -> None:
        result = run(model("a", BROKEN), model("b", say("never")), limits=Limits(retries=0))
        assert (result.stop, result.flags, asked(result)) == ("failed", ("max_retries_reached",), ["a"])
        assert result.fallbacks == ()

    def test_a_conversation_that_is_too_long_is_shortened_instead(self) -> None:
        result = run(model("a", SUM, SUM, SUM, fail(ContextTooLong("long")), say("done")), model("b", say("never")))
        assert "b" not in asked(result)

    def test_a_model_that_is_not_ready_is_replaced_before_the_first_request(self) -> None:
        class NotReady(ScriptedModel):
            def ready(self) -> str | None:
                return "no key"

        result = ScriptDriver(Agent(model=NotReady(), fallback_models=[model("b", say("done"))])).run("Go.")
        assert (result.text, result.requests, result.budgets["retries"].used) == ("done", 1, 0)
        assert result.fallbacks[0]["code"] == "model_not_ready"

    def test_the_report_comes_from_a_fallback_too(self) -> None:
        first = model("a", SUM, grace=BUSY)
        result = run(first, model("b", grace=say("I added.")), limits=Limits(turns=1))
        assert (result.stop, result.text, asked(result)) == ("budget", "I added.", ["a", "a", "b"])
        assert not any("last message" in message.content for message in result.messages[:-2])

    def test_a_rule_may_still_select_a_model_and_its_fallbacks_follow_it(self) -> None:
        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return [UseModel("c")] if point is Point.TOOL_ENDED and progress.turn == 1 else ()

        result = run(model("a", BUSY), model("b", SUM, say("done")), models={"c": model("c", BROKEN)}, hooks=[hook])
        assert asked(result) == ["a", "b", "c", "b"]


class TestCosts:
    def test_each_attempt_is_counted_at_the_price_of_its_model(self) -> None:
        began = Retryable("the stream broke")
        began.began = True
        first = model("a", fail(began), price=TokenPrice(1_000.0, 1_000.0))
        second = model("b", say("done").using(Usage(100, 10)), price=TokenPrice(1.0, 1.0))
        result = run(first, second, limits=Limits(usd=1_000), max_output_tokens=100)
        assert result.cost["b"] == 110 * 1_000
        assert result.cost["a"] > 100 * 10**6
        assert result.estimated_requests == 1
        assert result.budgets["usd"].used == sum(result.cost.values())

    def test_a_money_limit_needs_the_price_of_every_fallback(self) -> None:
        priced = model("a", price=TokenPrice(1.0, 1.0))
        with pytest.raises(UsageError, match="the price of b"):
            Agent(model=priced, fallback_models=[model("b")], limits=Limits(usd=1))

    def test_a_request_is_built_again_when_a_rule_switches_the_model_after_a_refusal(self) -> None:
        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return [UseModel("cheap")] if point is Point.BUDGET_REFUSED else ()

        dear = model("dear", price=TokenPrice(10**6, 10**6))
        cheap = model("cheap", say("done"), price=TokenPrice(0.0, 0.0))
        driver = ScriptDriver(Agent(model=dear, models={"cheap": cheap}, limits=Limits(usd=0.01), hooks=[hook]))
        result = driver.run("Go.")
        assert [effect.request.model for effect in driver.effects if isinstance(effect, Ask)] == ["cheap"]
        assert (result.text, len(dear.requests)) == ("done", 0)

    def test_no_request_follows_if_a_hook_ends_the_run_when_it_hears_of_a_refusal(self) -> None:
        def switch(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return [UseModel("cheap")] if point is Point.BUDGET_REFUSED else ()

        def fail_then(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            if point is Point.BUDGET_REFUSED:
                raise ValueError("broken")
            return ()

        dear = model("dear", price=TokenPrice(10**6, 10**6))
        cheap = model("cheap", say("never"), price=TokenPrice(0.0, 0.0))
        hooks = [fail_then, switch]
        agent = Agent(model=dear, models={"cheap": cheap}, limits=Limits(usd=0.01), hooks=hooks)
        result = assert_honest(ScriptDriver(agent).run("Go."))
        assert (result.stop, result.requests) == ("failed", 0)


class TestOptions:
    def test_fallbacks_may_be_keys_of_models(self) -> None:
        result = run(model("a", BUSY), model("b", say("done")), models={})
        assert result.text == "done"
        agent = Agent(model=model("a", BUSY), models={"spare": model("b", say("done"))}, fallback_models=["spare"])
        assert agent.run("Go.").text == "done"

    @pytest.mark.parametrize("given", ["openai:x", [7], [object()]])
    def test_other_values_are_refused_with_their_place(self, given: Any) -> None:
        with pytest.raises(ConfigError, match="fallback_models"):
            Agent(model=model("a"), fallback_models=given)

    def test_the_same_name_twice_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="each model once"):
            Agent(model=model("a"), models={"b": model("b")}, fallback_models=["b", "b"])

    def test_a_conversation_takes_them(self) -> None:
        assert run_conversation("Hi.", [], model("a", BUSY), fallback_models=[model("b", say("done"))]).text == "done"


class TestRuntime:
    def test_an_http_model_that_is_down_is_replaced(self) -> None:
        with ModelServer(status(503, "down")) as down, ModelServer(say("It is 3.")) as up:
            first, second = (OpenAIModel(name, url=f"{server.url}/v1") for name, server in (("x", down), ("y", up)))
            result = Agent(model=first, fallback_models=[second]).run("What is 1 + 2?")
        assert (result.text, asked(result)) == ("It is 3.", ["x", "y"])
        assert result.fallbacks[0]["code"] == "model_unavailable"

    def test_a_stored_run_replays_its_fallbacks(self, tmp_path: Path) -> None:
        store, first = MemoryStore(), model("a", BUSY)
        agent = Agent(
            model=first, fallback_models=[model("b", SUM, SUM, say("done"), grace=say("Two."))], tools=[add],
            limits=Limits(turns=2), store=store,
        )  # fmt: skip
        result = agent.run("Go.", run_id="r1")
        assert (result.stop, asked(result)) == ("budget", ["a", "b", "b", "b"])
        resumed = agent.resume("r1", extend={"turns": 3})
        assert (resumed.stop, resumed.text) == ("completed", "done")
        assert resumed.fallbacks == result.fallbacks
        assert len(first.requests) == 1
