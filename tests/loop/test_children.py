"""Random trees of runs, in any order: no claim passes an ancestor, the sums agree, and all is played again the same."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball import Agent, Child, Limits, Result, Usage, tool
from flyball.errors import ModelError
from flyball.loop.child_task import SHARED_BUDGETS
from flyball.progress import Raise
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, replay, say


@tool(poll=True)
def touch() -> None:
    """Touch it."""


@dataclass
class Node:
    """An agent of a tree that a test made up."""

    mode: str
    turns: int
    tokens: int | None
    children: int
    steps: list[str]
    below: list["Node"] = field(default_factory=list["Node"])

    def agent(self, name: str = "top") -> Agent:
        kids = [Child(node.agent(f"{name}{n}"), node.mode) for n, node in enumerate(self.below)]  # pyright: ignore[reportArgumentType]
        lines = [self._line(step, name) for step in self.steps]
        model = ScriptedModel(*lines, grace=say("report").using(Usage(5, 5)), max_output_tokens=20)
        limits = Limits(turns=self.turns, tokens=self.tokens, children=self.children, depth=8)
        return Agent(model=model, name=name, tools=[touch], children=kids, limits=limits, settings={})

    def _line(self, step: str, name: str) -> Line:
        tasks = [{"child": f"{name}{n}", "goal": "Go."} for n in range(len(self.below))]
        match step:
            case "delegate" if tasks:
                return call("delegate", tasks=tasks).using(Usage(10, 5))
            case "one" if tasks:
                return call("delegate", tasks=tasks[:1]).using(Usage(10, 5))
            case "fail":
                return fail(ModelError("broken"))
            case "end":
                return say("done").using(Usage(10, 5))
            case _:
                return call("touch").using(Usage(10, 5))


def nodes(below: st.SearchStrategy[list[Node]]) -> st.SearchStrategy[Node]:
    step = st.sampled_from(["delegate", "delegate", "one", "touch", "fail", "end"])
    steps = st.lists(step, min_size=1, max_size=4).map(lambda row: [*row, *["touch"] * 6, "end"])
    return st.builds(
        Node,
        st.sampled_from(["independent", "carved", "shared"]),
        st.integers(1, 9),
        st.none() | st.integers(60, 4_000),
        st.integers(0, 5),
        steps,
        below,
    )


leaves = nodes(st.just([]))
trees = nodes(st.lists(nodes(st.lists(leaves, max_size=3)), min_size=1, max_size=3))


def pairs(result: Result, node: Node, name: str = "top") -> Iterator[tuple[Result, Node]]:
    """Every run of the tree with the node that it is one of."""
    yield result, node
    names = [event.to_dict()["agent"] for event in result.events if event.kind == "child_ended"]
    for below, agent in zip(result.children, names, strict=True):
        yield from pairs(below, node.below[int(agent.removeprefix(name))], agent)


def used(result: Result, name: str) -> int:
    return result.budgets[name].used


def own(result: Result, name: str) -> int:
    started = [event.kind for event in result.events].count("child_started")
    return {"turns": result.turns, "tokens": result.usage.total, "usd": 0, "children": started}[name]


def check_sums(result: Result, node: Node, name: str = "top") -> None:
    """What a run has used is its own, and that of the children that take from it."""
    agents = [event.to_dict()["agent"] for event in result.events if event.kind == "child_ended"]
    below = [(one, node.below[int(a.removeprefix(name))]) for one, a in zip(result.children, agents, strict=True)]
    for budget in SHARED_BUDGETS:
        modes = ("shared",) if budget == "children" else ("shared", "carved")
        taken = sum(used(one, budget) for one, kid in below if kid.mode in modes)
        snapshot = result.budgets[budget]
        assert snapshot.used == own(result, budget) + taken, f"{budget} of {name}"
        assert snapshot.held == 0
        assert snapshot.ceiling is None or budget == "tokens" or snapshot.used <= snapshot.ceiling


@settings(max_examples=50, deadline=None)
@given(trees, st.none() | st.integers(0, 5), st.none() | st.integers(5, 60))
def test_no_run_of_any_tree_passes_an_ancestor_and_the_sums_agree(
    tree: Node, seed: int | None, ceiling: int | None
) -> None:
    agent = tree.agent()
    shared = None if ceiling is None else Limits(turns=ceiling, tokens=3_000, children=7).open()
    script = ScriptDriver(agent, seed=seed)
    result = script.run("Go.") if shared is None else script.run("Go.", within=shared)
    runs = list(pairs(result, tree))
    for one, node in runs:
        assert_honest(one)
        assert [event.kind for event in one.events].count("run_ended") == 1
        check_sums(one, node, one.events[0].to_dict()["agent"])
    if shared is not None:
        shared.close()
        for name, fact in (("turns", "turns"), ("tokens", "tokens"), ("children", "children")):
            budget = shared.budgets[name]
            assert budget.used == sum(own(one, fact) for one, _ in runs)
            assert (budget.held, name == "tokens" or budget.used <= (budget.ceiling or 0)) == (0, True)
    assert script.replay() == result
    played = {plan.run_id: replay(agent, plan, answers) for plan, answers in script.children}
    assert [played[one.run_id] for one, _ in runs[1:]] == [one for one, _ in runs[1:]]


def stubborn(name: str, **limits: Any) -> Agent:
    model = ScriptedModel.looping(call("touch"), grace=say("report"), max_output_tokens=20)
    return Agent(model=model, name=name, tools=[touch], limits=Limits(**limits))


def top(*children: Child | Agent, says: tuple[Line, ...], **limits: Any) -> Agent:
    model = ScriptedModel(*says, grace=say("report"), max_output_tokens=20)
    return Agent(model=model, children=children, limits=Limits(**limits), settings={})


def tasks(*names: str) -> Line:
    return call("delegate", tasks=[{"child": name, "goal": "Go."} for name in names])


@pytest.mark.parametrize("seed", [None, *range(20)])
def test_three_under_a_shared_cap_use_exactly_that_in_any_order(seed: int | None) -> None:
    kids = [Child(stubborn(name), "shared") for name in "abc"]
    script = ScriptDriver(top(*kids, says=(tasks(*"abc"), say("done")), turns=61), seed=seed)
    result = script.run("Go.")
    assert sum(one.turns for one in result.children) == 60
    assert {flag for one in result.children for flag in one.flags} == {"max_shared_turns_reached"}
    assert (result.budgets["turns"].used, result.stop, result.text) == (61, "budget", "report")
    assert script.replay() == result


def ends(how: str) -> tuple[Agent, int]:
    """A child that ends in some way, and the turns it takes."""
    lines = {"success": (say("ok"),), "failure": (call("touch"), fail(ModelError("x"))), "limit": ()}
    if how == "limit":
        return stubborn("kid", turns=3), 3
    if how == "timeout":
        model = ScriptedModel(call("touch"), say("late").after(50.0), grace=say("report"))
        return Agent(model=model, name="kid", tools=[touch], limits=Limits(seconds=10)), 2
    model = ScriptedModel(*lines[how])
    return Agent(model=model, name="kid", tools=[touch]), len(lines[how])


@pytest.mark.parametrize("how", ["success", "failure", "limit", "timeout"])
def test_what_a_carved_child_did_not_use_comes_back(how: str) -> None:
    kid, turns = ends(how)
    seen: list[tuple[int, int]] = []
    agent = top(Child(kid, "carved"), says=(tasks("kid"), say("done")), turns=60)
    hooked = Agent(model=agent.model, children=agent.children, limits=agent.limits, hooks=[_watch(seen)], settings={})
    result = ScriptDriver(hooked).run("Go.")
    spent = turns - (how == "failure")  # a request that failed before it began gives its turn back
    assert (result.stop, result.children[0].budgets["turns"].used) == ("completed", spent)
    assert seen[-1] == (1 + spent, 0)
    assert result.budgets["turns"].used == 2 + spent


def _watch(seen: list[tuple[int, int]]) -> Callable[..., None]:
    """Remembers what is used and held of turns when a call has ended."""

    def hook(point: Any, progress: Any, about: object = None) -> None:
        if point == "tool_ended":
            budget = progress.envelope.budgets["turns"]
            seen.append((budget.used, budget.held))

    return hook


@pytest.mark.parametrize(("left", "slices"), [(150, [50, 50, 50]), (60, [20, 20, 20]), (10, [3, 3, 4])])
def test_slices_are_what_a_child_may_have_or_equal_parts_of_what_is_left(left: int, slices: list[int]) -> None:
    kids = [Child(stubborn(name), "carved") for name in "abc"]
    result = ScriptDriver(top(*kids, says=(tasks(*"abc"), say("done")), turns=left + 1)).run("Go.")
    assert [one.turns for one in result.children] == slices


def test_a_child_without_a_ceiling_of_tokens_gets_its_part_of_half_of_what_is_left() -> None:
    kids = [Child(stubborn(name), "carved") for name in "ab"]
    result = ScriptDriver(top(*kids, says=(tasks(*"ab"), say("done")), tokens=10_000)).run("Go.")
    first, second = (one.budgets["tokens"].ceiling or 0 for one in result.children)
    assert 1_900 < first <= second <= 3_000
    spent = result.usage_with_children.total
    assert (result.budgets["tokens"].used, result.budgets["tokens"].held) == (spent, 0)


def test_where_nothing_is_left_to_carve_the_call_is_denied(snapshot: Callable[..., None]) -> None:
    agent = top(Child(stubborn("kid"), "carved"), says=(tasks("kid"), say("done")), turns=1)
    result = ScriptDriver(agent).run("Go.")
    [denied] = result.tool_results
    assert denied.status == "denied"
    snapshot(denied.text)
    assert (result.children, result.budgets["children"].used, result.stop) == ((), 0, "budget")


def test_what_was_carved_is_never_raised_by_the_childs_own_rules() -> None:
    def more(point: Any, progress: Any, about: object = None) -> list[Raise]:
        return [Raise("turns", 100, by="hook")] if point == "budget_refused" else []

    model = ScriptedModel.looping(call("touch"), grace=say("report"))
    greedy = Agent(model=model, name="kid", tools=[touch], limits=Limits(turns=5), hooks=[more])
    result = ScriptDriver(top(Child(greedy, "carved"), says=(tasks("kid"), say("done")), turns=60)).run("Go.")
    assert [one.turns for one in result.children] == [5]


def test_a_child_that_only_inherits_a_limit_reserves_a_part_for_its_report() -> None:
    sums = ScriptedModel.looping(call("touch").using(Usage(90, 10)), grace=say("I touched.").using(Usage(50, 5)))
    child = Agent(name="child", model=sums, tools=[touch], max_output_tokens=50)
    task = {"child": "child", "goal": "Touch."}
    model = ScriptedModel(call("delegate", tasks=[task]), say("done"))
    parent = Agent(model=model, children=[Child(child, "carved")], limits=Limits(tokens=20_000))
    [result] = ScriptDriver(parent).run("Go.").children
    assert (result.stop, result.text) == ("budget", "I touched.")
    assert result.budgets["tokens"].used <= (result.budgets["tokens"].ceiling or 0)
