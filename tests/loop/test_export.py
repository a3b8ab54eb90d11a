"""What a result shows to others: secrets stay out of exports, and of nothing else."""

import json
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.loop.effects import Extend
from flyball.progress import Order, Point, Progress
from flyball.testing import ScriptDriver, ScriptedModel, call, call_json, say


@tool(sensitive=["key"])
def login(user: str, key: str) -> str:
    return f"hello {user}"


@pytest.mark.parametrize(
    "line",
    [
        call("login", user="al", key="s3cret"),
        call_json("login", '{"user": "al", "key": "s3cret"}'),
        call_json("login", '{"user": "al", "key": "s3cret"'),
    ],
)
def test_a_sensitive_value_is_in_no_export_but_the_model_sees_it(line: Any) -> None:
    model = ScriptedModel(line, say("x"))
    agent = Agent(model=model, tools=[login], single_turn=True)
    result = ScriptDriver(agent).run("x")
    assert "s3cret" not in json.dumps(result.to_dict()["messages"] + result.to_dict()["last_tool_calls"])
    assert any("s3cret" in str(message.payload) for message in result.messages)


def test_a_tool_without_secrets_is_shown_as_it_is() -> None:
    @tool
    def add(a: int) -> int:
        return a

    result = ScriptDriver(Agent(model=ScriptedModel(call("add", a=1)), tools=[add], single_turn=True)).run("x")
    assert result.to_dict()["last_tool_calls"][0]["arguments"] == {"a": 1}


def test_time_is_never_extended_above_what_the_registry_allows() -> None:
    agent = Agent(model=ScriptedModel(say("x")), limits=Limits(seconds=60))
    script = ScriptDriver(agent, signals={0: [Extend({}, 1e6)]})
    [moved] = [event for event in script.run("x").events if event.kind == "postponed"]
    assert moved.to_dict()["seconds"] == 86_400 - 60


def test_a_hook_that_gives_nothing_back_orders_nothing() -> None:
    def watch(point: Point, progress: Progress, about: object = None, /) -> list[Order] | None:
        return None

    assert ScriptDriver(Agent(model=ScriptedModel(say("x")), hooks=[watch])).run("x").completed
