"""Length of the results that a model sees."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from flyball import Agent, ConfigError, tool
from flyball.event import ResultReplaced
from flyball.outcome import Failure
from flyball.progress import Notice, Order, Point, Progress, ReplaceResult
from flyball.result import Result
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, say


@tool
def read(count: int = 2_000) -> str:
    """Read."""
    return "x" * count


@tool(max_result_characters=5_000)
def read_more(count: int = 2_000) -> str:
    """Read more."""
    return "x" * count


def describe_length(text: str, most: int) -> str:
    return f"{most} of {len(text)}"


def return_all(text: str, most: int) -> str:
    return text


def fail_always(text: str, most: int) -> str:
    raise ValueError("no")


def return_none(text: str, most: int) -> Any:
    return None


def run(name: str, **options: Any) -> tuple[str, Result]:
    model = ScriptedModel(call(name), say("Done."))
    tools = options.pop("tools", [read, read_more])
    result = assert_honest(ScriptDriver(Agent(model=model, tools=tools, **options)).run("Go."))
    return model.requests[1].messages[-1].content, result


def test_a_result_over_the_agents_maximum_is_shown_as_an_excerpt() -> None:
    shown, result = run("read", max_result_characters=800)
    assert (len(shown) <= 800, json.loads(shown)["characters"]) == (True, 2_000)
    assert result.tool_results[0].artifact is not None


def test_a_tools_own_maximum_wins_and_the_tool_itself_is_not_changed() -> None:
    assert len(run("read_more", max_result_characters=800)[0]) == 2_000
    assert read.max_result_characters == 12_000


def test_an_agents_excerpt_is_used_for_its_tools() -> None:
    assert run("read", max_result_characters=800, excerpt=describe_length, recall=False)[0] == "800 of 2000"


def test_an_own_excerpt_has_a_note_with_the_id_that_read_artifact_takes() -> None:
    shown, result = run("read", max_result_characters=800, excerpt=describe_length)
    artifact = result.tool_results[0].artifact
    assert artifact is not None
    assert shown.endswith("\n800 of 2000")
    assert shown.count(artifact.id) == 1


def test_an_own_excerpt_that_names_the_artifact_has_no_note() -> None:
    def name_it(text: str, most: int) -> str:
        return "see r:call-0"

    model = ScriptedModel(call("read"), say("Done."))
    agent = Agent(model=model, tools=[read], max_result_characters=800, excerpt=name_it)
    assert assert_honest(ScriptDriver(agent).run("Go.", run_id="r")).tool_results[0].text == "see r:call-0"


@pytest.mark.parametrize("excerpt", [return_all, fail_always, return_none])
def test_an_excerpt_that_fails_or_does_not_fit_is_replaced_by_the_usual_one(excerpt: Any) -> None:
    shown, _ = run("read", max_result_characters=800, excerpt=excerpt)
    assert json.loads(shown)["characters"] == 2_000


def test_a_long_error_is_shortened_too() -> None:
    @tool(max_result_characters=600, excerpt=lambda text, most: "short")
    def fail() -> None:
        """Fail."""
        raise ValueError("y" * 900)

    shown, result = run("fail", tools=[fail])
    outcome = result.tool_results[0]
    assert isinstance(outcome, Failure)
    assert (shown.endswith("\nValueError: short"), len(outcome.whole_error or "")) == (True, 900)


async def later(text: str, most: int) -> str:
    return text


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_result_characters", 499), ("max_result_characters", "x"), ("excerpt", 1), ("excerpt", later)],
)
def test_options_that_cannot_be_used_are_refused(name: str, value: Any) -> None:
    options: Any = {name: value}
    with pytest.raises(ConfigError, match=name):
        tool(name="read", **options)(lambda: None)
    with pytest.raises(ConfigError, match=name):
        Agent(model=ScriptedModel(), **options)


class TestReplaceResult:
    def test_a_hook_shows_the_model_another_text_and_the_outcome_stays(self) -> None:
        def hide(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return [ReplaceResult("hidden", "me")] if point is Point.TOOL_ENDED else ()

        shown, result = run("read", hooks=[hide], completion={"required_tool_names": ["read"]})
        assert (shown, len(result.tool_results[0].text), result.stop) == ("hidden", 2_000, "completed")
        replaced = [event for event in result.events if isinstance(event, ResultReplaced)]
        assert [(event.tool, event.by) for event in replaced] == [("read", "me")]

    @pytest.mark.parametrize("order", [ReplaceResult("x"), ReplaceResult(7)])  # type: ignore[arg-type]
    def test_elsewhere_or_without_a_text_it_is_a_fault_and_the_run_continues(self, order: ReplaceResult) -> None:
        def odd(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            wrong = Point.TOOL_ENDED if order.text != "x" else Point.TURN_STARTED
            return [order, Notice("n")] if point is wrong else ()

        shown, result = run("read", hooks=[odd])
        assert (len(shown), result.stop, bool(result.faults)) == (2_000, "completed", True)
