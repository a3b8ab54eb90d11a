"""One turn: the order of its decisions, what it claims, and every reason to go on."""

from collections.abc import Sequence
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.loop.effects import Act, Append, Ask, Extend, Steer
from flyball.outcome import Denied, Reason
from flyball.progress import (
    Complete,
    Continue,
    Decision,
    Order,
    Point,
    Policy,
    Progress,
    Unfinished,
)
from flyball.result import Result, Stop
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, call_json, fail, say, together

TURNS_FLAG = "max_agent_iterations_reached"


@tool(poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(timeout=None)
def crawl() -> str:
    """Take long."""
    return "there"


@tool(cheap=True, poll=True)
def look(n: int = 0) -> int:
    """Look."""
    return n


SUM = call("add", a=1, b=2)
LOOK = call("look")


def made(*lines: Line, turns: int = 10, loops: bool = False, **options: Any) -> Agent:
    model = ScriptedModel.looping(*lines, grace=say("Reported.")) if loops else ScriptedModel(*lines)
    return Agent(model=model, tools=[add, look], limits=Limits(turns=turns), **options)


def run(agent: Agent, **options: Any) -> Result:
    return assert_honest(ScriptDriver(agent, **options).run("Go."))


def policy(*decisions: Decision) -> Policy:
    """One that says these things in turn, and the last of them from then on."""
    left = list(decisions)

    def decide(progress: Progress, /) -> Decision:
        return left.pop(0) if len(left) > 1 else left[0]

    return decide


def kinds(result: Result) -> list[str]:
    return [event.kind for event in result.events]


class TestOrder:
    def test_the_effects_of_a_run_come_in_the_order_of_its_decisions(self) -> None:
        script = ScriptDriver(made(SUM, say("3")))
        assert_honest(script.run("Go."))
        assert [type(effect) for effect in script.effects] == [Ask, Act, Append, Ask, Append]

    def test_the_events_of_a_run_tell_the_same_order(self) -> None:
        assert kinds(run(made(SUM, say("3")))) == [
            "run_started",
            *["turn_started", "model_requested", "model_replied", "tool_started", "tool_ended", "turn_ended"],
            *["turn_started", "model_requested", "model_replied", "turn_ended"],
            "run_ended",
        ]

    def test_a_turn_is_claimed_before_its_hooks_are_asked_and_they_before_the_model(self) -> None:
        seen: list[tuple[Point, int, int]] = []

        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            seen.append((point, progress.budgets["turns"].used, progress.requests))
            return ()

        run(made(SUM, say("3"), hooks=[hook]))
        assert seen == [
            (Point.RUN_STARTED, 0, 0),
            (Point.TURN_STARTED, 1, 0),
            (Point.TOOL_CALLED, 1, 1),
            (Point.TOOL_ENDED, 1, 1),
            (Point.TURN_ENDED, 1, 1),
            (Point.TURN_STARTED, 2, 1),
            (Point.TURN_ENDED, 2, 2),
            (Point.RUN_ENDED, 2, 2),
        ]

    def test_the_deadline_is_looked_at_before_a_turn_is_claimed(self) -> None:
        agent = Agent(
            model=ScriptedModel(call("crawl"), grace=say("R.")), tools=[crawl], limits=Limits(turns=1, seconds=100)
        )
        result = run(agent, seconds={"crawl": 90})
        assert (result.stop, result.flags) == ("deadline", ("max_seconds_reached",))

    def test_every_turn_is_sent_the_whole_conversation_so_far(self) -> None:
        model = ScriptedModel(SUM, SUM, say("3"))
        run(Agent(model=model, tools=[add]))
        assert [len(request.messages) for request in model.requests] == [1, 3, 5]
        assert [[tool["name"] for tool in request.tools] for request in model.requests] == [["add"]] * 3


class TestLastTurn:
    @pytest.mark.parametrize("turns", [1, 2, 3, 7])
    def test_a_run_that_ends_by_itself_on_its_last_allowed_turn_is_completed_without_a_flag(self, turns: int) -> None:
        result = run(made(*[SUM] * (turns - 1), say("3"), turns=turns))
        assert (result.stop, result.flags, result.warning, result.text) == ("completed", (), None, "3")
        assert result.budgets["turns"].remaining == 0

    @pytest.mark.parametrize("turns", [1, 2, 3, 7])
    def test_the_turn_behind_the_last_is_refused_and_the_last_is_not_punished(self, turns: int) -> None:
        result = run(made(SUM, turns=turns, loops=True))
        assert (result.stop, result.completed, result.flags) == ("budget", False, (TURNS_FLAG,))
        assert (result.turns, result.requests, len(result.tool_results)) == (turns, turns + 1, turns)
        assert all(outcome.ok for outcome in result.tool_results)
        assert f"({turns})" in str(result.warning)
        assert result.to_dict()["max_turns_reached"] is True

    def test_the_refusal_is_told_once(self) -> None:
        assert kinds(run(made(SUM, turns=2, loops=True))).count("budget_refused") == 1


class TestReasonsToGoOn:
    def test_a_turn_whose_tools_ran_is_followed_by_another(self) -> None:
        assert run(made(SUM, say("3"))).turns == 2

    def test_a_turn_whose_tool_failed_is_followed_by_another(self) -> None:
        @tool
        def broken() -> None:
            """Fail."""
            raise ValueError("no")

        result = run(Agent(model=ScriptedModel(call("broken"), say("ok")), tools=[broken]))
        assert (result.stop, result.turns, result.tool_results[0].status) == ("completed", 2, "failed")

    def test_a_nudge_was_added(self) -> None:
        decisions: list[Decision] = [Continue("Not yet."), Complete()]
        result = run(made(say("a"), say("b"), completion=policy(*decisions)))
        assert (result.stop, result.turns, result.text) == ("completed", 2, "b")
        assert "nudged" in kinds(result)

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (call("unknown"), Reason.UNKNOWN),
            (call("add", a=1), Reason.VALIDATION),
            (call("add", a="x", b=[]), Reason.VALIDATION),
            (call_json("add", "{"), Reason.VALIDATION),
            (call_json("add", "[]"), Reason.VALIDATION),
            (SUM.ending("length"), Reason.VALIDATION),
        ],
    )
    def test_a_run_goes_on_after_a_mistake_was_answered(self, line: Line, reason: Reason) -> None:
        result = run(made(line, say("ok")))
        [outcome] = result.tool_results
        assert isinstance(outcome, Denied)
        assert (outcome.reason, result.stop, result.turns) == (reason, "completed", 2)
        assert f"({reason.value}): " in result.messages[2].content

    def test_a_run_goes_on_after_a_message_was_steered_in(self) -> None:
        result = run(made(say("a"), say("b")), signals={0: [Steer("And now?")]})
        assert (result.stop, result.turns, result.text) == ("completed", 2, "b")
        assert [message.content for message in result.messages] == ["Go.", "a", "And now?", "b"]

    def test_a_run_ends_with_an_answer_where_no_reason_to_go_on_is_left(self) -> None:
        assert run(made(say("a"), say("never said"))).turns == 1


