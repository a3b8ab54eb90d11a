"""Children that a tool starts with `await ctx.delegate(...)`: which, how many, how deep, under which budgets."""

from dataclasses import replace
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.outcome import Failure
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, say
from flyball.tools import ToolContext


@tool(poll=True)
async def touch() -> str:
    return "touched"


def kid(name: str, *lines: Line) -> Agent:
    return Agent(model=ScriptedModel(*lines, grace=say("kid reports"), max_output_tokens=50), name=name, tools=[touch])


def asking(child: object, times: int = 1) -> Any:
    """A tool that gives a child one task after the other."""

    @tool(name="ask", poll=True)
    async def ask(ctx: ToolContext) -> str:
        """Ask a child."""
        return " ".join([(await ctx.delegate(child, "Say it.", "Loud.")).text for _ in range(times)])

    return ask


def boss(ask: Any, **options: Any) -> ScriptDriver:
    model = ScriptedModel(call("ask"), say("done"), grace=say("boss reports"), max_output_tokens=50)
    given: dict[str, Any] = {"settings": {}, **options}
    return ScriptDriver(Agent(model=model, tools=[ask], **given))


def test_a_hired_child_may_be_given_by_the_name_of_a_child() -> None:
    result = assert_honest(boss(asking("a"), children=[kid("a", say("hello"))]).run("Go."))
    assert result.tool_results[0].text == "hello"


@pytest.mark.parametrize("child", ["nobody", 7])
def test_hiring_what_is_no_child_fails_the_call(child: object) -> None:
    result = boss(asking(child), children=[kid("a", say("hello"))]).run("Go.")
    [outcome] = result.tool_results
    assert isinstance(outcome, Failure)
    assert (outcome.kind, result.children, result.stop) == ("ConfigError", (), "completed")


def test_hiring_above_the_limit_of_children_fails_the_call_and_starts_none() -> None:
    result = boss(asking(kid("a", say("hi")), 5), limits=Limits(children=3)).run("Go.")
    [outcome] = result.tool_results
    assert isinstance(outcome, Failure)
    assert outcome.kind == "BudgetExceeded"
    assert (len(outcome.children), result.budgets["children"].used, result.stop) == (3, 3, "completed")


def test_hiring_below_the_allowed_depth_fails_the_call_and_starts_none() -> None:
    middle = Agent(
        model=ScriptedModel(call("ask"), say("middle")), name="middle", tools=[asking(kid("inner", say("deep")))]
    )
    [below] = boss(asking(middle), limits=Limits(depth=1)).run("Go.").children
    [outcome] = below.tool_results
    assert isinstance(outcome, Failure)
    assert (outcome.kind, below.children) == ("BudgetExceeded", ())


def test_hired_children_stay_within_the_shared_budget() -> None:
    stubborn = Agent(model=ScriptedModel.looping(call("touch"), grace=say("x")), name="a", tools=[touch])
    with Limits(turns=10, children=1).open() as tree:
        result = boss(asking(stubborn, 2)).run("Go.", within=tree)
        assert (tree.budgets["turns"].used, tree.budgets["children"].used) == (10, 1)
    assert [below.turns for below in result.children] == [9]


def test_a_run_with_hired_children_replays_to_the_same_result() -> None:
    script = boss(asking(kid("a", call("touch"), say("hello")), 2))
    result = script.run("Go.")
    assert (result.tool_results[0].text, len(result.children)) == ("hello hello", 2)
    again = script.replay()  # the driver emits the events of such a child, and is not asked again
    assert replace(again, events=()) == replace(result, events=())
