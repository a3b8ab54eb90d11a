"""Runs that pause and resume: questions of one batch in any order, and a question at every limit."""

import pytest

from flyball import Agent, Limits, tool
from flyball.person import allow, deny, extend
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, say, together


@tool(poll=True)
def touch() -> None:
    """Touch it."""


@pytest.mark.parametrize("order", [["call-0", "call-1"], ["call-1", "call-0"]])
def test_the_questions_of_a_batch_are_answered_in_any_order(order: list[str]) -> None:
    done: list[str] = []

    @tool(approve=True)
    def delete(path: str) -> None:
        """Delete it."""
        done.append(path)

    model = ScriptedModel(together(call("delete", path="call-0"), call("delete", path="call-1")), say("ok"))
    script = ScriptDriver(Agent(model=model, tools=[delete]))
    script.run("Go.")
    second = script.resume({order[0]: allow()})
    assert ([question.id for question in second.questions], done) == ([order[1]], [])
    assert script.resume({order[1]: deny()}).completed
    assert done == [order[0]]


def test_a_run_that_asks_for_more_pauses_at_each_limit_and_reports_after_a_no() -> None:
    model = ScriptedModel.looping(call("touch"), grace=say("I report."))
    script = ScriptDriver(Agent(model=model, tools=[touch], on_exhausted="ask", limits=Limits(turns=1)))
    assert script.run("Go.").stop == "paused"
    second = script.resume({"turns-1": extend(1)})
    assert (second.stop, second.turns) == ("paused", 2)
    result = assert_honest(script.resume({"turns-2": deny()}))
    assert (result.stop, result.text, len(result.tool_results)) == ("budget", "I report.", 2)
