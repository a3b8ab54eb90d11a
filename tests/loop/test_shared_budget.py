"""Budgets that runs share: every claim there is a Grant, and what is refused there is refused here."""

from collections.abc import Callable
from typing import Any

import pytest

from flyball import Agent, ConfigError, Limits, TurnBudget, tool
from flyball.budget.run_budget import Refusal
from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.event import Header
from flyball.loop import Act, Answer, Ask, Decide, Effect, Grant, converse
from flyball.loop.effects import Cancel, Extend, Signal
from flyball.outcome import Denied, Reason, Success
from flyball.person import Verdict
from flyball.progress import Complete, Continue, Decision, Halt, Order, Point, Progress, UseModel
from flyball.recorder import Recorder
from flyball.request import FailureKind, ModelFailure, Reply, Request, Usage
from flyball.result import Result
from flyball.testing import Line, ScriptedModel, assert_honest, call, fail, say, together


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(cheap=True)
def look() -> str:
    """Look."""
    return "nothing"


@tool(approve=True)
def risky() -> str:
    """Do what needs a person."""
    return "done"


def three(progress: Progress) -> Decision:
    """Only 3 will do."""
    return Complete() if progress.text == "3" else Continue("Three.")


SUM = call("add", a=1, b=2)
NO_TURN = Refusal("turns", "max_team_turns_reached", "The team has no turn left.")
NO_CALL = Refusal("tool_calls", "max_team_calls_reached", "The team has no call left.")
NO_TOKEN = Refusal("tokens", "max_team_tokens_reached", "The team has no tokens left.")
NO_TIME = Refusal("seconds", "max_seconds_reached", "The team's time is over.")


class Sharing:
    """A driver whose shared budgets do what a test says."""

    def __init__(self, *lines: Line, limits: Limits | None = None, **options: Any) -> None:
        self.model = ScriptedModel(*lines, grace=say("Reported."))
        self.agent = Agent(model=self.model, tools=[add, look, risky], limits=limits or Limits(), **options)
        self.grants: list[Grant] = []
        self.effects: list[Effect[Any]] = []
        self.refuse: Callable[[Grant], Refusal | None] = lambda grant: None
        self.signals: dict[int, list[Signal]] = {}

    def run(self, within: TurnBudget | None = None) -> Result:
        plan = self.agent.plan("Go.", within=within or TurnBudget.create())
        loop = converse(plan, Recorder(Header(plan.run_id, None, plan.started_at, plan.metadata)))
        answer: Any = None
        while True:
            try:
                effect = loop.send(answer)
            except StopIteration as end:
                return assert_honest(end.value)
            self.effects.append(effect)
            answer = Answer(self._done(effect), 0.0, self.signals.get(len(self.effects) - 1, ())).received

    def _done(self, effect: Effect[Any]) -> Any:
        match effect:
            case Ask():
                return self._asked(effect)
            case Act(acts):
                return [Success(call_id=act.call.id, tool=act.call.name, content="3") for act in acts]
            case Grant():
                self.grants.append(effect)
                return self.refuse(effect)
            case Decide():
                return Verdict(True)
            case _:
                return None

    def _asked(self, effect: Ask) -> Reply | ModelFailure:
        try:
            line, place = self.model.take_line(effect.request)
            return line.build_reply(place * 100)
        except Retryable as error:
            return ModelFailure(FailureKind.RETRYABLE, "Retryable", error.code, str(error))
        except ContextTooLong as error:
            return ModelFailure(FailureKind.CONTEXT, "ContextTooLong", error.code, str(error))
        except ModelError as error:
            return ModelFailure(FailureKind.FINAL, "ModelError", error.code, str(error))

    @property
    def taken(self) -> list[dict[str, int]]:
        return [dict(grant.claim) for grant in self.grants if grant.claim]

    @property
    def settled(self) -> list[dict[str, int]]:
        return [dict(grant.settle) for grant in self.grants if grant.settle is not None]

    @property
    def given_back(self) -> list[tuple[str, dict[str, int]]]:
        return [(reason, amounts) for grant in self.grants for reason, amounts in grant.refund.items()]

    @property
    def turns(self) -> int:
        return sum(take.get("turns", 0) for take in self.taken)


def refusing(refusal: Refusal, after: int = 0) -> Callable[[Grant], Refusal | None]:
    """Refuse a budget when it was granted so often."""
    granted: list[Grant] = []

    def decide(grant: Grant) -> Refusal | None:
        if not grant.claim or refusal.budget not in {*grant.claim, "seconds"}:
            return None
        granted.append(grant)
        return refusal if len(granted) > after else None

    return decide


