"""Children that a tool finds itself: `await ctx.delegate(...)`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, Usage, tool
from flyball.event import Event
from flyball.testing import Line, Script, ScriptedModel, call, say, together
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


def test_what_a_child_of_a_tool_came_to_stands_in_the_outcome_of_its_call(run: Running, closed: Any) -> None:
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


def test_a_child_may_be_named(run: Running) -> None:
    agent = boss(asking("a"), says=(call("ask"), say("done")), children=[kid("a", say("hello"))])
    assert run(agent).tool_results[0].text == "hello"


@pytest.mark.parametrize(("child", "message"), [("nobody", "name of a child: a"), (7, "an Agent")])
def test_who_is_no_child_is_refused(run: Running, child: object, message: str) -> None:
    agent = boss(asking(child), says=(call("ask"), say("done")), children=[kid("a", say("hello"))])
    [outcome] = run(agent).tool_results
    assert not outcome.ok
    assert message in outcome.text


def test_more_than_may_be_are_refused_and_none_is_begun(run: Running) -> None:
    agent = boss(asking(kid("a", say("hi")), 5), says=(call("ask"), say("done")), limits=Limits(children=3))
    result = run(agent)
    [outcome] = result.tool_results
    assert outcome.text == "BudgetExceeded: budget 'children': asked for 1, but 0 of 3 is left"
    assert (len(outcome.children), result.budgets["children"].used, result.stop) == (3, 3, "completed")


def test_calls_side_by_side_count_together(run: Running) -> None:
    ask = asking(kid("a", say("hi")), 2, effects="read")
    result = run(boss(ask, says=(together(call("ask"), call("ask")), say("done")), limits=Limits(children=3)))
    assert (len(result.children), result.budgets["children"].used) == (3, 3)
    assert sorted(outcome.ok for outcome in result.tool_results) == [False, True]


def test_they_are_no_deeper_than_allowed(run: Running) -> None:
    inner = kid("inner", say("deep"))
    middle = Agent(model=ScriptedModel(call("ask"), say("middle")), name="middle", tools=[asking(inner)])
    result = run(boss(asking(middle), says=(call("ask"), say("done")), limits=Limits(depth=1)))
    [below] = result.children
    assert "budget 'depth': asked for 1, but 0 of 1 is left" in below.tool_results[0].text
    assert below.children == ()


def test_they_are_under_the_ceiling_of_the_tree(run: Running) -> None:
    stubborn = Agent(model=ScriptedModel.looping(call("touch"), grace=say("x")), name="a", tools=[touch])
    with Limits(turns=10, children=1).open() as tree:
        result = run(boss(asking(stubborn, 2), says=(call("ask"), say("done"))), within=tree)
        assert (tree.budgets["turns"].used, tree.budgets["children"].used) == (10, 1)
    assert [below.turns for below in result.children] == [9]


def test_they_end_with_the_time_of_the_call(run: Running, closed: Any) -> None:
    child = kid("a", say("late").after(LONG))
    result = run(boss(asking(child, timeout=1.0), says=(call("ask"), say("done"))))
    [outcome], [below] = result.tool_results, result.children
    assert closed(below).stop == "deadline"
    assert (outcome.ok, outcome.children) == (True, (below,))
    assert result.completed


def test_a_cancel_ends_them_and_their_result_is_kept(here: Any, closed: Any) -> None:
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


def test_no_more_than_allowed_work_at_a_time(run: Running) -> None:
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


def test_a_def_tool_is_told_that_it_cannot(run: Running) -> None:
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

    [outcome] = run(boss(ask, says=(call("ask"), say("done")))).tool_results
    assert "an `async def` tool" in outcome.text


def test_a_script_drives_them_too_and_plays_the_run_again() -> None:
    script = Script(boss(asking(kid("a", call("touch"), say("hello")), 2), says=(call("ask"), say("done"))))
    result = script.run("Go.")
    assert (result.tool_results[0].text, len(result.children)) == ("hello hello", 2)
    again = script.replay()  # who drives it tells that such a child begins and ends, and is not asked again
    assert replace(again, events=()) == replace(result, events=())