class TestSingleTurn:
    def test_a_single_turn_is_halted_when_calls_were_asked_and_they_are_made(self) -> None:
        result = run(made(SUM, say("3"), single_turn=True))
        assert (result.stop, result.stopped_by, result.turns, result.requests) == ("halted", "single_turn", 1, 1)
        assert [outcome.text for outcome in result.tool_results] == ["3"]
        assert (result.to_dict()["status"], result.flags) == ("incomplete", ())

    def test_a_single_turn_is_halted_when_its_calls_were_denied(self) -> None:
        assert run(made(call("unknown"), single_turn=True)).stop == "halted"

    def test_a_single_turn_is_completed_when_no_calls_were_asked(self) -> None:
        result = run(made(say("Hello."), single_turn=True))
        assert (result.stop, result.text, result.turns) == ("completed", "Hello.", 1)

    def test_a_single_turn_is_unfinished_when_the_task_is_not_done_and_nobody_nudges(self) -> None:
        result = run(made(say("a"), say("b"), single_turn=True, completion=policy(Continue("More."))))
        assert (result.stop, result.requests, result.budgets["nudges"].used) == ("unfinished", 1, 0)

    def test_a_single_turn_takes_one_turn_though_its_time_is_extended_while_it_reports(self) -> None:
        model = ScriptedModel(SUM.after(100), say("never said"), grace=say("Reported."))
        slow = Agent(model=model, tools=[add], single_turn=True, limits=Limits(seconds=100))
        result = run(slow, signals={2: [Extend({}, 100.0)]})
        assert (result.stop, result.flags, result.text) == ("deadline", ("max_seconds_reached",), "Reported.")
        assert [event.kind for event in result.events].count("turn_started") == 1

    @pytest.mark.parametrize("index", [0, 1])
    def test_a_single_turn_takes_one_turn_whatever_is_steered_in(self, index: int) -> None:
        result = run(made(say("a"), say("b"), single_turn=True), signals={index: [Steer("And?")]})
        assert (result.requests, result.stop, result.stopped_by) == (1, "halted", "single_turn")
        assert result.messages[-1].content == "And?"

    def test_failures_of_a_single_turn_are_tried_again_all_the_same(self) -> None:
        result = run(made(fail(Retryable("busy")), say("a"), single_turn=True))
        assert (result.stop, result.requests) == ("completed", 2)


