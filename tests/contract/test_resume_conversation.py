"""A conversation that paused goes on, though its caller has no agent in hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

from flyball import Agent, Result, arun_conversation, run_conversation, tool
from flyball.agent.conversation import aresume_conversation, resume_conversation
from flyball.errors import ConfigError
from flyball.event import Event
from flyball.testing import ScriptedModel, call, say

LONG = 60.0
Doing = Callable[..., Result]


class Desk:
    """A tool that asks, and what it really did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.events: list[Event] = []
        self.model = ScriptedModel(call("delete", path="a"), say("ok"))
        self.tools = [self.delete()]

    def delete(self) -> Any:
        @tool(approve=True)
        def delete(path: str) -> None:
            self.done.append(path)

        return delete


def through(door: str, work: Callable[[], Any]) -> Result:
    async def bounded() -> Result:
        with anyio.fail_after(LONG):
            return await work()

    return anyio.run(bounded, backend=door)


@pytest.fixture
def hold(door: str) -> Doing:
    def hold(desk: Desk, **options: Any) -> Result:
        given: Any = {"settings": {}, "payload": {"job": 7, "event_sink": desk.events.append}, **options}
        if door == "sync":
            return run_conversation("go", desk.tools, desk.model, **given)
        return through(door, lambda: arun_conversation("go", desk.tools, desk.model, **given))

    return hold


@pytest.fixture
def resume(door: str) -> Doing:
    def resume(*given: Any) -> Result:
        return resume_conversation(*given) if door == "sync" else through(door, partial(aresume_conversation, *given))

    return resume


@pytest.mark.one_door
def test_a_resumed_conversation_keeps_all_that_it_was_given(hold: Doing, resume: Doing) -> None:
    desk = Desk()
    paused = hold(desk, session_id="s", max_turns=7)
    heard = len(desk.events)
    result = resume(paused, {"call-0": True})
    assert (result.stop, result.session_id, result.metadata) == ("completed", "s", {"job": 7, "mode": "chat"})
    assert (result.budgets["turns"].name, result.budgets["turns"].ceiling) == ("conversation_turns", 7)
    assert (desk.done, result.requests, len(desk.model.requests)) == (["a"], 2, 2)
    assert (desk.events[heard].kind, desk.events[-1].kind) == ("person_answered", "run_ended")


@pytest.mark.one_door
def test_a_resumed_conversation_may_pause_again(hold: Doing, resume: Doing) -> None:
    desk = Desk()
    again = resume(hold(desk))
    assert (again.stop, desk.done) == ("paused", [])
    assert resume(again, {"call-0": False}).completed
    assert desk.done == []


@pytest.mark.one_door
def test_a_mistake_in_the_answers_leaves_the_conversation_paused(hold: Doing, resume: Doing) -> None:
    desk = Desk()
    paused = hold(desk)
    with pytest.raises(ConfigError) as refused:
        resume(paused, {"call-9": True})
    assert refused.value.found == "call-9"
    assert resume(paused, {"call-0": True}).completed
    with pytest.raises(ConfigError):
        resume(paused, {"call-0": True})
    assert desk.done == ["a"]


@pytest.mark.one_door
def test_what_is_no_paused_conversation_cannot_resume_as_one(run: Doing, resume: Doing, snapshot: Any) -> None:
    desk = Desk()
    with pytest.raises(ConfigError) as of_an_agent:
        resume(run(Agent(model=desk.model, tools=desk.tools)), {"call-0": True})
    with pytest.raises(ConfigError):
        resume("x")
    snapshot(of_an_agent.value)
