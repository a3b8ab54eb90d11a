"""What a task for a child may say: fewer tools, and what becomes of equal tasks."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from flyball import Agent, Child, Limits, Result, SettingError, tool
from flyball.outcome import Denied, Outcome, Success
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, say, together

JOIN = {"delegation.join_duplicates": True}


@tool(poll=True)
def look() -> str:
    """Look."""
    return "seen"


@tool(poll=True)
def write() -> str:
    """Write."""
    return "written"


def worker(name: str, *lines: Line, **options: Any) -> Agent:
    given: dict[str, Any] = {"tools": [look, write], **options}
    return Agent(model=ScriptedModel(*lines, grace=say("reported")), name=name, **given)


def task(name: str, goal: str = "Do it.", **more: object) -> dict[str, object]:
    return {"child": name, "goal": goal, **more}


def delegate(*tasks: Mapping[str, object]) -> Line:
    return call("delegate", tasks=list(tasks))


def parent(*children: Any, says: tuple[Line, ...], **options: Any) -> Agent:
    given: dict[str, Any] = {"settings": {}, **options}
    return Agent(model=ScriptedModel(*says, grace=say("reported")), name="parent", children=children, **given)


def ran(agent: Agent, **options: Any) -> Result:
    script = ScriptDriver(agent, **options)
    result = script.run("Go.")
    assert script.replay() == result
    for one in (result, *result.children):
        assert_honest(one)
    return result


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    assert isinstance(outcome, Success)
    return cast("list[dict[str, Any]]", outcome.value)


def model_of(agent: Agent) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


@pytest.mark.parametrize(("only", "offered"), [(["look"], ["look"]), ([], []), (["write", "look"], ["look", "write"])])
def test_the_model_may_narrow_a_childs_tools(only: list[str], offered: list[str]) -> None:
    child = worker("w", call("write"), say("done"))
    result = ran(parent(child, says=(delegate(task("w", tools=only)), say("done"))))
    assert [definition["name"] for definition in model_of(child).requests[0].tools] == offered
    [below] = result.children
    assert below.completed
    assert [outcome.ok for outcome in below.tool_results] == ["write" in offered]


def test_other_runs_of_a_narrowed_child_have_all_its_tools() -> None:
    child = worker("w", say("one"), say("two"))
    agent = parent(child, says=(delegate(task("w", tools=["look"])), delegate(task("w", "Else.")), say("done")))
    ran(agent)
    assert [len(request.tools) for request in model_of(child).requests] == [1, 2]


def test_a_tool_that_the_child_has_not_got_is_refused_with_those_it_has() -> None:
    agent = parent(worker("w", say("x")), says=(delegate(task("w", tools=["look", "rm"])), say("done")))
    [outcome] = ran(agent).tool_results
    assert isinstance(outcome, Denied)
    assert outcome.reason == "validation"
    assert all(word in outcome.message for word in ("w ", "rm", "look, write"))


def test_a_narrowed_child_may_not_delegate_either() -> None:
    inner = worker("inner", say("x"))
    middle = worker("middle", delegate(task("inner")), say("alone"), children=[inner])
    result = ran(parent(middle, says=(delegate(task("middle", tools=["look"])), say("done"))))
    [below] = result.children
    assert ["(unknown)" in outcome.text for outcome in below.tool_results] == [True]
    assert (below.text, below.children) == ("alone", ())


def test_equal_tasks_of_a_batch_are_told_apart(snapshot: Callable[..., None]) -> None:
    child = worker("w", say("one"), say("two"), say("three"))
    same = task("w", "Think.", context="Of it.")
    agent = parent(child, says=(together(delegate(same, task("w", "Else.")), delegate(same)), say("done")))
    result = ran(agent)
    asked = [request.messages[0].content for request in model_of(child).requests]
    first, second, third = asked
    assert second == "Else."
    assert str(first).replace("1", "2") == third
    assert first != third
    snapshot(first)
    assert (len(result.children), result.budgets["children"].used) == (3, 3)


@pytest.mark.parametrize("mode", ["independent", "carved", "shared"])
def test_equal_tasks_are_one_run_where_the_settings_say_so(mode: Any) -> None:
    one, two = worker("one", say("one"), limits=Limits(turns=9)), worker("two", say("two"), limits=Limits(turns=9))
    same, both = task("one"), [Child(one, budget=mode), Child(two, budget=mode)]
    says = (together(delegate(same, task("two"), same), delegate(same)), say("done"))
    result = ran(parent(*both, says=says, settings=JOIN))
    first, second = result.tool_results
    assert [row["text"] for row in rows(first)] == ["one", "two", "one"]
    assert [row["text"] for row in rows(second)] == ["one"]
    assert [one.text for one in result.children] == ["one", "two"]
    assert [len(outcome.children) for outcome in result.tool_results] == [2, 0]
    assert result.budgets["children"].used == 2
    assert result.usage_with_children.total == result.usage.total + sum(one.usage.total for one in result.children)


def test_tasks_that_differ_in_anything_are_runs_of_their_own() -> None:
    child = worker("w", *[say("x")] * 5)
    tasks = [task("w"), task("w", context="c"), task("w", turns=3), task("w", seconds=9.0), task("w", tools=["look"])]
    result = ran(parent(child, says=(delegate(*tasks), say("done")), settings=JOIN))
    assert len(result.children) == 5


def test_equal_tasks_of_different_turns_are_runs_of_their_own() -> None:
    child = worker("w", say("one"))
    result = ran(parent(child, says=(delegate(task("w")), delegate(task("w")), say("done")), settings=JOIN))
    assert len(result.children) == 2


def test_a_task_whose_equal_was_denied_is_looked_at_by_itself() -> None:
    child = worker("w", say("one"))
    both = together(delegate(task("w"), task("w", "Else.")), delegate(task("w")))
    result = ran(parent(child, says=(both, say("done")), settings=JOIN, limits=Limits(children=1)))
    assert [outcome.ok for outcome in result.tool_results] == [False, True]
    assert [one.text for one in result.children] == ["one"]


@pytest.mark.parametrize("word", ["perhaps", 1, ""])
def test_a_setting_that_is_neither_true_nor_false_says_so(word: object) -> None:
    with pytest.raises(SettingError) as caught:
        parent(worker("w", say("x")), says=(say("x"),), settings={"delegation.join_duplicates": word})
    assert (caught.value.where, caught.value.found) == ("delegation.join_duplicates", word)