class TestShouldContinue:
    @pytest.mark.parametrize("after", [1, 2, 3])
    def test_should_continue_that_answers_false_halts_the_run(self, after: int) -> None:
        def should_continue(progress: Progress) -> bool:
            return progress.turn < after

        result = run(made(SUM, loops=True, should_continue=should_continue))
        assert (result.stop, result.stopped_by, result.turns) == ("halted", "should_continue", after)
        assert len(result.tool_results) == after

    def test_should_continue_is_asked_between_turns_only(self) -> None:
        asked: list[int] = []

        def should_continue(progress: Progress) -> bool:
            asked.append(progress.turn)
            return True

        run(made(SUM, SUM, say("3"), should_continue=should_continue))
        assert asked == [1, 2]

    def test_should_continue_sees_what_the_turn_came_to(self) -> None:
        seen: list[tuple[str, int, int, dict[str, int]]] = []

        def should_continue(progress: Progress) -> bool:
            [outcome] = progress.outcomes
            seen.append((outcome.text, len(progress.messages), len(progress.results), dict(progress.successes)))
            return True

        run(made(SUM, call("add", a=2, b=2), say("."), should_continue=should_continue))
        assert seen == [("3", 3, 1, {"add": 1}), ("4", 5, 2, {"add": 2})]

    def test_raising_fails_the_run_and_keeps_what_was_done(self) -> None:
        def should_continue(progress: Progress) -> bool:
            raise RuntimeError("no idea")

        result = run(made(SUM, say("3"), should_continue=should_continue))
        assert (result.stop, result.turns, len(result.messages)) == ("failed", 1, 3)
        assert result.error == {"code": "exception", "kind": "RuntimeError", "message": "no idea"}

    def test_the_deadline_goes_before_it(self) -> None:
        agent = Agent(
            model=ScriptedModel(call("crawl"), grace=say("Reported.")),
            tools=[crawl],
            limits=Limits(seconds=100),
            should_continue=lambda progress: False,
        )
        assert run(agent, seconds={"crawl": 99}).stop == "deadline"