class TestTaking:
    def test_a_turn_is_taken_together_with_its_request_and_calls_one_by_one(self) -> None:
        shared = Sharing(together(SUM, SUM), say("3"))
        shared.run()
        assert [sorted(take) for take in shared.taken] == [
            ["tokens", "turns"],
            ["tool_calls"],
            ["tool_calls"],
            ["tokens", "turns"],
        ]

    def test_the_grant_of_a_turn_settles_the_last(self) -> None:
        shared = Sharing(say("2").using(Usage(100, 20)), say("3").using(Usage(200, 30)), completion=three)
        assert shared.run().text == "3"
        first, second, last = shared.grants
        assert (first.claim["turns"], first.settle) == (1, None)
        assert (second.claim["turns"], second.settle) == (1, {"tokens": 120, "usd": 0})
        assert (last.claim, last.settle) == ({}, {"tokens": 230, "usd": 0})

    def test_what_was_used_is_told_before_a_person_is_asked(self) -> None:
        shared = Sharing(call("risky"), say("3"))
        shared.run()
        order = [type(effect).__name__ for effect in shared.effects]
        assert order[:4] == ["Grant", "Ask", "Grant", "Decide"]

    def test_a_run_on_its_own_asks_for_nothing(self) -> None:
        shared = Sharing(SUM, say("3"))
        plan = shared.agent.plan("Go.")
        assert plan.has_shared_budget is False

    def test_what_a_request_may_use_is_taken_before_it_and_settled_after_it(self) -> None:
        shared = Sharing(SUM.using(Usage(100, 20)), say("3").using(Usage(200, 30)), max_output_tokens=500)
        shared.run()
        held = [one["tokens"] for one in shared.taken if "tokens" in one]
        assert all(tokens > 500 for tokens in held)
        assert [one["tokens"] for one in shared.settled] == [120, 230]
        order = [type(effect).__name__ for effect in shared.effects]
        assert order == ["Grant", "Ask", "Grant", "Act", "Grant", "Ask", "Grant"]

    def test_a_provider_that_tells_nothing_settles_the_whole_hold(self) -> None:
        shared = Sharing(say("3").using(None), max_output_tokens=500)
        shared.run()
        [held] = [one["tokens"] for one in shared.taken if "tokens" in one]
        assert shared.settled == [{"tokens": held, "usd": 0}]

    @pytest.mark.parametrize("error", [ModelError("no"), ContextTooLong("no")])
    def test_a_request_that_failed_settles_to_nothing(self, error: Exception) -> None:
        shared = Sharing(fail(error))
        shared.run()
        assert shared.settled[0]["tokens"] == 0

    def test_every_attempt_takes_and_settles_its_own(self) -> None:
        shared = Sharing(fail(Retryable("busy")), say("3"))
        assert shared.run().stop == "completed"
        assert len(shared.settled) == 2
        assert len([one for one in shared.taken if "tokens" in one]) == 2
        assert shared.turns == 1

    def test_the_report_takes_and_settles_too(self) -> None:
        shared = Sharing(SUM, limits=Limits(turns=1), max_output_tokens=500)
        assert shared.run().text == "Reported."
        assert len(shared.settled) == 2
        assert len([one for one in shared.taken if "tokens" in one]) == 2

    def test_the_own_limits_of_a_run_come_before_the_shared_ones(self) -> None:
        shared = Sharing(SUM, SUM, SUM, limits=Limits(turns=1))
        assert shared.run().flags == ("max_agent_iterations_reached",)
        assert shared.turns == 1


class TestRefusals:
    @pytest.mark.parametrize("after", [0, 1, 3])
    def test_a_refused_turn_leads_to_grace_and_its_own_is_given_back(self, after: int) -> None:
        shared = Sharing(*[SUM] * 9)
        shared.refuse = refusing(NO_TURN, after)
        result = shared.run()
        assert (result.stop, result.flags, result.warning) == ("budget", (NO_TURN.flag,), NO_TURN.warning)
        assert (result.turns, result.budgets["turns"].used, result.text) == (after, after, "Reported.")
        assert shared.given_back == []

    @pytest.mark.parametrize("after", [0, 1, 2])
    def test_a_refused_call_is_denied_with_the_reason(self, after: int) -> None:
        shared = Sharing(together(SUM, SUM, SUM), say("ok"))
        shared.refuse = refusing(NO_CALL, after)
        result = shared.run()
        denied = [outcome for outcome in result.tool_results if isinstance(outcome, Denied)]
        assert {outcome.reason for outcome in denied} == {Reason.BUDGET}
        assert {outcome.message for outcome in denied} == {NO_CALL.warning}
        assert (len(denied), result.flags) == (3 - after, (NO_CALL.flag,))
        assert (result.stop, result.text) == (("budget", "Reported.") if after == 0 else ("completed", "ok"))

    @pytest.mark.parametrize("after", [0, 1])
    def test_refused_tokens_lead_to_grace_and_no_turn_is_taken(self, after: int) -> None:
        shared = Sharing(*[SUM] * 9, limits=Limits(tokens=50_000), max_output_tokens=100)
        shared.refuse = refusing(NO_TOKEN, after)
        result = shared.run()
        assert (result.stop, result.flags, result.turns) == ("budget", (NO_TOKEN.flag,), after)
        assert result.budgets["turns"].used == after
        assert shared.given_back == []

    def test_a_shared_refusal_keeps_its_flag_when_the_own_limit_was_raised(self) -> None:
        shared = Sharing(*[SUM] * 9, limits=Limits(tokens=50_000), max_output_tokens=100)
        shared.signals = {0: [Extend({"tokens": 500})]}
        shared.refuse = refusing(NO_TOKEN, 1)
        result = shared.run()
        assert (result.stop, result.flags, result.warning) == ("budget", (NO_TOKEN.flag,), NO_TOKEN.warning)

    def test_a_refused_report_is_made_from_the_record(self) -> None:
        shared = Sharing(SUM, limits=Limits(turns=1, tokens=50_000), max_output_tokens=100)
        shared.refuse = refusing(NO_TOKEN, 1)
        result = shared.run()
        assert result.warning is not None
        assert result.text.startswith(result.warning)
        assert (result.stop, result.requests) == ("budget", 1)
        assert result.flags == ("max_agent_iterations_reached", NO_TOKEN.flag)

    def test_shared_time_that_is_over_is_a_deadline(self) -> None:
        shared = Sharing(SUM, SUM)
        shared.refuse = refusing(NO_TIME, 3)
        result = shared.run()
        assert (result.stop, result.flags) == ("deadline", ("max_seconds_reached",))

    def test_a_model_without_a_price_refuses_an_envelope_with_a_money_limit(self) -> None:
        with (
            Limits(usd=1).open() as envelope,
            pytest.raises(ConfigError, match=r"price of scripted"),
        ):
            Sharing(say("3")).run(envelope)

    def test_a_run_has_no_more_time_than_the_envelope(self) -> None:
        shared = Sharing(say("3"))
        shared.run(TurnBudget.create(timeout_s=10))
        [ask] = [effect for effect in shared.effects if isinstance(effect, Ask)]
        assert ask.deadline <= 10


