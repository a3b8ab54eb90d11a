"""The request for a report that a very small model gets: short, with examples, and about what really happened."""

import anyio
import pytest

from flyball import Agent, Limits, tool
from flyball.models import LocalModel
from flyball.models.local_report import build_report_messages
from flyball.request import Purpose, Request
from flyball.testing import ScriptedModel, call, say


@tool(poll=True)
def add_coal(shovels: int, where: str = "grate") -> str:
    """Put coal on the fire."""
    if shovels > 9:
        raise RuntimeError("the fire is out")
    return f"{shovels} shovels burn, the pressure is {100 + shovels}"


def grace_request(*lines: object, **limits: int) -> Request:
    """The request for a report of a run with these replies."""
    model = ScriptedModel(*lines, grace=say("Report."))  # pyright: ignore[reportArgumentType]
    Agent(model=model, tools=[add_coal], limits=Limits(**limits)).run("Keep the pressure at 100.")  # pyright: ignore[reportArgumentType]
    [request] = [request for request in model.requests if request.purpose is Purpose.GRACE]
    return request


def ask(request: Request) -> str:
    messages = build_report_messages(request)
    assert messages is not None
    assert [message["role"] for message in messages] == ["system", *["user", "assistant"] * 2, "user"]
    return str(messages[-1]["content"])


def test_a_report_is_asked_about_the_last_call_and_its_result() -> None:
    request = grace_request(call("add_coal", shovels=2), call("add_coal", shovels=3, where="left"), turns=2)
    assert ask(request) == (
        "Task: Keep the pressure at 100.\nLast call: add_coal, shovels = 3, where = left\n"
        "Result: 3 shovels burn, the pressure is 103\nReport."
    )


def test_a_call_that_failed_is_told_as_failed_and_one_that_was_refused_was_not_made() -> None:
    request = grace_request(call("add_coal", shovels=10), turns=1)
    assert "Result: RuntimeError: the fire is out" in ask(request)
    refused = grace_request(call("add_coal", shovels=2), call("add_coal", shovels=3), tool_calls=1)
    assert "shovels = 2" in ask(refused)


def test_without_a_call_the_usual_request_is_sent() -> None:
    assert build_report_messages(Request([], purpose=Purpose.GRACE)) is None


def test_only_the_model_that_is_known_to_be_small_gets_it_and_counts_it() -> None:
    request = grace_request(call("add_coal", shovels=2), turns=1)
    small, large = LocalModel("smollm2"), LocalModel("any.gguf")
    asked = [str(model.build_body(request)["messages"]) for model in (small, large)]
    assert ["Water the plants." in text for text in asked] == [True, False]
    assert small.build_body(request)["repeat_penalty"] == 1.0
    assert 0 < small.count(request) < 600


@pytest.mark.skipif(LocalModel("smollm2").ready() is not None, reason="the weights are not installed")
def test_the_report_of_the_small_model_tells_the_result_and_no_other_number() -> None:
    request = grace_request(call("add_coal", shovels=2), call("add_coal", shovels=3), turns=2)
    text = anyio.run(LocalModel("smollm2", max_output_tokens=60).ask, request).text
    assert "103" in text
    assert "not finished" in text
    assert "sorry" not in text.lower()
