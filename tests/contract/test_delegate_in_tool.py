"""Children that a tool starts with `ctx.delegate`. tests/loop/test_delegate_in_tool.py has what the loop decides."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, Usage, tool
from flyball.event import Event
from flyball.outcome import Failure
from flyball.testing import Line, ScriptedModel, call, say, together
from flyball.tools import ToolContext

LONG = 60.0
Running = Callable[..., Result]


@tool(poll=True)
async def touch() -> str:
    return "touched"


def kid(name: str, *lines: Line, **options: Any) -> Agent:
    model = ScriptedModel(*lines, grace=say("kid reports"), max_output_tokens=50)
    return Agent(model=model, name=name, tools=[touch], **options)


def boss(*tools: Any, says: tuple[Line, ...], **options: Any) -> Agent:
    given: dict[str, Any] = {"settings": {}, **options}
    return Agent(model=ScriptedModel(*says, grace=say("boss reports"), max_output_tokens=50), tools=tools, **given)


def asking(child: object, times: int = 1, **options: Any) -> Any:
    """A tool that has a child do one task after the other."""

    @tool(name="ask", poll=True, **options)
    async def ask(ctx: ToolContext) -> str:
        """Ask a child."""
        return " ".join([(await ctx.delegate(child, "Say it.", "Loud.")).text for _ in range(times)])

    return ask


def test_the_result_of_a_hired_child_is_in_the_outcome_of_its_call(run: Running, closed: Any) -> None:
    heard: list[Event] = []
    child = kid("a", call("touch").using(Usage(10, 5)), say("hello").using(Usage(20, 5)))
    agent = boss(
        asking(child), says=(call("ask").using(Usage(1, 1)), say("done").using(Usage(1, 1))), sinks=[heard.append]
    )
    result = closed(run(agent))
    [outcome], [below] = result.tool_results, result.children
    assert (outcome.ok, outcome.text, outcome.children) == (True, "hello", (below,))
    assert (below.stop, below.turns, closed(below).text) == ("completed", 2, "hello")
    assert (result.usage.total, result.usage_with_children.total) == (4, 44)
    assert result.budgets["children"].used == 1
    assert below.messages[0].content == "Say it.\n\nLoud."
    told = [
        (event.kind, event.header.parent_run_id) for event in heard if event.kind in ("child_started", "run_started")
    ]
    assert told == [("run_started", None), ("child_started", None), ("run_started", result.run_id)]
    assert [event.kind for event in heard].count("child_ended") == 1


@pytest.mark.one_door
def test_hired_children_of_parallel_calls_share_the_limit_of_children(run: Running) -> None:
    ask = asking(kid("a", say("hi")), 2, effects="read")
    result = run(boss(ask, says=(together(call("ask"), call("ask")), say("done")), limits=Limits(children=3)))
    assert (len(result.children), result.budgets["children"].used) == (3, 3)
    assert sorted(outcome.ok for outcome in result.tool_results) == [False, True]


@pytest.mark.one_door
def test_a_hired_child_ends_when_the_time_of_its_call_is_over(run: Running, closed: Any) -> None:
    child = kid("a", say("late").after(LONG))
    result = run(boss(asking(child, timeout=1.0), says=(call("ask"), say("done"))))
    [outcome], [below] = result.tool_results, result.children
    assert closed(below).stop == "deadline"
    assert (outcome.ok, outcome.children) == (True, (below,))
    assert result.completed


def test_a_cancel_ends_a_hired_child_and_keeps_its_result(here: Any, closed: Any) -> None:
    child = kid("a", say("late").after(LONG))
    agent = boss(asking(child), says=(call("ask"), say("done")))

    async def work() -> Result:
        async with agent.open("Go.") as run:
            async for event in run:
                if event.kind == "model_requested" and event.header.parent_run_id is not None:
                    run.cancel()
            return await run.aresult()

    result = here(work)
    [below] = closed(result).children
    assert (result.stop, closed(below).stop, below.stopped_by) == ("cancelled", "cancelled", "parent")
    assert result.tool_results[0].children == (below,)


@pytest.mark.one_door
def test_hired_children_above_the_parallel_limit_wait(run: Running) -> None:
    inside, most = 0, 0

    @tool(poll=True)
    async def enter() -> None:
        nonlocal inside, most
        inside, most = inside + 1, max(most, inside + 1)
        await anyio.sleep(0.01)
        inside -= 1

    child = Agent(model=ScriptedModel(call("enter"), say("x")), name="a", tools=[enter])

    @tool
    async def ask(ctx: ToolContext) -> None:
        """Ask many at once."""

        async def one() -> None:
            await ctx.delegate(child, "Go.")

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(one)

    result = run(boss(ask, says=(call("ask"), say("done"))))
    assert (most, len(result.children)) == (3, 6)
    assert len({below.run_id for below in result.children}) == 6


@pytest.mark.one_door
def test_a_def_tool_that_hires_a_child_fails_with_an_error(run: Running) -> None:
    child = kid("a", say("hi"))

    @tool
    def ask(ctx: ToolContext) -> str:
        """Ask."""
        coroutine = ctx.delegate(child, "Go.")
        try:
            coroutine.send(None)
        finally:
            coroutine.close()
        return ""

    result = run(boss(ask, says=(call("ask"), say("done"))))
    [outcome] = result.tool_results
    assert isinstance(outcome, Failure)
    assert (outcome.kind, result.children) == ("UsageError", ())
