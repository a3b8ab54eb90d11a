"""Recall: the model reads more of a result that it saw in part."""

from collections.abc import Sequence
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.event import ToolEnded, ToolStarted
from flyball.outcome import Success
from flyball.progress import Order, Point, Progress, ReplaceResult
from flyball.result import Result
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, say, together

PAGES = "".join(f"page {n:04d} " for n in range(2_000))


@tool(effects="read")
def read(kind: str = "text") -> Any:
    """Read everything."""
    if kind == "error":
        raise ValueError(PAGES)
    return PAGES if kind == "text" else {"pages": PAGES}


@tool
def short() -> str:
    """Say little."""
    return "x"


def run(*lines: Line, **options: Any) -> tuple[Result, ScriptedModel]:
    model = ScriptedModel(*lines, grace=say("R."))
    tools = options.pop("tools", [read, short])
    return assert_honest(ScriptDriver(Agent(model=model, tools=tools, **options)).run("Go.", run_id="r")), model


def offered(model: ScriptedModel) -> list[bool]:
    return ["read_artifact" in [tool["name"] for tool in request.tools] for request in model.requests]


def recall(offset: int, length: int = 20, id: str = "r:call-0") -> Any:
    return call("read_artifact", id=id, offset=offset, length=length)


def test_the_tool_is_offered_from_the_first_excerpt_on() -> None:
    result, model = run(call("short"), call("read"), say("x"))
    assert (offered(model), result.tool_results[1].artifact is not None) == ([False, False, True], True)


@pytest.mark.parametrize("kind", ["text", "table", "error"])
def test_the_model_reads_the_part_that_it_asks_for(kind: str) -> None:
    result, _ = run(call("read", kind=kind), recall(15_000), say("x"))
    shown = result.tool_results[1].text
    assert (result.tool_results[1].ok, shown.partition("\n")[2] in PAGES, "15000 to 15020" in shown) == (True,) * 3


def test_a_part_past_the_end_and_an_unknown_artifact_say_so() -> None:
    result, _ = run(call("read"), together(recall(10**6), recall(0, id="nothing")), say("x"))
    assert "20000 characters" in result.tool_results[1].text
    assert (result.tool_results[2].status, "r:call-0" in result.tool_results[2].text) == ("failed", True)


def test_a_part_is_at_most_8000_characters_long() -> None:
    result, _ = run(call("read"), recall(0, 10**6), say("x"))
    assert 8_000 < len(result.tool_results[1].text) < 8_100


def test_its_calls_are_counted_and_have_their_events() -> None:
    result, _ = run(call("read"), recall(0), recall(20), limits=Limits(tool_calls=2))
    assert (result.stop, result.budgets["tool_calls"].used) == ("budget", 2)
    assert [outcome.status for outcome in result.tool_results] == ["done", "done", "denied"]
    for kind in (ToolStarted, ToolEnded):
        assert "read_artifact" in [event.tool for event in result.events if isinstance(event, kind)]


def test_wrong_arguments_are_denied() -> None:
    result, _ = run(call("read"), recall(-1), say("x"))
    assert result.tool_results[1].status == "denied"


def test_recall_can_be_switched_off() -> None:
    result, model = run(call("read"), recall(0), say("x"), recall=False)
    assert (offered(model), result.tool_results[1].status) == ([False] * 3, "denied")


def test_a_tool_of_the_user_with_that_name_is_used_in_its_place() -> None:
    @tool
    def read_artifact(id: str) -> str:
        """Read it elsewhere."""
        return "mine"

    result, model = run(call("read"), call("read_artifact", id="x"), say("x"), tools=[read, read_artifact])
    assert (offered(model), result.tool_results[1].text) == ([True] * 3, "mine")


def test_a_limited_run_counts_the_tokens_of_the_offered_tool() -> None:
    (_, plain), (_, with_recall) = (
        run(call("read"), say("x"), recall=is_on, limits=Limits(tokens=100_000)) for is_on in (False, True)
    )
    before, after = (model.requests[1].tools for model in (plain, with_recall))
    assert len(after) == len(before) + 1


class TestReplaced:
    """A hook hides a result from the model. No other way may show it."""

    @staticmethod
    def hide(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        hidden = point is Point.TOOL_ENDED and isinstance(about, Success) and about.tool == "read"
        return [ReplaceResult("hidden")] if hidden else ()

    def check(self, model: ScriptedModel) -> None:
        texts = [message.content for request in model.requests for message in request.messages]
        assert "hidden" in texts
        assert not any("page" in text for text in texts)

    def test_a_replaced_result_cannot_be_recalled(self) -> None:
        result, model = run(call("read"), recall(0), say("x"), hooks=[self.hide])
        assert [outcome.status for outcome in result.tool_results] == ["done", "failed"]
        self.check(model)

    @pytest.mark.parametrize("duplicates", ["reject", "reuse"])
    def test_an_equal_call_is_answered_with_what_the_model_read(self, duplicates: Any) -> None:
        result, model = run(call("read"), call("read"), say("x"), hooks=[self.hide], duplicates=duplicates)
        assert result.tool_results[1].same_as == "call-0"
        self.check(model)
