"""Children through the real doors: side by side, bounded, cut with their parent, and never its exception."""

import asyncio
from collections.abc import Callable
from threading import Event as ThreadEvent
from typing import Any

import anyio
import pytest

from flyball import Agent, Child, Limits, Result, tool
from flyball.agent.run import Run
from flyball.event import Event
from flyball.outcome import Failure, Timeout
from flyball.testing import Line, ScriptedModel, call, say, together
from flyball.tools import ToolContext

LONG = 60.0
Running = Callable[..., Result]
Watch = Callable[..., Result]


@tool(poll=True)
async def touch() -> None:
    await anyio.sleep(0)


@tool(effects="read", poll=True)
async def wait() -> None:
    await anyio.sleep(LONG)


def kid(name: str, *lines: Line, tools: Any = (touch, wait), **options: Any) -> Agent:
    model = ScriptedModel(*lines, grace=say("kid reports"), max_output_tokens=50)
    return Agent(model=model, name=name, tools=tools, **options)


def stubborn(name: str, **options: Any) -> Agent:
    model = ScriptedModel.looping(call("touch"), grace=say("kid reports"), max_output_tokens=50)
    return Agent(model=model, name=name, tools=[touch], **options)


def task(name: str) -> dict[str, str]:
    return {"child": name, "goal": "Do it."}


def delegate(*names: str) -> Line:
    return call("delegate", tasks=[task(name) for name in names])


def parent(*children: Any, says: tuple[Line, ...], **options: Any) -> Agent:
    model = ScriptedModel(*says, grace=say("parent reports"), max_output_tokens=50)
    given: dict[str, Any] = {"settings": {}, **options}
    return Agent(model=model, name="parent", children=children, **given)


def three_levels() -> Agent:
    inner = kid("inner", call("touch"), say("deep").streaming("de", "ep"))
    outer = kid("outer", call("touch"), delegate("inner", "inner"), say("middle"), children=[Child(inner, "carved")])
    return parent(Child(outer, "shared"), says=(delegate("outer", "outer", "outer"), say("done")))


def family(result: Result) -> list[Result]:
    return [result, *(one for below in result.children for one in family(below))]


def test_children_of_one_turn_work_at_the_same_time(run: Running, closed: Any) -> None:
    inside = 0

    @tool(effects="read")
    async def meet() -> str:
        nonlocal inside
        inside += 1
        while inside < 3:
            await anyio.sleep(0.001)
        return "met"

    kids = [kid(name, call("meet"), say(name), tools=[meet]) for name in "abc"]
    result = run(parent(*kids, says=(together(delegate("a", "b"), delegate("c")), say("done"))))
    assert [closed(one).text for one in result.children] == ["a", "b", "c"]
    assert (result.text, [outcome.ok for outcome in result.tool_results]) == ("done", [True, True])


@pytest.mark.one_door
def test_children_above_the_parallel_limit_wait_in_order(run: Running) -> None:
    inside, most, begun = 0, 0, list[str]()

    def on(event: Event) -> None:
        nonlocal inside, most
        if event.header.parent_run_id is not None and event.kind == "run_started":
            inside, most = inside + 1, max(most, inside + 1)
            begun.append(event.header.run_id)
        elif event.header.parent_run_id is not None and event.kind == "run_ended":
            inside -= 1

    slow = kid("a", call("touch"), call("touch"), say("x"))
    result = run(parent(slow, says=(together(delegate(*"aaa"), delegate(*"aaaa")), say("done")), sinks=[on]))
    assert (most, begun) == (3, [one.run_id for one in result.children])


def test_nested_children_with_def_tools_do_not_exhaust_the_threads(run: Running) -> None:
    @tool(poll=True)
    def block() -> str:
        return "ok"

    inner = kid("inner", call("block"), say("deep"), tools=[block])
    outer = kid("outer", call("block"), delegate("inner"), say("middle"), tools=[block], children=[inner])
    result = run(parent(outer, says=(delegate(*["outer"] * 5), say("done"))))
    assert [one.text for one in family(result)] == ["done", *["middle", "deep"] * 5]


