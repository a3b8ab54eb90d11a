"""Limits in the instructions of a run."""

from typing import Any

from flyball import Agent, Limits, tool
from flyball.store import open_store
from flyball.testing import ScriptedModel, call, say


@tool
def look() -> str:
    """Look."""
    return "seen"


def asked(*lines: Any, **options: Any) -> list[str | None]:
    model = ScriptedModel(*(lines or (say("x"),)))
    limits = Limits(turns=5, tokens=9_000, seconds=60)
    Agent(model=model, tools=[look], limits=limits, **options).run("Go.")
    return [request.instructions for request in model.requests]


def test_the_limits_follow_the_instructions_and_are_the_same_in_every_request() -> None:
    shown = asked(call("look"), call("look"), say("x"), instructions="Be brief.", announce_limits=True)
    assert (len(shown), set(shown)) == (3, {"Be brief.\n\nYour limits: 5 turns, 9,000 tokens, 60 s."})


def test_limits_of_tool_calls_are_announced_in_all_and_by_tool() -> None:
    model = ScriptedModel(say("x"))
    limits = Limits(turns=5, tool_calls=4, calls={"look": 1}, seconds=60)
    Agent(model=model, tools=[look], limits=limits, announce_limits=True).run("Go.")
    assert model.requests[0].instructions == "Your limits: 5 turns, 4 tool calls, 1 call of look, 60 s."


def test_without_the_option_the_instructions_are_unchanged() -> None:
    assert asked(instructions="Be brief.") == ["Be brief."]


def test_inherited_limits_are_announced_if_they_are_lower() -> None:
    model = ScriptedModel(say("x"))
    with Limits(tokens=4_000, seconds=30).open() as shared:
        Agent(model=model, announce_limits=True, limits=Limits(turns=5, tokens=9_000)).run("Go.", within=shared)
    assert "3,200 tokens" in (model.requests[0].instructions or "")


def test_a_child_run_is_told_its_own_limits_only() -> None:
    model = ScriptedModel(say("x"))
    child = Agent(name="helper", model=model, announce_limits=True, limits=Limits(turns=2))
    task = {"child": "helper", "goal": "Go."}
    Agent(model=ScriptedModel(call("delegate", tasks=[task]), say("x")), children=[child]).run("Go.")
    assert (model.requests[0].instructions or "").count("Your limits") == 1


def test_a_resumed_run_has_the_same_instructions() -> None:
    @tool(approve=True)
    def write() -> str:
        """Write."""
        return "done"

    model = ScriptedModel(call("write"), say("x"))
    with open_store("memory:") as store:
        agent = Agent(model=model, tools=[write], announce_limits=True, limits=Limits(turns=5), store=store)
        paused = agent.run("Go.")
        assert agent.resume(paused.run_id, {"call-0": True}).completed
    assert len({request.instructions for request in model.requests}) == 1
