"""Record of a run: its outcome, tool results and usage."""

from typing import Any

import pytest

from flyball import Agent, Result, Stop, tool
from flyball.budget.usage import Usage
from flyball.record import from_record, to_record
from flyball.testing import ScriptedModel, call, call_json, say, together


@tool(sensitive=["key"])
def login(name: str, key: str = "") -> str:
    """Log in."""
    return name


def test_tool_results_have_their_parameters_and_their_turn() -> None:
    model = ScriptedModel(
        call("login", name="ann", key="s3"), together(call("login", name="bob"), call("nobody")), say("x")
    )
    rows = Agent(model=model, tools=[login]).run("Go.").to_dict()["tool_execution_results"]
    assert [(row["turn"], row["parameters"]) for row in rows] == [
        (1, {"name": "ann", "key": "***"}),
        (2, {"name": "bob"}),
        (2, {}),
    ]


def test_parameters_that_are_no_json_are_shown_as_written() -> None:
    rows = Agent(model=ScriptedModel(call_json("login", "{"), say("x")), tools=[login]).run("Go.").to_dict()
    assert rows["tool_execution_results"][0]["parameters"] in ("{", "***")


@pytest.mark.parametrize(
    ("result", "retryable"),
    [
        (Result(stop=Stop.COMPLETED), False),
        (Result(stop=Stop.CONTENDED), True),
        (Result(stop=Stop.FAILED, error={"code": "overloaded"}, flags=("max_retries_reached",)), True),
        (Result(stop=Stop.FAILED, error={"code": "content_filter"}), False),
        (Result(stop=Stop.DEADLINE, error={"code": "overloaded"}), True),
        (Result(stop=Stop.DEADLINE), False),
        (Result(stop=Stop.BUDGET), False),
    ],
)
def test_a_run_is_retryable_if_it_may_succeed_later_without_a_change(result: Result, retryable: bool) -> None:
    record = to_record(result)
    code = None if result.error is None else result.error["code"]
    expected = {"status": record["status"], "stop": result.stop.value, "retryable": retryable, "error_code": code}
    assert (record["run_outcome"], record["schema_version"]) == (expected, 1)


def test_usage_has_the_names_of_both_providers_and_is_read_back_exactly() -> None:
    result = Result(stop=Stop.COMPLETED, usage=Usage(40, 10, 5, 3, 2))
    usage: dict[str, Any] = to_record(result)["usage"]
    names = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "cached")
    assert [usage[name] for name in names] == [40, 10, 50, 40, 10, 5]
    assert from_record(to_record(result)).usage == result.usage