@pytest.mark.one_door
def test_a_tree_of_three_levels_never_exceeds_its_shared_budget(run: Running, closed: Any) -> None:
    inner = stubborn("inner", limits=Limits(turns=9))
    outer = kid("outer", delegate(*["inner"] * 3), call("touch"), say("middle"), children=[Child(inner, "independent")])
    agent = parent(Child(outer, "shared"), says=(delegate(*["outer"] * 3), say("done")))
    with Limits(turns=40, tokens=50_000, children=11).open() as tree:
        result = run(agent, within=tree)
        runs = [closed(one) for one in family(result)]
        assert tree.budgets["turns"].used == sum(one.turns for one in runs) == 40
        assert tree.budgets["tokens"].used == sum(one.usage.total for one in runs)
        assert tree.budgets["children"].used == len(runs) - 1 <= 11
        assert tree.budgets["tokens"].held == sum(tree.reserve.values())
    assert result.usage_with_children.total == sum(one.usage.total for one in runs)


def test_a_cancel_at_any_event_ends_the_whole_tree(watch: Watch, closed: Any) -> None:
    for at in range(0, 40, 3):
        agent = three_levels()
        seen, told = list[Event](), list[bool]()

        def watching(run: Run, event: Event, at: int = at, seen: Any = seen, told: Any = told) -> None:
            seen.append(event)
            if len(seen) == at + 1:
                told.append(run.cancel("test"))

        result = watch(agent, watching)
        expected = (True, "test") if told[0] else (False, None)
        assert (result.stop == "cancelled", result.stopped_by) == expected, f"event {at}"
        for one in family(result):
            closed(one)
            assert all(budget.held == 0 for budget in one.budgets.values()), f"event {at}"
            kinds = [event.kind for event in one.events]
            assert kinds.count("child_started") == kinds.count("child_ended") == len(one.children), f"event {at}"
        assert {one.stopped_by for one in family(result)[1:] if one.stop == "cancelled"} <= {"parent"}, f"event {at}"


def test_a_cancel_ends_children_that_run_and_children_that_wait_for_a_place(watch: Watch, closed: Any) -> None:
    slow = kid("slow", call("wait"), say("never"))
    agent = parent(Child(slow, "carved"), says=(delegate(*["slow"] * 5), say("done")))
    begun: set[str] = set()

    def watching(run: Run, event: Event) -> None:
        if event.kind == "tool_started":
            begun.add(event.header.run_id)
        if len(begun) == 4:  # the parent's own call, and three
            run.cancel("test")

    result = watch(agent, watching)
    assert [closed(one).stop for one in result.children] == ["cancelled"] * 5
    assert [one.turns for one in result.children] == [1, 1, 1, 0, 0]
    assert (result.budgets["turns"].used, result.budgets["turns"].held) == (4, 0)
    assert result.tool_results[0].status == "cancelled"


def test_a_cancelled_task_ends_the_children_and_leaves_no_task_behind(here: Any) -> None:
    slow = kid("slow", call("wait"), say("never"))
    heard: list[Event] = []
    agent = parent(slow, says=(delegate("slow", "slow"), say("done")), sinks=[heard.append])

    async def cut() -> int:
        async def go() -> None:
            await agent.arun("go")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go)
            while [event.kind for event in heard].count("tool_started") < 3:
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
        try:
            return len(asyncio.all_tasks())
        except RuntimeError:  # trio, which waits for every task by itself
            return 1

    assert here(cut) == 1
    ends = {event.header.run_id: event.to_dict() for event in heard if event.kind == "run_ended"}
    assert [row["stopped_by"] for row in ends.values()] == ["parent", "parent", "task"]
    assert [event.kind for event in heard].count("run_ended") == 3


