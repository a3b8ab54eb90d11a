"""Tools from definitions, and client tools."""

import json
import sys
from typing import Any, ClassVar

import pytest

from flyball import Agent, ConfigError, run_conversation, tool
from flyball.agent.conversation import resume_conversation
from flyball.errors import ArgumentError, UsageError
from flyball.person import About, allow, deny
from flyball.store import open_store
from flyball.testing import ScriptedModel, call, say, together
from flyball.tools import Tool, ToolContext

CITY: dict[str, Any] = {
    "properties": {"city": {"type": "string"}, "n-days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}


def describe(**arguments: Any) -> str:
    return json.dumps(arguments)


def weather(call: Any = describe, **options: Any) -> Tool:
    return Tool.from_schema("weather", "Return the weather.", parameters=CITY, call=call, **options)


class TestFromSchema:
    def test_the_model_sees_the_definition_and_the_function_gets_the_arguments_by_name(self) -> None:
        model = ScriptedModel(call("weather", **{"city": "Oslo", "n-days": 2}), say("x"))
        result = Agent(model=model, tools=[weather(timeout=3)]).run("Go.")
        assert model.requests[0].tools[0]["parameters"]["required"] == ["city"]
        assert (result.tool_results[0].text, weather(timeout=3).timeout) == ('{"city": "Oslo", "n-days": 2}', 3)

    @pytest.mark.parametrize("arguments", [{}, {"city": 3}, {"city": "x", "n-days": 0}, {"city": "x", "more": 1}])
    def test_arguments_are_checked_against_the_schema(self, arguments: Any) -> None:
        with pytest.raises(ArgumentError):
            weather().read(arguments)

    def test_a_function_may_be_async_and_take_a_context(self) -> None:
        async def look(ctx: ToolContext, city: str) -> str:
            return f"{city} {ctx.call_id}"

        result = Agent(model=ScriptedModel(call("weather", city="Oslo"), say("x")), tools=[weather(look)]).run("Go.")
        assert result.tool_results[0].text == "Oslo call-0"

    @pytest.mark.parametrize(
        "parameters",
        [None, "x", {"type": "array"}, {"properties": []}, {"properties": {"a": {"type": 7}}, "type": "x"}],
    )
    def test_a_wrong_schema_is_refused_when_the_tool_is_made(self, parameters: Any) -> None:
        with pytest.raises(ConfigError, match="parameters"):
            Tool.from_schema("t", "Do it.", parameters=parameters, call=describe)

    def test_without_jsonschema_the_error_names_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jsonschema", None)
        with pytest.raises(UsageError, match=r"flyball-ai\[cli\]"):
            weather()


class TestDefinitions:
    def test_a_mapping_may_mix_definitions_tools_and_functions(self) -> None:
        @tool
        def look() -> str:
            """Look."""
            return "seen"

        tools: Any = {
            "weather": {"description": "Return the weather.", "parameters": CITY, "call": describe, "timeout": 3},
            "look": look,
            "again": lambda: "again",
        }
        model = ScriptedModel(together(call("weather", city="Oslo"), call("look"), call("again")), say("x"))
        result = run_conversation("Go.", tools, model, settings={})
        assert [outcome.text for outcome in result.tool_results] == ['{"city": "Oslo"}', "seen", "again"]

    @pytest.mark.parametrize(
        "definition",
        [7, {"call": 7}, {"name": "other"}, {"descripton": "x"}, {"parameters": [1]}, weather()],
    )
    def test_a_wrong_definition_is_refused(self, definition: Any) -> None:
        with pytest.raises(ConfigError):
            Agent(model=ScriptedModel(), tools={"locate": definition})

    def test_a_misspelt_key_is_refused_with_the_tool_and_the_right_key(self) -> None:
        definition = {"description": "Return the city.", "parameters": CITY, "cal": describe}
        with pytest.raises(ConfigError, match=r"tools\['locate'\].*'cal'.*\bcall\b"):
            Agent(model=ScriptedModel(), tools={"locate": definition})


class TestClientTools:
    tools: ClassVar[Any] = {"locate": {"description": "Return the city.", "parameters": CITY}, "add": lambda: 3}

    def test_a_run_pauses_with_all_pending_calls_and_makes_no_other_call_of_the_batch(self) -> None:
        batch = together(call("locate", city="a"), call("add"), call("locate", city="b"))
        paused = run_conversation("Go.", self.tools, ScriptedModel(batch, say("x")), settings={})
        assert (paused.stop, paused.to_dict()["status"]) == ("paused", "client_tools_pending")
        asked = [(question.id, question.about, question.arguments) for question in paused.questions]
        assert asked == [("call-0", About.CLIENT_TOOL, {"city": "a"}), ("call-2", About.CLIENT_TOOL, {"city": "b"})]
        again = resume_conversation(paused, {"call-0": ["x"]})
        assert [question.id for question in again.questions] == ["call-2"]
        result = resume_conversation(again, {"call-2": None})
        assert [outcome.text for outcome in result.tool_results] == ['["x"]', "3", "null"]

    @pytest.mark.parametrize(
        ("answer", "status"),
        [
            (True, "done"),
            ("text", "done"),
            ({"success": False}, "failed"),
            (deny("no"), "denied"),
            (allow("1"), "done"),
        ],
    )
    def test_an_answer_is_the_result_or_a_verdict(self, answer: Any, status: str) -> None:
        agent = Agent(model=ScriptedModel(call("locate", city="a"), say("x")), tools=self.tools)
        result = agent.resume(agent.run("Go."), {"call-0": answer})
        assert (result.stop, result.tool_results[0].status) == ("completed", status)

    def test_an_answer_that_is_no_json_leaves_the_run_paused(self) -> None:
        agent = Agent(model=ScriptedModel(call("locate", city="a"), say("x")), tools=self.tools)
        paused = agent.run("Go.")
        with pytest.raises(ConfigError, match="call-0"):
            agent.resume(paused, {"call-0": object()})
        assert agent.resume(paused, {"call-0": 1}).completed

    def test_the_explanation_says_that_the_caller_has_to_make_the_calls(self) -> None:
        paused = Agent(model=ScriptedModel(call("locate", city="a")), tools=self.tools).run("Go.")
        assert paused.explain().startswith("It waits for the results of client tools.")
        assert paused.explain().endswith("It continues when they are passed to resume.")

    def test_an_approver_is_not_asked_about_client_tools(self) -> None:
        asked: list[Any] = []
        model = ScriptedModel(call("locate", city="a"), say("x"))
        assert Agent(model=model, tools=self.tools, approver=asked.append).run("Go.").stop == "paused"
        assert asked == []

    def test_a_stored_run_continues_with_the_results_by_its_id(self) -> None:
        with open_store("memory:") as store:
            agent = Agent(model=ScriptedModel(call("locate", city="a"), say("x")), tools=self.tools, store=store)
            paused = agent.run("Go.")
            result = agent.resume(paused.run_id, {"call-0": {"city": "Oslo"}})
        assert (result.stop, result.tool_results[0].text) == ("completed", '{"city":"Oslo"}')

    def test_a_client_tool_that_ends_the_run_gives_its_answer(self) -> None:
        tools: Any = {"submit": {"description": "Submit.", "parameters": {}, "ends_run": True}}
        agent = Agent(model=ScriptedModel(call("submit")), tools=tools)
        result = agent.resume(agent.run("Go."), {"call-0": "accepted"})
        assert (result.stop, result.text) == ("completed", "accepted")

    def test_wrong_arguments_of_a_client_tool_are_denied_without_a_pause(self) -> None:
        result = Agent(model=ScriptedModel(call("locate"), say("x")), tools=self.tools).run("Go.")
        assert (result.stop, result.tool_results[0].status) == ("completed", "denied")
