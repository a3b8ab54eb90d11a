"""Tools of a real MCP server, made with the SDK, in an agent's run: over pipes, and over HTTP."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, Limits, Result
from flyball.event import Event, ToolReported
from flyball.outcome import Outcome
from flyball.testing import ScriptedModel, call, say, together, until
from flyball.tools import Effects, mcp

Door = Callable[[Agent], Result]


def by_tool(result: Result) -> dict[str, Outcome]:
    """The first outcome of each tool."""
    return {outcome.tool: outcome for outcome in reversed(result.tool_results)}


def value(outcome: Outcome) -> Any:
    return getattr(outcome, "value", None)


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks") / "marks.txt"


@pytest.fixture(scope="module")
def seen() -> list[Event]:
    return []


@pytest.fixture(scope="module")
def result(marks: Path, seen: list[Event]) -> Result:
    """One run of all the tools, as starting the server takes a second."""
    here = Path(__file__).parent
    model = ScriptedModel(
        together(call("t_add", a=1, b=2), call("t_add", a="1"), call("t_big", characters=50_000)),
        call("t_refuse", why="no reason"),
        together(call("t_picture"), call("t_person", name="Ada")),
        call("t_inside"),
        call("t_slow", marks=str(marks)),
        call("t_person", name="Bob"),
        call("t_crash", code=3),
        say("That is all."),
    )
    source = mcp(
        [sys.executable, str(here / "sdk_server.py")],
        prefix="t_",
        env={"SECRET_OF_THE_SERVER": "xyzzy", "WORD": "cheese"},
        cwd=here,
        name="the server",
    )
    limits = Limits(tool_seconds={"t_slow": 1.5})
    return Agent(model=model, tools=[source], limits=limits, sinks=[seen.append]).run("go")


class TestOverPipes:
    def test_a_run_with_tools_over_pipes_completes(self, result: Result) -> None:
        assert (result.stop, result.text) == ("completed", "That is all.")

    def test_a_value_is_the_structured_content(self, result: Result) -> None:
        assert result.tool_results[0].text == '{"result":3}'
        assert value(by_tool(result)["t_person"]) == {"name": "Ada", "town": "Ulm"}

    def test_wrong_arguments_never_reach_the_server(self, result: Result, snapshot: Callable[..., None]) -> None:
        wrong = result.tool_results[1]
        assert wrong.status == "denied"
        snapshot(wrong.text)

    def test_a_large_result_is_cut_as_any_other(self, result: Result) -> None:
        big = by_tool(result)["t_big"]
        assert big.artifact is not None
        assert len(big.text) <= 12_000
        assert value(big) == {"result": "x" * 50_000}

    def test_an_error_is_a_failed_outcome_with_its_words(self, result: Result) -> None:
        refused = by_tool(result)["t_refuse"]
        assert (refused.status, refused.text) == ("failed", "ToolFailed: Error executing tool refuse: no: no reason")

    def test_a_picture_is_left_out_and_a_line_says_so(self, result: Result) -> None:
        said = by_tool(result)["t_picture"].text
        assert said.startswith("a red dot\n")
        assert "image/png, 42" in said

    def test_the_server_inherits_no_more_than_it_needs(self, result: Result) -> None:
        inside = value(by_tool(result)["t_inside"])
        assert inside["environment"]["SECRET_OF_THE_SERVER"] == "xyzzy"
        assert set(inside["environment"]) <= {
            "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE", "SECRET_OF_THE_SERVER", "WORD",
        }  # fmt: skip
        assert inside["folder"] == str(Path(__file__).parent)

    def test_a_call_that_takes_too_long_times_out_and_the_server_is_told(self, result: Result, marks: Path) -> None:
        assert by_tool(result)["t_slow"].status == "timed_out"
        assert marks.read_text() == "cancelled"

    def test_the_progress_of_an_mcp_call_is_told(self, result: Result, seen: list[Event]) -> None:
        [told] = [event.text for event in seen if isinstance(event, ToolReported)]
        assert told.endswith(": begun")
        assert told[0] == "1"

    def test_a_crash_is_a_failed_outcome_with_its_last_words_but_no_secret(self, result: Result) -> None:
        crashed = by_tool(result)["t_crash"]
        assert crashed.status == "failed"
        assert crashed.text.startswith("SourceError: the server: ")
        assert "exit code 3" in crashed.text
        assert crashed.text.endswith(": out of ***")

    def test_nothing_secret_is_in_the_record(self, result: Result) -> None:
        record = json.loads(json.dumps(result.to_dict()))
        record["tool_execution_results"] = record["messages"] = []
        assert "xyzzy" not in json.dumps(record)


class TestOverHttp:
    def test_a_run_calls_its_tools(self, url: str, run: Door) -> None:
        model = ScriptedModel(together(call("add", a=1, b=2), call("inside")), call("refuse", why="x"), say("It is 3."))
        source = mcp(url, headers={"x-key": "xyzzy"}, only=["inside", "add", "refuse"])
        result = run(Agent(model=model, tools=[source]))
        assert [outcome.status for outcome in result.tool_results] == ["done", "done", "failed"]
        assert value(result.tool_results[0]) == {"result": 3}
        assert value(result.tool_results[1])["headers"]["x-key"] == "xyzzy"
        model.assert_offered("add", "refuse", "inside")

    def test_a_cancelled_run_cancels_the_call(self, url: str, tmp_path: Path) -> None:
        marks = tmp_path / "marks.txt"
        agent = Agent(model=ScriptedModel(call("slow", marks=str(marks)), say("x")), tools=[mcp(url)])
        with agent.start("go") as run:
            for event in run:
                if isinstance(event, ToolReported):
                    assert run.cancel()
            assert run.result(60).stop == "cancelled"
        until(marks.exists)
        until(lambda: marks.read_text() == "cancelled")

    def test_a_server_that_dies_in_a_call_is_a_failed_outcome(self, own_url: str) -> None:
        model = ScriptedModel(call("crash", code=3), call("add", a=1, b=2), say("It died."))
        result = Agent(model=model, tools=[mcp(own_url, name="the server")]).run("go")
        assert (result.stop, result.text) == ("completed", "It died.")
        assert [outcome.status for outcome in result.tool_results] == ["failed"] * 2
        assert all(outcome.text.startswith("SourceError: the server: ") for outcome in result.tool_results)

    async def opened(self, url: str) -> list[Any]:
        async with mcp(url).open() as tools:
            return list(tools)

    @pytest.mark.anyio
    async def test_hints_become_what_our_tools_have(self, url: str) -> None:
        tools = {tool.name: tool for tool in await self.opened(url)}
        assert (tools["add"].effects, tools["add"].idempotent, tools["add"].retry_on_timeout) == (
            Effects.READ, True, True,
        )  # fmt: skip
        assert (tools["refuse"].effects, tools["refuse"].idempotent) == (Effects.WRITE, True)
        assert (tools["slow"].effects, tools["slow"].idempotent) == (Effects.WRITE, False)
        assert tools["add"].description == "Add two numbers."

    @pytest.mark.anyio
    async def test_an_open_source_can_be_used_without_an_agent(self, url: str) -> None:
        async with mcp(url).open() as tools:
            add = next(tool for tool in tools if tool.name == "add")
            assert await add(a=20, b=3) == {"result": 23}

    @pytest.mark.anyio
    async def test_what_is_raised_while_it_is_open_is_raised_as_it_is(self, url: str) -> None:
        with pytest.raises(LookupError, match="mine"):
            async with mcp(url).open():
                raise LookupError("mine")


@pytest.fixture(scope="module")
def outcomes(plain: list[str]) -> dict[str, Outcome]:
    model = ScriptedModel(
        together(call("doubling_input"), call("endless_output"), call("wrong_output"), call("add", a=1, b=2)),
        say("Done."),
    )
    result = Agent(model=model, tools=[mcp([*plain, "hostile"])]).run("go")
    assert result.stop == "completed"
    return by_tool(result)


class TestAServerWithHostileSchemas:
    def test_arguments_that_cannot_be_checked_are_not_sent(self, outcomes: dict[str, Outcome]) -> None:
        text = outcomes["doubling_input"].text
        assert text.startswith(
            "Not run (validation): the arguments of doubling_input are wrong: they cannot be checked"
        )

    def test_a_result_that_cannot_be_checked_is_a_failure(self, outcomes: dict[str, Outcome]) -> None:
        assert "its result cannot be checked against its output schema" in outcomes["endless_output"].text

    def test_a_result_that_does_not_fit_is_a_failure(self, outcomes: dict[str, Outcome]) -> None:
        said = "its result does not fit its output schema: $: 'b' is a required property"
        assert said in outcomes["wrong_output"].text

    def test_other_tools_of_a_server_with_hostile_schemas_can_be_used(self, outcomes: dict[str, Outcome]) -> None:
        assert outcomes["add"].text == "3"