@pytest.mark.one_door
def test_a_child_that_meets_its_deadline_reports_and_its_siblings_go_on(run: Running, closed: Any) -> None:
    slow = kid("slow", call("wait"), say("never"), limits=Limits(seconds=1))
    agent = parent(Child(slow, "carved"), kid("quick", say("soon")), says=(delegate("quick", "slow"), say("done")))
    result = run(agent)
    quick, cut = result.children
    assert (quick.stop, cut.stop, closed(cut).text) == ("completed", "deadline", "kid reports")
    [outcome] = result.tool_results
    assert isinstance(outcome, Failure)
    assert (outcome.kind, result.text) == ("deadline", "done")
    assert (result.budgets["turns"].used, result.budgets["turns"].held) == (2 + cut.turns, 0)


@pytest.mark.one_door
def test_a_parent_at_its_deadline_cancels_waiting_children_and_reports(run: Running, closed: Any) -> None:
    release = ThreadEvent()

    async def nobody(question: object) -> bool:
        await anyio.sleep(LONG)
        return True

    ask = tool(approve=True, name="ask")(lambda: "x")
    waits = kid("waits", call("ask"), say("never"), tools=[ask], approver=nobody)
    agent = parent(waits, says=(delegate("waits", "waits"), say("done")), limits=Limits(seconds=1.5))
    result = run(agent)
    release.set()
    assert (result.stop, result.text) == ("deadline", "parent reports")
    assert [closed(one).stop for one in result.children] == ["cancelled", "cancelled"]
    assert isinstance(result.tool_results[0], Timeout)


@pytest.mark.one_door
def test_a_child_whose_tool_source_cannot_open_fails_alone(run: Running, closed: Any) -> None:
    class Broken:
        name = "broken"

        def open(self) -> Any:
            raise RuntimeError("no server")

    bad = kid("bad", say("never"), tools=[Broken()])
    result = run(parent(Child(bad, "carved"), kid("good", say("ok")), says=(delegate("bad", "good"), say("done"))))
    first, released = result.children
    assert (closed(first).stop, released.stop, result.stop) == ("failed", "completed", "completed")
    assert result.budgets["turns"].used == 2


@pytest.mark.one_door
@pytest.mark.parametrize("way", ["cancel", "steer"])
def test_cancelling_or_steering_one_child_leaves_the_others_alone(watch: Watch, closed: Any, way: str) -> None:
    released = ThreadEvent()

    @tool(effects="read", poll=True)
    async def hold_on() -> None:
        while not released.is_set():
            await anyio.sleep(0.001)

    kids = [kid(name, call("hold_on"), say(name), tools=[hold_on]) for name in "ab"]
    agent = parent(*kids, says=(delegate("a", "b"), say("done")))
    waiting: set[str] = set()
    told: list[bool] = []

    def watching(run: Run, event: Event) -> None:
        if event.kind == "tool_started" and event.header.parent_run_id is not None:
            waiting.add(event.header.run_id)
        if len(waiting) == 2 and not told:
            names = {child.agent: child for child in run.children}
            one = names["a"]
            told.append(one.cancel("test") if way == "cancel" else one.steer("Be short."))
            if way == "steer":
                released.set()
        if event.kind == "run_ended" and event.header.parent_run_id is not None:
            released.set()

    result = watch(agent, watching)
    one, other = result.children
    assert (told, closed(other).text, result.text) == ([True], "b", "done")
    if way == "cancel":
        assert (one.stop, one.stopped_by, one.turns) == ("cancelled", "test", 1)
        assert "a: cancelled" in result.tool_results[0].text
    else:
        assert (one.stop, one.messages[-2].content) == ("completed", "Be short.")


@pytest.mark.one_door
def test_a_stalled_child_reports_and_its_siblings_go_on(run: Running, closed: Any) -> None:
    @tool(effects="read", poll=True)
    async def step() -> None:
        await anyio.sleep(0.1)

    busy = kid("busy", *[call("step")] * 13, say("busy"), tools=[step])
    agent = parent(
        busy,
        kid("stuck", call("wait"), say("never")),
        says=(delegate("busy", "stuck", "busy"), say("done")),
        settings={"delegation.stall_seconds": 1},
    )
    result = run(agent)
    assert [closed(one).stop for one in result.children] == ["completed", "stalled", "completed"]
    stuck = result.children[1]
    assert (stuck.text, bool(stuck.warning)) == ("kid reports", True)
    assert [outcome.status for outcome in stuck.tool_results] == ["timed_out"]
    assert (result.stop, result.text) == ("completed", "done")


