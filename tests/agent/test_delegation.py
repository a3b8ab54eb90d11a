"""Delegation: an agent hands tasks to its children, and their ends are outcomes of its calls."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from flyball import Agent, Child, ConfigError, Limits, Result, SettingError, TokenPrice, Usage, tool
from flyball.errors import ModelError
from flyball.event import ChildEnded, ChildStarted, Event
from flyball.outcome import Denied, Failure, Outcome, Success
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, say, together


@tool(poll=True)
def touch() -> str:
    """Touch it."""
    return "touched"


def child(name: str, *lines: Line, **options: Any) -> Agent:
    model = ScriptedModel(*lines, grace=say(f"{name} reports."))
    return Agent(model=model, name=name, tools=[touch], **options)


def stubborn(name: str, **options: Any) -> Agent:
    return Agent(
        model=ScriptedModel.looping(call("touch"), grace=say(f"{name} reports.")), name=name, tools=[touch], **options
    )


def task(name: str, goal: str = "Do it.", **more: object) -> dict[str, object]:
    return {"child": name, "goal": goal, **more}


def delegate(*tasks: Mapping[str, object]) -> Line:
    return call("delegate", tasks=list(tasks))


def parent(*children: Any, says: tuple[Line, ...], **options: Any) -> Agent:
    model = ScriptedModel(*says, grace=say("The parent reports."))
    given: dict[str, Any] = {"settings": {}, **options}
    return Agent(model=model, name="parent", children=children, **given)


def ran(agent: Agent, **options: Any) -> Result:
    """Runs it, checks that it is played again to the same, and that every run of the tree is honest."""
    script = ScriptDriver(agent, **options)
    result = script.run("Go.")
    assert script.replay() == result
    for one in family(result):
        assert_honest(one)
    return result


def family(result: Result) -> list[Result]:
    return [result, *(one for below in result.children for one in family(below))]


def outcome_of(agent: Agent, **options: Any) -> Outcome:
    [outcome] = ran(agent, **options).tool_results
    return outcome


def test_the_model_is_told_who_the_children_are_and_what_they_are_for(snapshot: Callable[..., None]) -> None:
    finder = child("finder", say("found"), description="Finds facts.")
    agent = parent(finder, child("writer", say("written")), says=(say("done"),))
    ran(agent)
    assert isinstance(agent.model, ScriptedModel)
    [definition] = agent.model.requests[0].tools
    assert definition["name"] == "delegate"
    snapshot(definition["description"])
    assert "'finder', 'writer'" in str(definition["parameters"])


def test_a_child_is_a_run_of_its_own_and_its_end_is_the_outcome(snapshot: Callable[..., None]) -> None:
    finder = child("finder", call("touch"), say("42"), instructions="You find.")
    result = ran(parent(finder, says=(delegate(task("finder", "Find it.", context="It is small.")), say("done"))))
    [outcome], [below] = result.tool_results, result.children
    assert isinstance(outcome, Success)
    assert outcome.text.startswith("finder: completed")
    assert outcome.text.endswith("\n42")
    snapshot(outcome.text, "outcome")
    assert (below.text, below.stop, below.turns, result.text, result.turns) == ("42", "completed", 2, "done", 2)
    assert isinstance(finder.model, ScriptedModel)
    asked = finder.model.requests[0]
    assert [message.content for message in asked.messages] == ["Find it.\n\nIt is small."]
    assert (asked.instructions or "").startswith("You find.\n\n")
    snapshot(asked.instructions, "instructions")


def test_several_tasks_in_one_call_are_one_outcome_in_the_order_asked() -> None:
    slow, quick = child("slow", call("touch"), say("late")), child("quick", say("soon"))
    says = (delegate(task("slow"), task("quick"), task("quick", "Again.")), say("done"))
    result = ran(parent(slow, quick, says=says), seconds={"touch": 5.0})
    [outcome] = result.tool_results
    assert [one.text for one in result.children] == ["late", "soon", "soon"]
    assert isinstance(outcome, Success)
    heads = [line.partition(".")[0] for line in outcome.text.splitlines() if line.startswith("[")]
    assert heads == ["[1] slow: completed", "[2] quick: completed", "[3] quick: completed"]
    rows: Any = outcome.value
    assert (rows[0]["stop"], rows[0]["budgets"]["turns"]) == ("completed", [2, 50])
    assert result.seconds == 5.0


def test_events_nest_by_the_ids_of_their_parents() -> None:
    heard: list[Event] = []
    inner = child("inner", say("deep"))
    outer = child("outer", delegate(task("inner")), say("middle"), children=[inner])
    result = ScriptDriver(parent(outer, says=(delegate(task("outer")), say("done")), sinks=[heard.append])).run("Go.")
    [below] = result.children
    [deepest] = below.children
    for above, one, name in ((result, below, "outer"), (below, deepest, "inner")):
        assert {event.header.parent_run_id for event in one.events} == {above.run_id}
        started = [event for event in above.events if isinstance(event, ChildStarted)]
        ended = [event for event in above.events if isinstance(event, ChildEnded)]
        assert [(event.child_id, event.agent) for event in started] == [(one.run_id, name)]
        assert [(event.child_id, event.stop) for event in ended] == [(one.run_id, "completed")]
    assert {event.header.run_id for event in heard} == {result.run_id, below.run_id, deepest.run_id}
    assert heard[0].to_dict()["parent_run_id"] is None
    assert [event.kind for event in heard].count("run_ended") == 3


def test_tokens_and_cost_are_told_with_and_without_the_children() -> None:
    price = TokenPrice(input=1.0, output=2.0)

    def priced(name: str, *lines: Line, **options: Any) -> Agent:
        said = [line.using(Usage(100, 10)) for line in lines]
        return Agent(model=ScriptedModel(*said, price=price, name=name), name=name, settings={}, **options)

    inner = priced("inner", say("deep"))
    outer = priced("outer", delegate(task("inner")), say("middle"), children=[inner])
    result = ran(priced("top", delegate(task("outer"), task("outer")), say("done"), children=[outer]))
    once = price.cost(Usage(100, 10))
    assert (result.usage, result.usage_with_children) == (Usage(200, 20), Usage(800, 80))
    assert (result.cost, result.cost_with_children) == (
        {"top": 2 * once},
        {"top": 2 * once, "outer": 4 * once, "inner": 2 * once},
    )
    record = result.to_dict()
    assert (record["usage"]["input"], record["usage_with_children"]["input"]) == (200, 800)
    assert [row["text"] for row in record["children"]] == ["middle", "middle"]
    assert record["tool_execution_results"][0]["children"] == [one.run_id for one in result.children]


def test_a_child_that_meets_its_limit_reports_and_never_closes_its_parent(snapshot: Callable[..., None]) -> None:
    result = ran(parent(stubborn("digger"), says=(delegate(task("digger")), say("I go on."))))
    [outcome], [below] = result.tool_results, result.children
    assert (result.stop, result.flags, result.text) == ("completed", (), "I go on.")
    assert (below.stop, below.turns, below.flags) == ("budget", 50, ("max_child_iterations_reached",))
    assert isinstance(outcome, Failure)
    assert outcome.kind == "budget"
    assert outcome.error.startswith("digger: budget (max_child_iterations_reached)")
    assert outcome.error.endswith("\ndigger reports.")
    snapshot(outcome.error)


def test_a_child_that_fails_is_an_outcome() -> None:
    broken = child("broken", fail(ModelError("no power")))
    result = ran(parent(broken, child("fine", say("ok")), says=(delegate(task("fine"), task("broken")), say("I see."))))
    [outcome] = result.tool_results
    assert isinstance(outcome, Failure)
    assert (outcome.kind, [one.stop for one in result.children], result.text) == (
        "failed",
        ["completed", "failed"],
        "I see.",
    )
    assert "[2] broken: failed" in outcome.error
    assert "no power" in outcome.error


def test_a_child_that_cannot_be_paid_for_does_not_begin() -> None:
    unpriced = child("unpriced", say("too dear"))
    rich = Agent(
        model=ScriptedModel(delegate(task("unpriced")), say("done"), price=TokenPrice(input=1.0, output=1.0)),
        children=[Child(unpriced, "carved")],
        limits=Limits(usd=1.0),
        max_output_tokens=100,
    )
    result = ran(rich)
    [below] = result.children
    assert (below.stop, below.requests, (below.error or {})["code"]) == ("failed", 0, "usage_error")
    assert "scripted" in result.tool_results[0].text
    assert result.budgets["usd"].used == sum(result.cost.values())


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ([], "tasks"),
        ([task("nobody")], "'finder'"),
        ([{"child": "finder"}], "tasks[0].goal"),
        ([task("finder", "")], "tasks[0].goal"),
        ([task("finder", "  \n ")], "tasks[0].goal"),
        ([task("finder", turns=0)], "tasks[0].turns"),
        ([task("finder", limits={"turns": 99})], "tasks[0].limits"),
    ],
)
def test_a_malformed_task_is_denied_with_its_place(tasks: list[dict[str, object]], problem: str) -> None:
    outcome = outcome_of(parent(child("finder", say("x")), says=(call("delegate", tasks=tasks), say("done"))))
    assert isinstance(outcome, Denied)
    assert (outcome.reason, problem in outcome.message) == ("validation", True), outcome.message


@pytest.mark.parametrize(("wanted", "got"), [(3, 3), (5, 5), (60, 7)])
def test_turns_that_the_model_passes_can_only_narrow(wanted: int, got: int) -> None:
    digger = stubborn("digger", limits=Limits(turns=7))
    result = ran(parent(digger, says=(delegate(task("digger", turns=wanted)), say("done"))))
    assert [one.turns for one in result.children] == [got]
    assert isinstance(digger.model, ScriptedModel)
    assert f"{got} turns, 600 s." in (digger.model.requests[0].instructions or "")


def test_the_model_may_narrow_the_time_too() -> None:
    digger = stubborn("digger")
    result = ran(parent(digger, says=(delegate(task("digger", seconds=10.0)), say("done"))), seconds={"touch": 1.0})
    [below] = result.children
    assert (below.stop, below.flags) == ("deadline", ("max_seconds_reached",))
    assert 8.0 <= below.seconds <= 10.0


def test_more_children_than_there_are_left_are_denied_in_one_step(snapshot: Callable[..., None]) -> None:
    says = (
        delegate(task("a"), task("a"), task("a")),
        delegate(*[task("a")] * 3),
        delegate(*[task("a")] * 2),
        delegate(task("a")),
        say("done"),
    )
    result = ran(parent(child("a", say("x")), says=says, limits=Limits(children=5)))
    first, second, third, fourth = result.tool_results
    assert (first.ok, third.ok, len(result.children), result.budgets["children"].used) == (True, True, 5, 5)
    assert isinstance(second, Denied)
    assert isinstance(fourth, Denied)
    assert (second.reason, fourth.reason) == ("budget", "budget")
    snapshot(second.message)
    assert (result.flags, result.stop) == (("max_children_reached",), "completed")


def test_children_deeper_than_allowed_are_denied(snapshot: Callable[..., None]) -> None:
    agent = child("level3", say("bottom"))
    for level in (2, 1):
        agent = child(f"level{level}", delegate(task(f"level{level + 1}")), say(f"{level}"), children=[agent])
    result = ran(parent(agent, says=(delegate(task("level1")), say("done"))))
    chain = family(result)
    assert [one.budgets["depth"].used for one in chain] == [0, 1, 2]
    [denied] = chain[-1].tool_results
    assert isinstance(denied, Denied)
    assert denied.reason == "budget"
    snapshot(denied.message)
    assert (chain[-1].flags, chain[-1].stop) == (("max_depth_reached",), "completed")


@pytest.mark.parametrize(("own", "levels"), [(0, 3), (1, 4), (8, 4)])
def test_a_childs_own_depth_can_only_narrow(own: int, levels: int) -> None:
    agent = child("level2", say("bottom"))
    agent = child("level1", delegate(task("level2")), say("1"), children=[agent], limits=Limits(depth=own))
    agent = child("level0", delegate(task("level1")), say("0"), children=[agent])
    chain = family(ran(parent(agent, says=(delegate(task("level0")), say("done")), limits=Limits(depth=3))))
    assert len(chain) == levels
    assert chain[2].budgets["depth"].ceiling == min(3, 2 + own)


def test_a_childs_time_ends_before_its_parents_work_does() -> None:
    digger = stubborn("digger")
    agent = parent(digger, says=(delegate(task("digger")), say("done")), limits=Limits(seconds=100))
    result = ran(agent, seconds={"touch": 3.0})
    [below] = result.children
    assert (below.stop, below.text) == ("deadline", "digger reports.")
    assert below.seconds <= 100 - 15
    assert (result.stop, result.text) == ("completed", "done")


def test_settings_say_how_much_a_child_has_and_how_many_work_at_a_time() -> None:
    settings = {
        "delegation.max_iterations": 4,
        "delegation.child_timeout_seconds": 30,
        "delegation.max_concurrent_children": 2,
    }
    digger = stubborn("digger")
    says = (delegate(*[task("digger")] * 3), say("done"))
    result = ran(parent(digger, says=says, settings=settings), seconds={"touch": 1.0})
    assert [one.turns for one in result.children] == [4, 4, 4]
    assert result.seconds == 8.0  # two, and then one
    assert isinstance(digger.model, ScriptedModel)
    assert "4 turns, 30 s." in (digger.model.requests[0].instructions or "")


@pytest.mark.parametrize("wrong", [0, "many", -1])
def test_a_wrong_number_of_concurrent_children_is_refused(wrong: object) -> None:
    with pytest.raises(SettingError) as caught:
        parent(child("a", say("x")), says=(say("done"),), settings={"delegation.max_concurrent_children": wrong})
    assert (caught.value.where, caught.value.found) == ("delegation.max_concurrent_children", wrong)


def test_children_stand_beside_tools_in_one_batch() -> None:
    says = (together(call("touch"), delegate(task("a")), delegate(task("a"))), say("done"))
    slow = child("a", call("touch"), say("x"))
    result = ran(parent(slow, says=says, tools=[tool(effects="read", name="touch")(lambda: "t")]), seconds={"touch": 2})
    assert [outcome.tool for outcome in result.tool_results] == ["touch", "delegate", "delegate"]
    assert (result.seconds, len(result.children)) == (2.0, 2)


def test_who_approves_for_the_parent_approves_for_a_child_that_has_nobody() -> None:
    asked: list[str] = []

    def approver(question: Any) -> bool:
        asked.append(question.text)
        return True

    careful = Agent(
        model=ScriptedModel(call("write"), say("ok")),
        name="careful",
        tools=[tool(approve=True, name="write")(lambda: "w")],
    )
    result = ran(parent(careful, says=(delegate(task("careful")), say("done")), approver=approver))
    assert (len(asked), result.children[0].stop) == (1, "completed")
    nobody = ran(parent(careful, says=(delegate(task("careful")), say("done"))))
    assert (nobody.stop, nobody.children[0].stop, nobody.tool_results[0].status) == ("completed", "paused", "failed")


def test_a_long_report_is_cut_for_the_model_and_whole_in_the_result() -> None:
    result = ran(parent(child("a", say("x" * 30_000)), says=(delegate(task("a"), task("a")), say("done"))))
    assert len(result.tool_results[0].text) < 13_000
    assert "30000" in result.tool_results[0].text
    assert [len(one.text) for one in result.children] == [30_000, 30_000]


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: parent(child("a"), child("a"), says=(say("x"),)), "children"),
        (lambda: parent("a", says=(say("x"),)), "child"),
        (lambda: Child(child("a"), "half"), "child, budget"),  # pyright: ignore[reportArgumentType]
        (lambda: parent(child("a"), says=(), tools=[tool(name="delegate")(lambda: "x")]), "delegate"),
        (lambda: Agent(model=ScriptedModel(say("x")), description=3), "description"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_children_that_cannot_be_are_refused_when_the_agent_is_made(make: Any, where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        make()
