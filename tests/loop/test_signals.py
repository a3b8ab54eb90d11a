"""What comes in while a run goes on: it is heard after every effect, whichever it is, and nothing is left open."""

from collections.abc import Sequence
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.errors import Retryable
from flyball.event import Extended, Header, ModelRequested, Postponed, Steered, ToolEnded, ToolStarted
from flyball.loop import Answer, Append, Ask, converse
from flyball.loop.effects import Cancel, Extend, Late, LeaseLost, Signal, Stalled, Steer, TimeUp
from flyball.message import MessageType, Role
from flyball.outcome import Status
from flyball.progress import Complete, Continue, Progress
from flyball.recorder import Recorder
from flyball.request import Usage
from flyball.result import Result, Stop
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, say, together


@tool(effects="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def write(text: str) -> str:
    """Write."""
    return text


@tool(approve=True)
def careful() -> str:
    """Do what a person must agree to."""
    return "done"


SUM, WRITE = call("add", a=1, b=2), call("write", text="x")
RICH = (
    fail(Retryable("busy")),
    say("Adding.", SUM, SUM, WRITE, call("careful"), SUM),
    say(""),
    together(WRITE, call("unknown"), WRITE),
    say("Done?"),
    SUM,
    say("Done."),
)
"""A run with a wait, an empty reply, groups, a person, a mistake, a nudge and, past its last turn, a report."""


def nudge(progress: Progress) -> Continue:
    return Continue("Not yet.")


def rich(turns: int = 5, **options: Any) -> ScriptDriver:
    limits = Limits(turns=turns, tokens=50_000, nudges=9)
    model = ScriptedModel.looping(*RICH, grace=say("Reported.", SUM))
    agent = Agent(
        model=model,
        tools=[add, write, careful],
        limits=limits,
        completion=nudge,
        approver=lambda question: False,
        max_output_tokens=500,
    )
    return ScriptDriver(agent, **options)


ANSWERS = range(22)
"""One for each answer of a rich run."""
PAIRS = [
    ("turn_started", "turn_ended"),
    ("model_requested", "model_replied"),
    ("grace_started", "grace_ended"),
]


def run(*lines: Line, **options: Any) -> Result:
    driving = {name: options.pop(name) for name in ("signals", "seconds") if name in options}
    agent = Agent(model=ScriptedModel(*lines, grace=say("Reported.")), tools=[add, write], **options)
    return assert_honest(ScriptDriver(agent, **driving).run("Go."))


def texts(result: Result) -> list[str]:
    return [message.content for message in result.messages if message.type is MessageType.TEXT]


def test_a_rich_run_meets_its_limit_after_so_many_answers() -> None:
    script = rich()
    assert assert_honest(script.run("Go.")).stop == "budget"
    assert range(len(script.answers)) == ANSWERS


@pytest.mark.parametrize("index", ANSWERS)
class TestAnyMoment:
    @pytest.mark.parametrize(
        ("letters", "stop"),
        [
            ([Cancel("me")], Stop.CANCELLED),
            ([LeaseLost()], Stop.CONTENDED),
            ([Cancel("me"), LeaseLost()], Stop.CONTENDED),
            ([Cancel("me"), TimeUp()], Stop.CANCELLED),
            ([TimeUp()], Stop.DEADLINE),
            ([Steer("x"), Cancel("me")], Stop.CANCELLED),
        ],
        ids=["cancel", "lease lost", "cancel and lease lost", "cancel and time up", "time up", "steer and cancel"],
    )
    def test_the_run_ends_with_the_first_of_the_reasons(
        self, index: int, letters: Sequence[Signal], stop: Stop
    ) -> None:
        script = rich(signals={index: letters})
        result = assert_honest(script.run("Go."))
        late = stop is Stop.DEADLINE and index >= ANSWERS[-2]
        assert result.stop is (Stop.BUDGET if late else stop)
        assert result.stopped_by == ("me" if stop is Stop.CANCELLED else None)
        later = [type(effect) for effect in script.effects[index + 1 :]]
        assert set(later) <= ({Append, Ask} if stop is Stop.DEADLINE else {Append})
        assert later.count(Ask) <= 1

    def test_a_cancel_keeps_everything_done_so_far(self, index: int) -> None:
        script, whole = rich(signals={index: [Cancel()]}), rich()
        result, full = script.run("Go.", run_id="r"), whole.run("Go.", run_id="r")
        said = list(result.messages)
        kept = [message for effect in script.effects if isinstance(effect, Append) for message in effect.messages]
        assert kept == said[: len(kept)] == said
        done = [one for one in result.tool_results if one.ok]
        assert [one.call_id for one in done] == [one.call_id for one in full.tool_results if one.ok][: len(done)]

    def test_a_steered_message_is_kept_and_told_once(self, index: int) -> None:
        result = assert_honest(rich(signals={index: [Steer("Only the tests.")]}).run("Go."))
        assert texts(result).count("Only the tests.") == 1
        assert sum(isinstance(event, Steered) for event in result.events) == 1

    def test_more_turns_raise_the_ceiling(self, index: int) -> None:
        result = assert_honest(rich(signals={index: [Extend({"turns": 2}, by="me")]}).run("Go."))
        assert result.budgets["turns"].ceiling == 7
        assert result.turns == 7  # also where the report was asked for, or given, when more came

    def test_a_loop_that_is_closed_closes_every_pair(self, index: int) -> None:
        script = rich()
        script.run("Go.", run_id="r")
        plan = rich().agent.plan("Go.", run_id="r")
        plan.has_transcript = True
        recorder = Recorder(Header("r"))
        loop = converse(plan, recorder)
        next(loop)
        for answer in script.answers[:index]:
            loop.send(answer.received)
        loop.close()
        kinds = [event.kind for event in recorder.events]
        for started, ended in PAIRS:
            assert kinds.count(started) == kinds.count(ended)
        begun = [event.call_id for event in recorder.events if isinstance(event, ToolStarted)]
        closed = [event.call_id for event in recorder.events if isinstance(event, ToolEnded)]
        assert set(begun) <= set(closed)
        assert len(closed) == len(set(closed))
        assert kinds.index("run_ended") == len(kinds) - 1


class TestSteer:
    def test_a_steered_message_goes_behind_the_results_of_its_turn(self) -> None:
        result = run(together(SUM, SUM), say("ok"), signals={0: [Steer("Hurry.")]})
        roles = [message.role for message in result.messages]
        assert roles == [Role.USER, Role.ASSISTANT, Role.ASSISTANT, Role.TOOL, Role.TOOL, Role.USER, Role.ASSISTANT]
        assert result.messages[5].content == "Hurry."

    @pytest.mark.parametrize("index", [0, 1, 2])
    def test_the_next_request_has_it(self, index: int) -> None:
        model = ScriptedModel(SUM, SUM, say("ok"))
        assert_honest(ScriptDriver(Agent(model=model, tools=[add]), signals={index: [Steer("Hurry.")]}).run("Go."))
        seen = [any(message.content == "Hurry." for message in request.messages) for request in model.requests]
        assert seen == ([False, True, True] if index < 2 else [False, False, True])

    def test_several_come_in_their_order(self) -> None:
        result = run(SUM, say("ok"), signals={0: [Steer("One."), Steer("Two.")], 1: [Steer("Three.")]})
        assert texts(result) == ["Go.", "One.", "Two.", "Three.", "ok"]

    @pytest.mark.parametrize("index", [0, 1])
    def test_a_steered_message_that_comes_with_the_answer_is_answered_too(self, index: int) -> None:
        result = run(say("a"), say("b"), signals={index: [Steer("And?")]})
        assert (texts(result), result.stop, result.text) == (["Go.", "a", "And?", "b"], "completed", "b")

    def test_whether_the_task_is_done_is_asked_when_it_is_answered(self) -> None:
        asked: list[str] = []

        def done(progress: Progress) -> Complete:
            asked.append(progress.text)
            return Complete()

        run(say("a"), say("b"), completion=done, signals={0: [Steer("And?")]})
        assert asked == ["b"]

    def test_a_steered_message_takes_a_turn_like_any_other(self) -> None:
        result = run(say("a"), say("never"), limits=Limits(turns=1), signals={1: [Steer("And?")]})
        assert (result.stop, result.text, result.turns) == ("budget", "Reported.", 1)

    def test_a_steered_message_is_in_the_report_of_a_run_that_meets_its_limit_then(self) -> None:
        model = ScriptedModel(SUM, grace=say("Reported."))
        agent = Agent(model=model, tools=[add], limits=Limits(tool_calls=0))
        assert_honest(ScriptDriver(agent, signals={0: [Steer("Hurry.")]}).run("Go."))
        assert "Hurry." in [message.content for message in model.requests[-1].messages]

    def test_should_continue_is_asked_before_it_is_answered(self) -> None:
        def never(progress: Progress) -> bool:
            return False

        result = run(say("a"), say("never"), should_continue=never, signals={1: [Steer("And?")]})
        assert (result.stop, result.stopped_by, texts(result)) == ("halted", "should_continue", ["Go.", "a", "And?"])


class TestExtend:
    def test_calls_tokens_and_money_can_be_extended(self) -> None:
        result = run(
            SUM,
            SUM,
            say("ok"),
            limits=Limits(tool_calls=1, tokens=3_000),
            signals={1: [Extend({"tool_calls": 1, "tokens": 5_000})]},
        )
        assert (result.stop, result.budgets["tokens"].ceiling) == ("completed", 8_000)
        told = [(event.budget, event.amount) for event in result.events if isinstance(event, Extended)]
        assert told == [("tool_calls", 1), ("tokens", 5_000)]

    def test_never_above_what_the_registry_allows(self) -> None:
        result = run(SUM, say("ok"), limits=Limits(turns=499), signals={0: [Extend({"turns": 100})]})
        assert result.budgets["turns"].ceiling == 500

    def test_seconds_move_the_deadline(self) -> None:
        lines = [SUM.after(80), SUM.after(50), say("ok").after(10)]
        assert run(*lines, limits=Limits(seconds=100)).stop == "deadline"
        result = run(*lines, limits=Limits(seconds=100), signals={0: [Extend({}, 100.0, by="me")]})
        assert (result.stop, result.seconds) == ("completed", 140.0)
        [moved] = [event for event in result.events if isinstance(event, Postponed)]
        assert (moved.seconds, moved.reason) == (100.0, "extended by me")

    def test_a_turn_after_the_report_is_estimated_with_its_tools_again(self) -> None:
        lines = SUM.using(None), say("ok").using(None)
        result = run(*lines, limits=Limits(turns=1), signals={4: [Extend({"turns": 1})]})
        asked = [event for event in result.events if isinstance(event, ModelRequested)]
        assert [event.purpose for event in asked] == ["turn", "grace", "turn"]
        assert asked[2].estimated_tokens > asked[0].estimated_tokens

    def test_what_has_refused_before_may_go_on(self) -> None:
        result = run(
            together(SUM, SUM), SUM, say("ok"), limits=Limits(tool_calls=1), signals={2: [Extend({"tool_calls": 1})]}
        )
        assert [outcome.status for outcome in result.tool_results] == [Status.DONE, Status.DENIED, Status.DONE]
        assert (result.stop, result.flags) == ("completed", ("max_tool_calls_reached",))


class TestOthers:
    def test_a_late_result_is_told_and_changes_nothing(self) -> None:
        quiet, noisy = run(SUM, say("ok")), run(SUM, say("ok"), signals={1: [Late("call-0", "add")]})
        assert [event.kind for event in noisy.events if event.kind == "late_result_dropped"] == ["late_result_dropped"]
        assert (noisy.text, noisy.hung, len(noisy.messages)) == (quiet.text, 0, len(quiet.messages))

    def test_time_that_is_up_lets_a_whole_answer_stand(self) -> None:
        assert run(say("Done."), signals={0: [TimeUp()]}).stop == "completed"

    def test_a_cancel_takes_even_a_whole_answer_but_keeps_its_text(self) -> None:
        for index in (0, 1):
            result = run(say("Done."), signals={index: [Cancel("me")]})
            assert (result.stop, result.stopped_by, result.text) == ("cancelled", "me", "Done.")
            assert result.to_dict()["status"] == "interrupted"

    def test_a_cancel_while_the_report_is_made_is_the_reason_and_the_report_is_kept(self) -> None:
        result = run(SUM, limits=Limits(turns=1), signals={3: [Cancel("me")]})
        assert (result.stop, result.text, result.flags) == ("cancelled", "Reported.", ("max_agent_iterations_reached",))

    def test_a_cancel_when_a_callback_raised_is_the_reason(self) -> None:
        def broken(progress: Progress) -> bool:
            raise ValueError

        assert run(SUM, should_continue=broken, signals={2: [Cancel("me")]}).stop == "cancelled"

    def test_usage_of_a_request_that_was_answered_with_a_cancel_is_booked(self) -> None:
        result = run(say("Half").using(Usage(7, 3)), signals={0: [Cancel()]}, limits=Limits(tokens=9_000))
        assert result.budgets["tokens"].used == 10

    def test_answers_without_mail_change_nothing(self) -> None:
        assert Answer(None, 1.0).signals == ()


def test_a_run_that_stalls_when_no_call_is_left_ends_by_its_budget() -> None:
    model = ScriptedModel(SUM, grace=say("Reported."))
    agent = Agent(model=model, tools=[add], limits=Limits(tool_calls=0))
    result = assert_honest(ScriptDriver(agent, signals={0: [Stalled(3.0)], 1: [Stalled(3.0)]}).run("Go."))
    assert (result.stop, result.flags) == ("budget", ("max_tool_calls_reached",))