@pytest.mark.one_door
def test_a_child_whose_tool_only_reports_is_stalled(run: Running, closed: Any) -> None:
    @tool(effects="read")
    async def chat(ctx: ToolContext) -> None:
        for _ in range(200):
            ctx.report("still here")
            await anyio.sleep(0.05)

    talker = kid("talker", call("chat"), say("never"), tools=[chat])
    result = run(parent(talker, says=(delegate("talker"), say("done")), settings={"delegation.stall_seconds": 0.5}))
    [child] = result.children
    assert (closed(child).stop, child.text) == ("stalled", "kid reports")


@pytest.mark.one_door
def test_a_child_whose_calls_end_one_after_the_other_is_not_stalled(run: Running, closed: Any) -> None:
    @tool(effects="read")
    async def sleep(seconds: float) -> None:
        await anyio.sleep(seconds)

    calls = together(*[call("sleep", seconds=seconds) for seconds in (0.4, 0.8, 1.2, 1.6)])
    steady = kid("steady", calls, say("steady"), tools=[sleep])
    result = run(parent(steady, says=(delegate("steady"), say("done")), settings={"delegation.stall_seconds": 1}))
    assert [closed(child).stop for child in result.children] == ["completed"]


@pytest.mark.one_door
def test_a_stalled_child_whose_report_hangs_is_given_up(run: Running, closed: Any) -> None:
    model = ScriptedModel(say("never").after(LONG), grace=say("never").after(LONG))
    deaf = Agent(model=model, name="deaf")
    settings = {"delegation.stall_seconds": 0.2}
    result = run(parent(deaf, says=(delegate("deaf"), say("done")), settings=settings))
    [given_up] = result.children
    assert (closed(given_up).stop, given_up.requests, result.text) == ("stalled", 2, "done")
    assert given_up.seconds < LONG


@pytest.mark.one_door
def test_a_child_that_waits_for_children_or_a_person_is_not_stalled(run: Running) -> None:
    async def slow_approver(question: object) -> bool:
        await anyio.sleep(1.3)
        return True

    @tool(effects="read", poll=True)
    async def step() -> None:
        await anyio.sleep(0.1)

    asks = kid("asks", call("ask"), say("asked"), tools=[tool(approve=True, name="ask")(lambda: "x")])
    busy = kid("busy", *[call("step")] * 13, say("busy"), tools=[step])
    middle = kid("middle", delegate("busy"), say("middle"), children=[busy])
    settings = {"delegation.stall_seconds": 1}
    agent = parent(
        asks, middle, says=(delegate("asks", "middle"), say("done")), settings=settings, approver=slow_approver
    )
    result = run(agent)
    assert [one.stop for one in result.children] == ["completed", "completed"]


@pytest.mark.parametrize("mode", ["independent", "carved", "shared"])
def test_a_resumed_parent_does_not_run_its_children_again(mode: Any) -> None:
    worker = kid("worker", call("touch"), say("worked"))
    ask = tool(approve=True, name="ask")(lambda: "x")
    says = (delegate("worker", "worker"), call("ask"), say("done"))
    agent = parent(Child(worker, mode), says=says, tools=[ask], limits=Limits(turns=50))
    paused = agent.run("go")
    assert isinstance(worker.model, ScriptedModel)
    assert (paused.stop, len(paused.children), len(worker.model.requests)) == ("paused", 2, 4)
    result = agent.resume(paused, {paused.questions[0].id: True})
    assert (result.stop, result.text, len(worker.model.requests)) == ("completed", "done", 4)
    assert [one.text for one in result.children] == ["worked", "worked"]
    below = 0 if mode == "independent" else 4
    assert (result.budgets["turns"].used, result.budgets["turns"].held) == (3 + below, 0)