class TestRefunds:
    @pytest.mark.parametrize("rounds", [1, 2, 5])
    def test_a_round_of_only_cheap_tools_gives_its_turn_back(self, rounds: int) -> None:
        result = run(made(*[LOOK] * rounds, say("seen"), turns=5))
        turns = result.budgets["turns"]
        assert (result.turns, turns.used, dict(turns.refunds)) == (rounds + 1, 1, {"cheap_round": rounds})
        assert kinds(result).count("refunded") == rounds

    def test_a_round_of_cheap_and_dear_calls_gets_no_turn_back(self) -> None:
        result = run(made(together(LOOK, SUM), say(".")))
        assert (result.budgets["turns"].used, result.budgets["turns"].refunded) == (2, 0)

    def test_a_round_in_which_nothing_ran_gets_no_turn_back(self) -> None:
        assert run(made(call("look", n="x"), say("."))).budgets["turns"].refunded == 0

    def test_a_round_with_a_denied_call_of_a_dear_tool_gets_no_turn_back(self) -> None:
        assert run(made(together(LOOK, call("add", a=1)), say("."))).budgets["turns"].refunded == 0

    def test_a_reply_without_calls_gets_no_turn_back(self) -> None:
        assert run(made(say("."))).budgets["turns"].refunded == 0

    @pytest.mark.parametrize("turns", [1, 2, 5])
    def test_a_model_that_loops_on_a_cheap_tool_still_ends(self, turns: int) -> None:
        result = run(made(LOOK, turns=turns, loops=True))
        assert (result.stop, result.flags) == ("budget", (TURNS_FLAG,))
        assert (result.turns, result.requests) == (2 * turns, 2 * turns + 1)
        assert result.budgets["turns"].refunded == turns

    @pytest.mark.parametrize(
        ("line", "stop"),
        [(fail(ModelError("no such model")), "failed"), (fail(ContextTooLong("too long")), "budget")],
    )
    @pytest.mark.parametrize("before", [0, 2])
    def test_a_round_that_never_started_gives_its_turn_back_and_facts_stay(
        self, line: Line, stop: str, before: int
    ) -> None:
        model = ScriptedModel(*[SUM] * before, line, grace=say("Reported."))
        result = run(Agent(model=model, tools=[add]))
        turns = result.budgets["turns"]
        assert (result.stop, result.turns, turns.used) == (stop, before, before)
        assert dict(turns.refunds) == {"round_never_started": 1}
        assert result.requests == before + 1 + (stop == "budget")

    def test_a_refused_hold_gives_the_turn_back(self) -> None:
        agent = Agent(model=ScriptedModel(say("x"), grace=say("R.")), limits=Limits(tokens=10))
        result = run(agent)
        assert (result.stop, result.flags, result.requests) == ("budget", ("max_tokens_reached",), 0)
        assert dict(result.budgets["turns"].refunds) == {"round_never_started": 1}


@pytest.mark.parametrize("decision", [Complete(), Continue("More."), Unfinished()])
@pytest.mark.parametrize("single_turn", [False, True])
@pytest.mark.parametrize("line", [SUM, LOOK, say("a"), call("unknown"), say("a", SUM), together(LOOK, SUM)])
def test_every_kind_of_turn_ends_honestly(decision: Decision, single_turn: bool, line: Line) -> None:
    agent = made(line, turns=4, loops=True, single_turn=single_turn, completion=policy(decision))
    result = run(agent)
    assert result.stop in (Stop.COMPLETED, Stop.HALTED, Stop.UNFINISHED, Stop.BUDGET)
    assert single_turn is (result.requests == 1) or result.stop is not Stop.BUDGET


def test_a_tool_is_offered_with_what_a_model_must_know() -> None:
    model = ScriptedModel(say("a"))
    run(Agent(model=model, tools=[add], instructions="Be brief."))
    assert model.requests[0].tools == [add.definition()]
    assert model.requests[0].instructions == "Be brief."