class TestRefunds:
    def test_a_cheap_round_is_given_back_there_too(self) -> None:
        shared = Sharing(call("look"), SUM, say("3"))
        shared.run()
        assert shared.given_back == [("cheap_round", {"turns": 1})]

    @pytest.mark.parametrize("error", [ModelError("no"), ContextTooLong("no")])
    def test_a_round_that_never_started_is_given_back_there_too(self, error: Exception) -> None:
        shared = Sharing(SUM, fail(error))
        result = shared.run()
        assert len(shared.given_back) == 1
        assert result.budgets["turns"].used == 1

    def test_a_turn_that_a_hook_halted_takes_nothing_there(self) -> None:
        def hook(point: Point, progress: Progress, about: object = None, /) -> list[Order]:
            return [Halt("rule")] if point is Point.TURN_STARTED else []

        shared = Sharing(say("3"), hooks=[hook])
        assert shared.run().stop == "halted"
        assert shared.grants == []

    def test_a_turn_that_failed_before_its_request_takes_nothing_there(self) -> None:
        class CountsOnce(ScriptedModel):
            def count(self, request: Request) -> int:
                if len(request.messages) > 1:
                    raise ValueError("cannot count this")
                return 100

        shared = Sharing(SUM, say("3"))
        shared.model = CountsOnce(SUM, say("3"))
        shared.agent = Agent(model=shared.model, tools=[add])
        result = shared.run()
        assert (result.stop, result.requests) == ("failed", 1)
        assert (shared.turns, result.budgets["turns"].used) == (1, 1)

    def test_no_more_is_given_back_there_than_here(self) -> None:
        shared = Sharing(*[call("look")] * 20, limits=Limits(turns=2))
        result = shared.run()
        assert len(shared.given_back) == result.budgets["turns"].refunded == 2

    def test_what_is_taken_is_what_is_settled_given_back_or_used(self) -> None:
        shared = Sharing(call("look"), SUM, fail(ModelError("no")))
        result = shared.run()
        turns = shared.turns - len(shared.given_back)
        assert turns == result.budgets["turns"].used


@pytest.mark.parametrize("index", range(13))
def test_a_cancel_that_comes_with_a_grant_is_heard(index: int) -> None:
    shared = Sharing(together(SUM, SUM), call("look"), say("3"), max_output_tokens=10)
    shared.signals = {index: [Cancel("me")]}
    result = shared.run()
    assert (result.stop, result.stopped_by) == ("cancelled", "me")
    assert not any(isinstance(effect, Ask) for effect in shared.effects[index + 1 :])
    held = [one for one in shared.taken if "tokens" in one]
    assert len(shared.settled) == len(held)


def test_a_refused_request_is_released_in_the_budgets_of_its_own_model_although_a_rule_switches() -> None:
    def switch(point: Point, progress: Progress, about: object = None, /) -> tuple[Order, ...]:
        return (UseModel("other"),) if point is Point.BUDGET_REFUSED else ()

    other = ScriptedModel(grace=say("Reported."), name="other")
    limits = Limits(by_model={"scripted": Limits(tokens=5_000)}, context_tokens=1_000)
    sharing = Sharing(SUM, SUM, limits=limits, models={"other": other}, hooks=[switch])
    sharing.refuse = refusing(NO_TOKEN, after=1)
    result = sharing.run()
    assert (result.stop, result.flags) == ("budget", ("max_team_tokens_reached",))
    own = result.budgets["tokens.scripted"]
    assert own.used > 0
    assert own.held == 0
