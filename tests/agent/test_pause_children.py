"""Pausing child runs: what starts no more, what waits, and what continues."""

from typing import Any

import anyio
import pytest

from flyball import Agent, Child, Limits, tool
from flyball.agent.run import Run
from flyball.outcome import Reason
from flyball.store import MemoryStore
from flyball.testing import ScriptedModel, call, say
from flyball.tools import ToolContext

TASK = {"child": "helper", "goal": "Help."}
BOUND_S = 20.0


class Switch:
    """Tools that pause and resume the child runs of the run under test."""

    def __init__(self) -> None:
        self.run: Run | None = None

    def tools(self) -> list[Any]:
        @tool(poll=True)
        async def pause() -> str:
            """Pause."""
            assert self.run is not None
            return str(self.run.pause_children("Ada"))

        @tool(poll=True)
        async def resume() -> str:
            """Resume."""
            assert self.run is not None
            return str(self.run.resume_children("Ada"))

        return [pause, resume]


async def drive(agent: Agent, switch: Switch) -> Any:
    switch.run = agent.open("Go.")
    with anyio.fail_after(BOUND_S):
        async with switch.run as run:
            return await run.aresult()


def reason_of(outcome: Any) -> Reason:
    return outcome.reason


def helper(*lines: Any, **options: Any) -> Agent:
    return Agent(name="helper", model=ScriptedModel(*(lines or [say("helped")])), **options)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_call_of_delegate_is_denied_until_child_runs_are_resumed(backend: str) -> None:
    switch = Switch()
    model = ScriptedModel(
        call("pause"), call("delegate", tasks=[TASK]), call("resume"), call("delegate", tasks=[TASK]), say("done")
    )
    result = anyio.run(drive, Agent(model=model, tools=switch.tools(), children=[helper()]), switch, backend=backend)
    paused, denied, _, done = result.tool_results
    assert (paused.text, reason_of(denied), done.ok) == ("True", Reason.PAUSED, True)
    assert "Ada has paused them" in denied.text
    assert (result.stop, len(result.children), result.budgets["children"].used) == ("completed", 1, 1)
    kinds = [(event.kind, event.by) for event in result.events if event.kind.startswith("children_")]
    assert kinds == [("children_paused", "Ada"), ("children_resumed", "Ada")]


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_child_runs_that_wait_for_their_turn_wait_until_they_are_resumed(backend: str, in_background: bool) -> None:
    switch, ended = Switch(), anyio.Event()

    def watch(event: Any) -> None:
        if event.kind == "run_ended":
            ended.set()

    first = Agent(name="first", model=ScriptedModel(call("pause"), say("one")), tools=switch.tools(), sinks=[watch])
    tasks = [{"child": "first", "goal": "Go."}, TASK]
    more = {"background": True} if in_background else {}
    agent = Agent(
        model=ScriptedModel(call("delegate", tasks=tasks, **more), say("done"), say("done")),
        children=[first, helper()],
        background_children=in_background,
        settings={"delegation.max_concurrent_children": 1},
    )

    async def wait_and_resume() -> Any:
        switch.run = agent.open("Go.")
        with anyio.fail_after(BOUND_S):
            async with switch.run as run:
                await ended.wait()
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
                assert not run.ended
                assert run.children == ()
                assert run.resume_children()
                return await run.aresult()

    result = anyio.run(wait_and_resume, backend=backend)
    assert [child.text for child in result.children] == ["one", "helped"]


def test_child_runs_that_wait_end_with_the_time_of_their_parent() -> None:
    switch = Switch()
    first = Agent(name="first", model=ScriptedModel(call("pause"), say("one")), tools=switch.tools())
    agent = Agent(
        model=ScriptedModel(call("delegate", tasks=[{"child": "first", "goal": "Go."}, TASK]), grace=say("Paused.")),
        children=[first, helper()],
        settings={"delegation.max_concurrent_children": 1},
        limits=Limits(seconds=1),
    )
    result = anyio.run(drive, agent, switch)
    assert (result.stop, result.text.split("\n")[0]) == ("deadline", "Paused.")
    assert [(child.stop, child.turns) for child in result.children] == [("completed", 2), ("cancelled", 0)]


def test_a_tool_that_delegates_gets_an_error() -> None:
    switch = Switch()

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask the helper."""
        return (await ctx.delegate(helper(), "Help.")).text

    model = ScriptedModel(call("pause"), call("ask"), say("done"))
    result = anyio.run(drive, Agent(model=model, tools=[*switch.tools(), ask]), switch)
    failure = result.tool_results[1]
    assert (failure.kind, result.children, result.budgets["children"].used) == ("DelegationPaused", (), 0)


@pytest.mark.parametrize("budget", ["independent", "carved", "shared"])
def test_runs_below_start_no_child_runs_either_and_no_budget_is_taken(budget: Any) -> None:
    switch = Switch()
    middle = Agent(
        name="middle",
        model=ScriptedModel(call("pause"), call("delegate", tasks=[TASK]), say("alone")),
        tools=switch.tools(),
        children=[Child(helper(), budget)],
    )
    task = {"child": "middle", "goal": "Go."}
    agent = Agent(model=ScriptedModel(call("delegate", tasks=[task]), say("done")), children=[Child(middle, budget)])
    result = anyio.run(drive, agent, switch)
    [below] = result.children
    assert [outcome.ok for outcome in below.tool_results] == [True, False]
    assert reason_of(below.tool_results[1]) is Reason.PAUSED
    assert (below.text, below.budgets["children"].used) == ("alone", 0)


def test_one_child_run_alone_can_be_paused() -> None:
    seen: list[bool] = []
    switch = Switch()

    @tool
    async def pause_me() -> str:
        """Pause the child runs of this run only."""
        assert switch.run is not None
        [child] = switch.run.children
        seen.append(child.pause_children())
        return "ok"

    middle = Agent(
        name="middle",
        model=ScriptedModel(call("pause_me"), call("delegate", tasks=[TASK]), say("alone")),
        tools=[pause_me],
        children=[helper()],
    )
    model = ScriptedModel(
        call("delegate", tasks=[{"child": "middle", "goal": "Go."}]), call("delegate", tasks=[TASK]), say("done")
    )
    result = anyio.run(drive, Agent(model=model, children=[middle, helper()]), switch)
    assert (seen, reason_of(result.children[0].tool_results[1]), len(result.children)) == ([True], Reason.PAUSED, 2)


def test_the_pause_holds_after_a_resume_from_a_store() -> None:
    switch = Switch()

    @tool(approve=True)
    def risky() -> str:
        """Do it."""
        return "did it"

    for store in (MemoryStore(), None):
        model = ScriptedModel(call("pause"), call("risky"), call("delegate", tasks=[TASK]), say("done"))
        agent = Agent(model=model, tools=[*switch.tools(), risky], children=[helper()], store=store)
        paused = anyio.run(drive, agent, switch)
        assert paused.stop == "paused"
        result = agent.resume(paused, answers={question.id: True for question in paused.questions})
        assert (result.stop, reason_of(result.tool_results[2])) == ("completed", Reason.PAUSED)


def test_a_run_that_has_ended_is_not_paused() -> None:
    run = Agent(model=ScriptedModel(say("done"))).start("Go.")
    run.result(timeout=BOUND_S)
    assert (run.pause_children(), run.resume_children()) == (False, False)
