"""Results that report a failure."""

from collections import OrderedDict
from typing import Any

import pytest

from flyball import Agent, tool
from flyball.outcome import Failure, Success
from flyball.request import Call
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, say
from flyball.tools import BoundedToolExecutor, FinalResult, ToolContext

FAILURES: list[Any] = [
    {"success": False},
    {"success": False, "error": None, "url": "x"},
    {"error": "not found"},
    {"error": {"code": 404}},
    OrderedDict(error="not found"),
    FinalResult({"success": False}),
]
DATA: list[Any] = [
    {"success": True, "error": "ignored"},
    {"success": None, "error": "x"},
    {"success": 0},
    {"error": ""},
    {"error": None},
    {},
    [{"success": False}],
    '{"success": false}',
    {"data": {"success": False}},
]


def execute(value: Any, **options: Any) -> Any:
    @tool(name="work", **options)
    def work() -> Any:
        """Work."""
        return value

    return BoundedToolExecutor([work]).execute(Call("1", "work", {}))[0]


@pytest.mark.parametrize("value", FAILURES)
def test_a_mapping_that_reports_a_failure_is_a_failed_call(value: Any) -> None:
    outcome = execute(value)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.error[:1]) == ("UnsuccessfulResult", "{")


@pytest.mark.parametrize("value", FAILURES)
def test_result_is_data_takes_no_mapping_for_a_failure(value: Any) -> None:
    assert isinstance(execute(value, result_is_data=True), Success)


@pytest.mark.parametrize("value", DATA)
def test_other_results_are_data(value: Any) -> None:
    assert isinstance(execute(value), Success)


def test_a_long_reported_failure_is_shown_as_an_excerpt_and_kept_whole() -> None:
    outcome = execute({"error": "x" * 20_000})
    assert (len(outcome.error) <= 12_000, len(outcome.whole_error) > 20_000) == (True, True)


def test_a_reported_failure_in_an_async_tool_changes_no_state_and_proves_nothing() -> None:
    @tool
    async def publish(ctx: ToolContext) -> dict[str, bool]:
        """Publish."""
        ctx.state["published"] = True
        return {"success": False}

    model = ScriptedModel(call("publish"), say("Done."), say("Done."))
    asked = {"required_tool_names": ["publish"]}
    result = Agent(model=model, tools=[publish], completion=asked).run("Go.")
    assert (result.state, result.completion["missing"]) == ({}, ["required tool publish"])
    assert [outcome.status for outcome in result.tool_results] == ["failed"]


def test_a_reported_failure_of_a_tool_that_ends_the_run_does_not_end_it() -> None:
    @tool(ends_run=True)
    def submit() -> dict[str, str]:
        """Submit."""
        return {"error": "closed"}

    agent = Agent(model=ScriptedModel(call("submit"), say("It is closed.")), tools=[submit])
    assert assert_honest(ScriptDriver(agent).run("Go.")).text == "It is closed."
