"""Results that end the run: tools that say so, and open assertions that hold first."""

from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.event import Nudged
from flyball.loop.effects import Cancel, Steer
from flyball.progress import Complete, Continue, Decision, Progress
from flyball.request import Call
from flyball.result import Result
from flyball.store.codec import Codec
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, say, together
from flyball.tools import BoundedToolExecutor, FinalResult


@tool(ends_run=True)
def submit(total: int) -> dict[str, int]:
    """Submit the answer."""
    return {"total": total}


@tool
def ask(question: str) -> object:
    """Ask another service, which may know the answer."""
    return FinalResult("It is known.") if question == "known" else "Ask again."


@tool(effects="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(ends_run=True)
def refuse() -> str:
    """Fail."""
    raise ValueError("no")


def run(*lines: Line, signals: Any = None, **options: Any) -> Result:
    agent = Agent(model=ScriptedModel(*lines, grace=say("R.")), tools=[submit, ask, look, refuse], **options)
    return assert_honest(ScriptDriver(agent, signals=signals or {}).run("Go."))


def nudges(result: Result) -> int:
    return sum(isinstance(event, Nudged) for event in result.events)


def test_a_tool_that_ends_the_run_gives_its_answer() -> None:
    result = run(call("submit", total=3))
    assert (result.stop, result.text, result.requests, result.turns) == ("completed", '{"total":3}', 1, 1)
    assert result.to_dict()["final_content"] == '{"total":3}'


def test_a_result_that_says_so_ends_the_run_and_others_of_the_tool_do_not() -> None:
    result = run(call("ask", question="x"), call("ask", question="known"))
    assert (result.stop, result.text, result.requests) == ("completed", "It is known.", 2)
    assert [outcome.ends_run for outcome in result.tool_results if outcome.ok] == [False, True]  # type: ignore[union-attr]


def test_a_failed_call_of_a_tool_that_ends_the_run_does_not_end_it() -> None:
    result = run(call("refuse"), say("Sorry."))
    assert (result.stop, result.text) == ("completed", "Sorry.")


def test_the_first_final_result_of_a_batch_is_the_answer_and_all_calls_have_outcomes() -> None:
    result = run(together(call("submit", total=1), call("submit", total=2), call("look")))
    assert (result.text, [outcome.status for outcome in result.tool_results]) == ('{"total":1}', ["done"] * 3)


def test_open_assertions_must_hold_before_a_final_result_ends_the_run() -> None:
    lines = [call("submit", total=3), call("look"), call("submit", total=3)]
    result = run(*lines, completion={"required_tool_names": ["look"]}, duplicates="reject")
    assert (result.stop, result.text, result.requests, nudges(result)) == ("completed", '{"total":3}', 3, 1)


def test_a_final_result_without_a_nudge_left_ends_as_unfinished() -> None:
    asked = {"required_tool_names": ["look"]}
    result = run(call("submit", total=3), completion=asked, limits=Limits(nudges=0))
    assert (result.stop, result.text) == ("unfinished", '{"total":3}')


def test_a_policy_sees_the_final_result_as_the_text_of_the_run() -> None:
    seen: list[tuple[bool, str]] = []

    def look_at(progress: Progress) -> Decision:
        seen.append((progress.after_calls, progress.text))
        return Complete() if len(seen) > 1 else Continue("Again.")

    result = run(say("Thinking.", call("submit", total=3)), call("submit", total=4), completion=look_at)
    assert (result.stop, seen) == ("completed", [(False, '{"total":3}'), (False, '{"total":4}')])


def test_a_final_result_must_have_the_form_of_the_output() -> None:
    result = run(call("ask", question="known"), call("submit", total=3), output=dict[str, int])
    assert (result.stop, result.output, nudges(result)) == ("completed", {"total": 3}, 1)


def test_a_final_result_that_the_model_saw_in_part_is_the_answer_in_full() -> None:
    @tool(ends_run=True)
    def report() -> list[str]:
        """Report."""
        return ["x" * 9_000, "y" * 9_000]

    result = assert_honest(ScriptDriver(Agent(model=ScriptedModel(call("report")), tools=[report])).run("Go."))
    assert (result.stop, len(result.text) > 18_000) == ("completed", True)


def test_a_reused_final_result_ends_the_run_too() -> None:
    asked = {"required_tool_names": ["look"]}
    lines = [call("ask", question="known"), call("look"), call("ask", question="known")]
    result = run(*lines, completion=asked, duplicates="reuse")
    assert (result.stop, result.text, result.requests) == ("completed", "It is known.", 3)


def test_a_cancelled_run_is_not_completed_by_a_final_result() -> None:
    assert run(call("submit", total=3), signals={1: [Cancel("me")]}).stop == "cancelled"


def test_a_steered_run_answers_the_user_after_a_final_result() -> None:
    result = run(call("submit", total=3), say("Yes."), signals={1: [Steer("And?")]})
    assert (result.stop, result.text, result.requests) == ("completed", "Yes.", 2)


def test_an_executor_marks_final_results_for_the_loop_around_it() -> None:
    executor = BoundedToolExecutor([submit, look])
    outcomes = executor.execute(Call("1", "submit", {"total": 3}), Call("2", "look", {}))
    assert [getattr(outcome, "ends_run", None) for outcome in outcomes] == [True, False]


@pytest.mark.parametrize("value", ["yes", 1])
def test_ends_run_is_true_or_false(value: Any) -> None:
    with pytest.raises(ValueError, match="ends_run"):
        tool(ends_run=value)(lambda: None)


def test_a_final_result_is_still_final_when_it_is_read_from_a_journal() -> None:
    code, outcome = Codec(), run(call("submit", total=3)).tool_results[0]
    assert code.loads(code.dumps(outcome)) == outcome
