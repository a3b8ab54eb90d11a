"""run_conversation: seed 002's entry point, on conversation_turns."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from flyball import Agent, Limits, arun_conversation, run_conversation, tool
from flyball.agent.conversation import AGENT_OPTIONS, ConversationOptions
from flyball.errors import ConfigError, UnknownTool
from flyball.event import Event
from flyball.settings import Settings
from flyball.store import open_store
from flyball.testing import ScriptedModel, assert_honest, call, say
from flyball.tools import ToolContext


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def stubborn() -> ScriptedModel:
    return ScriptedModel.looping(call("add", a=1, b=2), grace=say("I added."))


def test_run_conversation_gives_the_record_of_the_seed() -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3"))
    result = run_conversation([{"role": "user", "content": "1 + 2?"}], [add], model, settings={})
    assert_honest(result)
    record = json.loads(json.dumps(result.to_dict()))
    assert (record["final_content"], record["turn_count"], record["completed"]) == ("3", 2, True)
    assert (record["status"], record["max_turns_reached"]) == ("completed", False)
    assert result.budgets["turns"].name == "conversation_turns"
    assert result.budgets["turns"].ceiling == 25


def test_the_async_twin_of_run_conversation_does_the_same() -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3"))
    result = asyncio.run(arun_conversation("1 + 2?", [add], model, settings={}))
    assert (result.text, result.budgets["turns"].name) == ("3", "conversation_turns")


class TestTurns:
    def test_the_ceiling_is_given_in_code(self) -> None:
        result = run_conversation("x", [add], stubborn(), max_turns=3, settings={"max_turns": 5})
        assert (result.stop, result.turns, result.text) == ("budget", 3, "I added.")
        assert result.flags == ("max_conversation_turns_reached",)
        assert result.to_dict()["max_turns_reached"] is True

    def test_the_ceiling_of_a_modes_setting_beats_the_plain_one(self) -> None:
        settings = {"max_turns": 5, "mode": {"pipeline": {"max_turns": 2}}}
        assert run_conversation("x", [add], stubborn(), mode="pipeline", settings=settings).turns == 2
        assert run_conversation("x", [add], stubborn(), mode="chat", settings=settings).turns == 5
        assert run_conversation("x", [add], stubborn(), mode="pipeline", max_turns=4, settings=settings).turns == 4

    def test_a_file_may_say_it_and_the_explanation_names_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "flyball.toml").write_text("max_turns = 5\n[mode.pipeline]\nmax_turns = 2\n")
        settings = Settings.load(tmp_path, environ={})
        assert run_conversation("x", [add], stubborn(), mode="pipeline", settings=settings).turns == 2
        found = settings.for_mode("pipeline").find("max_turns")
        assert found is not None
        assert found.source == "flyball.toml:3"

    def test_an_environment_variable_may_say_it_for_one_mode(self) -> None:
        settings = Settings.load(environ={"FLYBALL_MODE__PIPELINE__MAX_TURNS": "2"})
        assert run_conversation("x", [add], stubborn(), mode="pipeline", settings=settings).turns == 2

    def test_the_clamp_holds_in_every_mode(self) -> None:
        settings = {"clamp": {"max_turns": 2}, "mode": {"pipeline": {"max_turns": 9}}}
        assert run_conversation("x", [add], stubborn(), mode="pipeline", settings=settings).turns == 2

    def test_turns_of_none_are_left_to_the_settings(self) -> None:
        result = run_conversation("x", [add], stubborn(), max_turns=None, payload=None, settings={"max_turns": 2})
        assert result.turns == 2

    def test_turns_are_said_once(self) -> None:
        with pytest.raises(ConfigError, match="max_turns"):
            run_conversation("x", [add], stubborn(), max_turns=3, limits=Limits(turns=4), settings={})

    def test_a_single_turn_is_halted_if_it_asked_for_calls(self) -> None:
        result = run_conversation("x", [add], stubborn(), single_turn=True, settings={})
        assert (result.stop, result.stopped_by, result.to_dict()["status"]) == ("halted", "single_turn", "incomplete")
        assert run_conversation("x", [add], ScriptedModel(say("y")), single_turn=True, settings={}).completed


class TestPayload:
    def test_collaborators_are_taken_out_and_the_rest_comes_back_on_every_event(self) -> None:
        seen: list[Event] = []
        payload = {
            "job_id": 7,
            "agent_slug": "writer",
            "event_sink": seen.append,
            "completion_assertions": {"required_tool_names": ["add"]},
            "tool_rules": [{"limited_tools": ["add"], "max_calls": 1, "then_require_one_of": ["other"]}],
        }
        payload["tool_rules"] = []
        model = ScriptedModel(say("done"), call("add", a=1, b=2), say("3"))
        result = run_conversation("x", [add], model, mode="pipeline", payload=payload, settings={})
        assert (result.stop, result.completion["nudge_count"]) == ("completed", 1)
        metadata = {"job_id": 7, "agent_slug": "writer", "mode": "pipeline"}
        assert result.metadata == metadata
        assert [event.to_dict()["metadata"] for event in seen] == [metadata] * len(seen)
        assert {one["mode"] for one in result.to_dict()["request_metadata"]} == {"pipeline"}
        assert seen[-1].kind == "run_ended"

    def test_engine_data_is_what_the_state_begins_with(self) -> None:
        def look(ctx: ToolContext) -> Any:
            ctx.state["seen"] = ctx.state["draft"]
            return ctx.state["draft"]

        payload = {"engine_data": {"draft": "d1"}, "completion_assertions": {"required_engine_data_keys": ["seen"]}}
        model = ScriptedModel(call("look"), say("x"))
        result = run_conversation("x", [look], model, payload=payload, settings={})
        assert (result.completed, result.state) == (True, {"draft": "d1", "seen": "d1"})
        assert "draft" not in str(result.metadata)

    def test_tools_see_a_copy_of_what_is_left_and_the_mode(self) -> None:
        seen: list[Any] = []

        def look(ctx: ToolContext) -> None:
            seen.append(dict(ctx.metadata))
            cast("dict[str, Any]", ctx.metadata["job"])["id"] = 8

        payload = {"job": {"id": 7}, "event_sink": seen.append}
        result = run_conversation("x", [look], ScriptedModel(call("look"), say("y")), payload=payload, settings={})
        assert {"job": {"id": 8}, "mode": "chat"} in seen
        assert result.metadata == {"job": {"id": 7}, "mode": "chat"}

    def test_what_is_left_must_be_json_and_the_error_names_the_key(self) -> None:
        with pytest.raises(ConfigError, match=r"payload\.job\.made"):
            run_conversation("x", [add], stubborn(), payload={"job": {"made": object()}}, settings={})

    @pytest.mark.parametrize(
        ("payload", "named"),
        [
            (5, "payload"),
            ({"event_sink": 5}, "event_sink"),
            ({"engine_data": 5}, "engine_data"),
            ({"completion_assertions": {"required_tools": ["add"]}}, "required_tool_names"),
            ({"tool_rules": [{"block_untl_tool": "add"}]}, "block_until_tool"),
            (
                {"completion_assertions": {"required_tool_names": ["add"]}, "completion_policy": print},
                "completion_policy",
            ),
            ({"completion_assertion": {"required_tool_names": ["add"]}}, "completion_assertions"),
            ({"eventSink": "x"}, "event_sink"),
            ({"mode": "pipeline"}, "payload.mode"),
            ([], "payload"),
            ("", "payload"),
        ],
    )
    def test_a_payload_that_cannot_be_used_is_refused_with_its_key(self, payload: Any, named: str) -> None:
        with pytest.raises(ConfigError, match=named):
            run_conversation("x", [add], stubborn(), payload=payload, settings={})

    def test_a_collaborator_of_none_in_the_payload_is_no_collaborator(self) -> None:
        names = ("event_sink", "completion_assertions", "completion_policy", "tool_rules", "engine_data")
        payload = dict.fromkeys(names) | {"event_id": 1, "engine_id": 2, "mode": "chat"}
        result = run_conversation("x", [add], ScriptedModel(say("y")), payload=payload, settings={})
        assert (result.completed, result.metadata) == (True, {"event_id": 1, "engine_id": 2, "mode": "chat"})


def test_an_option_that_is_misspelt_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_turns"):
        run_conversation("x", [add], stubborn(), max_turn=3, settings={})  # pyright: ignore[reportCallIssue]


def test_a_model_that_is_not_ready_ends_it_before_the_first_claim() -> None:
    result = run_conversation("x", [add], ScriptedModel(not_ready="no key"), settings={})
    assert (result.stop, result.requests, result.budgets["turns"].used) == ("failed", 0, 0)
    assert result.to_dict()["error"]["message"] == "no key"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises((ConfigError, UnknownTool)):
        run_conversation("x", [add, add], stubborn(), settings={})


def test_rules_look_at_it_and_may_have_another_model_asked(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        '[rule]\nid = "a"\ntrigger = "on_turn_end"\n[action]\ntype = "use_model"\nmodel = "small"\n'
    )
    model, small = ScriptedModel(call("add", a=1, b=2)), ScriptedModel(say("small"))
    result = assert_honest(
        run_conversation("x", [add], model, rules=tmp_path, models={"small": small}, max_turns=2, settings={})
    )
    assert (result.text, result.stop) == ("small", "completed")
    assert small.requests[0].notices == (
        "This is the last turn (2 of 2): give your answer now, or say what is missing.",
    )


def test_a_core_rule_may_have_parameters_in_one_mode_only() -> None:
    settings = {"mode.brief.rules.iteration-budget-warning.share": 0.2}
    for mode, warned in (("brief", True), ("chat", False)):
        model = ScriptedModel(call("add", a=1, b=2), say("3"))
        run_conversation("x", [add], model, mode=mode, max_turns=4, settings=settings)
        assert any("Iteration 1 of 4" in notice for notice in model.requests[0].notices) is warned


def test_run_conversation_takes_every_option_of_an_agent_that_it_does_not_set_itself() -> None:
    own = {"mode", "payload", "max_turns", "session_id", "run_id", "wait_seconds"}
    assert set(ConversationOptions.__annotations__) - own == AGENT_OPTIONS


def test_should_continue_halts_a_conversation() -> None:
    result = run_conversation("x", [add], stubborn(), should_continue=lambda progress: progress.turn < 2, settings={})
    assert (result.stop, result.stopped_by, result.turns) == ("halted", "should_continue", 2)


def test_wait_seconds_lets_a_conversation_wait_for_its_session() -> None:
    with open_store("memory:") as store:
        store.lease.acquire("talk", "elsewhere:7:x", 0.5)
        options: Any = {"store": store, "session_id": "talk", "settings": {}}
        assert run_conversation("x", [], ScriptedModel(say("x")), **options).stop == "contended"
        assert run_conversation("x", [], ScriptedModel(say("x")), **options, wait_seconds=60).stop == "completed"


def test_wait_seconds_that_is_no_duration_is_refused() -> None:
    with pytest.raises(ConfigError, match="wait_seconds"):
        run_conversation("x", [], ScriptedModel(say("x")), wait_seconds=cast("Any", "long"), settings={})


def test_children_of_a_conversation_are_offered_as_those_of_an_agent() -> None:
    model = ScriptedModel(say("x"))
    run_conversation("x", [], model, children=[Agent(name="helper", model=ScriptedModel(say("y")))], settings={})
    assert [definition["name"] for definition in model.requests[0].tools] == ["delegate"]
