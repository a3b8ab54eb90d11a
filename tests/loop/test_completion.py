"""Whether a run may end when the model has asked for nothing more."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from flyball import Agent, ConfigError, Limits, tool
from flyball.event import CompletionChecked, Nudged
from flyball.loop.effects import Cancel, Steer
from flyball.message import Role
from flyball.progress import Complete, Continue, Decision, Progress, Unfinished
from flyball.request import Finish
from flyball.result import Result
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, say


class Answer(BaseModel):
    total: int
    unit: str = "m"


@dataclass
class Point:
    x: int
    y: int


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SUM = call("add", a=1, b=2)
GOOD, BAD = say('{"total": 3}'), say('{"total": "three"}')


def run(*lines: Line, limits: Limits | None = None, **options: Any) -> Result:
    model = ScriptedModel(*lines, grace=say("Reported."))
    return assert_honest(ScriptDriver(Agent(model=model, tools=[add], limits=limits or Limits(), **options)).run("Go."))


def policy(*decisions: Decision) -> Callable[[Progress], Decision]:
    """One that says these things in turn, and the last of them from then on."""
    left = list(decisions)
    return lambda progress: left.pop(0) if len(left) > 1 else left[0]


def events(result: Result, kind: type[Any]) -> list[Any]:
    return [event for event in result.events if isinstance(event, kind)]


class TestNaturalCompletion:
    def test_without_a_policy_a_reply_without_calls_is_the_end(self) -> None:
        result = run(say("Done."))
        assert (result.stop, result.text, result.finish) == ("completed", "Done.", "stop")
        assert events(result, CompletionChecked) == []

    def test_a_policy_may_agree(self) -> None:
        result = run(say("Done."), completion=policy(Complete("value")))
        assert (result.stop, result.output) == ("completed", "value")
        assert [(event.complete, event.missing) for event in events(result, CompletionChecked)] == [(True, ())]

    def test_a_policy_is_asked_after_tool_results_and_when_the_model_has_ended(self) -> None:
        seen: list[tuple[int, bool, str, int]] = []

        def look(progress: Progress) -> Decision:
            seen.append((progress.turn, progress.after_calls, progress.text, len(progress.results)))
            return Complete()

        result = run(SUM, SUM, say("Done."), completion=look)
        assert seen == [(1, True, "", 1), (2, True, "", 2), (3, False, "Done.", 2)]
        assert (result.stop, result.text, len(events(result, CompletionChecked))) == ("completed", "Done.", 1)

    def test_a_policy_with_a_text_replaces_the_answer_of_the_model(self) -> None:
        result = run(say("Done."), completion=policy(Complete("value", text="Really done.")))
        assert (result.stop, result.text, result.output) == ("completed", "Really done.", "value")

    def test_a_policy_may_say_that_more_turns_would_not_help(self) -> None:
        result = run(say("No."), completion=policy(Unfinished(("a file",))))
        assert (result.stop, result.requests, result.flags) == ("unfinished", 1, ())
        assert [event.missing for event in events(result, CompletionChecked)] == [("a file",)]
        assert result.to_dict()["status"] == "incomplete"


class TestCompletionAfterToolResults:
    def test_a_policy_that_has_an_answer_ends_the_run_without_another_request(self) -> None:
        result = run(SUM, completion=policy(Complete(3, text="The sum is 3.")))
        assert (result.stop, result.text, result.output, result.requests) == ("completed", "The sum is 3.", 3, 1)
        assert [event.complete for event in events(result, CompletionChecked)] == [True]

    @pytest.mark.parametrize("decision", [Continue("More."), Unfinished(("x",)), Complete("no text")])
    def test_a_decision_without_an_answer_lets_the_model_continue_without_a_nudge(self, decision: Decision) -> None:
        result = run(SUM, say("Done."), completion=policy(decision, Complete()))
        assert (result.stop, result.text, result.requests) == ("completed", "Done.", 2)
        assert events(result, Nudged) == []

    def test_a_policy_is_not_asked_when_no_call_was_made(self) -> None:
        seen: list[bool] = []

        def look(progress: Progress) -> Decision:
            seen.append(progress.after_calls)
            return Complete(text="x")

        run(call("unknown"), say("Done."), completion=look)
        assert seen == [False]

    def test_a_decision_that_is_none_fails_the_run(self) -> None:
        def confused(progress: Progress) -> Any:
            return "done"

        result = run(SUM, say("Never."), completion=confused)
        assert (result.stop, result.requests) == ("failed", 1)

    def test_an_answer_of_the_policy_must_have_the_form_of_the_output(self) -> None:
        result = run(SUM, SUM, output=Answer, completion=policy(Complete(text="3"), Complete(text='{"total": 3}')))
        assert (result.stop, result.output, result.text) == ("completed", Answer(total=3), '{"total": 3}')
        assert (result.requests, events(result, Nudged)) == (2, [])

    def test_a_cancelled_run_is_not_completed_by_its_policy(self) -> None:
        agent = Agent(model=ScriptedModel(SUM), tools=[add], completion=policy(Complete(text="3")))
        result = assert_honest(ScriptDriver(agent, signals={1: [Cancel("me")]}).run("Go."))
        assert (result.stop, result.stopped_by) == ("cancelled", "me")

    def test_a_steered_run_continues_after_its_policy_had_an_answer(self) -> None:
        agent = Agent(model=ScriptedModel(SUM, say("Yes.")), tools=[add], completion=policy(Complete(text="3")))
        result = assert_honest(ScriptDriver(agent, signals={1: [Steer("And?")]}).run("Go."))
        assert (result.stop, result.requests) == ("completed", 2)


class TestNudges:
    @pytest.mark.parametrize("nudges", [1, 2, 3])
    def test_the_model_is_told_and_goes_on(self, nudges: int) -> None:
        decisions = [*[Continue("The file is missing.", ("file",))] * nudges, Complete()]
        result = run(*[say("Done.")] * nudges, say("Now."), completion=policy(*decisions))
        assert (result.stop, result.text, result.budgets["nudges"].used) == ("completed", "Now.", nudges)
        told = [message for message in result.messages if message.content == "The file is missing."]
        assert [message.role for message in told] == [Role.USER] * nudges
        assert [event.missing for event in events(result, Nudged)] == [("file",)] * nudges

    @pytest.mark.parametrize("nudges", [0, 1, 3])
    def test_when_none_is_left_the_run_is_unfinished(self, nudges: int) -> None:
        result = run(*[say("Done.")] * 9, limits=Limits(nudges=nudges), completion=policy(Continue("More.")))
        assert (result.stop, result.flags) == ("unfinished", ("max_nudges_reached",))
        assert (result.turns, result.budgets["nudges"].used) == (nudges + 1, nudges)
        assert result.text == "Done."

    def test_a_nudge_takes_a_turn_like_any_other(self) -> None:
        result = run(*[say("Done.")] * 9, limits=Limits(turns=2), completion=policy(Continue("More.")))
        assert (result.stop, result.turns, result.text) == ("budget", 2, "Reported.")

    def test_calls_may_come_between_nudges(self) -> None:
        result = run(say("a"), SUM, say("b"), completion=policy(Continue("Add."), Complete()))
        assert (result.stop, result.turns, len(result.tool_results)) == ("completed", 3, 1)


class TestOutput:
    def test_the_answer_is_a_value_of_the_type(self) -> None:
        result = run(GOOD, output=Answer)
        assert (result.output, result.stop, result.text) == (Answer(total=3), "completed", '{"total": 3}')
        assert result.to_dict()["output"] == {"total": 3, "unit": "m"}

    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [
            (int, "7", 7),
            (list[int], "[1, 2]", [1, 2]),
            (Point, '{"x": 1, "y": 2}', Point(1, 2)),
            (Answer, '```json\n{"total": 3}\n```', Answer(total=3)),
            (Answer, '```\n{"total": 3}\n```\n', Answer(total=3)),
            (dict[str, int], '{"a": 1}', {"a": 1}),
        ],
    )
    def test_any_type_that_json_can_carry_will_do(self, kind: Any, text: str, value: object) -> None:
        assert run(say(text), output=kind).output == value

    def test_a_reply_that_does_not_fit_is_told_every_mistake(self) -> None:
        result = run(say('{"total": "x", "unit": 3}'), GOOD, output=Answer)
        told = result.messages[2]
        assert (told.role, result.output) == (Role.USER, Answer(total=3))
        assert "total" in told.content
        assert "unit" in told.content
        assert result.budgets["nudges"].used == 1

    @pytest.mark.parametrize("text", ["", "Three.", "[]", "{", '{"unit": "m"}', "null"])
    def test_nonsense_is_told_and_not_taken(self, text: str) -> None:
        lines = [say(text), say(text)] if not text else [say(text)]
        result = run(*lines, GOOD, output=Answer)
        assert (result.output, result.stop) == (Answer(total=3), "completed")

    @pytest.mark.parametrize("nudges", [0, 2])
    def test_an_output_that_does_not_fit_is_told_within_the_nudges(self, nudges: int) -> None:
        result = run(*[BAD] * 9, limits=Limits(nudges=nudges), output=Answer)
        assert (result.stop, result.output, result.turns) == ("unfinished", None, nudges + 1)
        assert result.flags == ("max_nudges_reached",)

    def test_the_model_is_shown_the_schema(self) -> None:
        model = ScriptedModel(GOOD)
        ScriptDriver(Agent(model=model, output=Answer)).run("Go.")
        assert model.requests[0].output_schema == Answer.model_json_schema()

    def test_the_report_of_a_run_that_met_a_limit_is_no_output(self) -> None:
        result = run(SUM, limits=Limits(turns=1), output=Answer)
        assert (result.stop, result.output, result.text) == ("budget", None, "Reported.")

    def test_a_policy_of_the_callers_has_its_say_too(self) -> None:
        result = run(GOOD, GOOD, output=Answer, completion=policy(Continue("Really?"), Complete()))
        assert (result.output, result.turns) == (Answer(total=3), 2)

    def test_a_type_that_json_cannot_carry_is_refused(self) -> None:
        class Odd:
            pass

        with pytest.raises(ConfigError, match="agent, output"):
            Agent(model=ScriptedModel(GOOD), output=Odd)


class TestFinishes:
    def test_a_reply_at_its_greatest_length_is_an_answer_that_is_marked(self) -> None:
        result = run(say("Once upon a").ending("length"))
        assert (result.stop, result.text, result.finish) == ("completed", "Once upon a", "length")

    @pytest.mark.parametrize("line", [say("Half"), say("Half", SUM), SUM, say("")])
    def test_a_filtered_reply_is_told_in_the_result(self, line: Line) -> None:
        result = run(line.ending("content_filter"), say("never"))
        assert (result.stop, result.finish, result.requests) == ("failed", "content_filter", 1)
        assert result.error is not None
        assert result.error["code"] == "content_filter"
        assert result.text == line.text
        assert not any(outcome.ok for outcome in result.tool_results)

    @pytest.mark.parametrize("line", [say("I can't help."), say("I can't help.", SUM)])
    def test_a_refusal_is_a_failure_of_its_own(self, line: Line) -> None:
        result = run(line.ending("refusal"), say("never"))
        assert (result.stop, result.finish, result.requests) == ("failed", "refusal", 1)
        assert result.error is not None
        assert result.error["code"] == "refusal"
        assert result.error["message"].endswith("I can't help.")
        assert not any(outcome.ok for outcome in result.tool_results)

    def test_a_filtered_reply_is_not_asked_about(self) -> None:
        assert run(say("x").ending("content_filter"), completion=policy(Continue("More."))).requests == 1

    @pytest.mark.parametrize("line", [say("A long answer"), say("A long answer", SUM)])
    def test_a_reply_cut_by_the_deadline_keeps_its_text_and_its_calls_are_not_made(self, line: Line) -> None:
        result = run(line.after(1_000), limits=Limits(seconds=100))
        assert (result.stop, result.text, result.seconds) == ("deadline", "Reported.", 85.0)
        assert [message.content for message in result.messages][1] == "A long"

    def test_a_reply_that_says_it_was_cut_is_denied_its_calls(self) -> None:
        result = run(say("Half", SUM).ending(Finish.CUT))
        assert (result.stop, result.text, result.stopped_by) == ("cancelled", "Half", "driver")
        assert [outcome.status for outcome in result.tool_results] == ["denied"]

    def test_a_whole_answer_that_came_in_time_is_one_though_the_time_is_over_now(self) -> None:
        result = run(say("Done.").after(84.9), limits=Limits(seconds=100))
        assert (result.stop, result.flags) == ("completed", ())
