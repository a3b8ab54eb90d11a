"""What is lent to remote runs, and booked."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from flyball import Agent, Child, Limits, Result, TokenPrice
from flyball.budget.snapshot import BudgetSnapshot
from flyball.serve import RemoteAgent, chat_app, remote_agent
from flyball.testing import Line, ScriptedModel, assert_honest, call, say

Served = Callable[[Any], AbstractContextManager[str]]
Saying = Callable[[int, bytes], str]
PRICE = TokenPrice(input=1, output=2)
BOUND_S = 60.0
BOASTED = {name: BudgetSnapshot(name, None, 900_000).to_dict() for name in ("turns", "tokens", "children")}


def agent(*lines: Line) -> Agent:
    return Agent(model=ScriptedModel.looping(*lines, price=PRICE), max_output_tokens=50)


def parent(child: Child | RemoteAgent, tasks: int = 1, **options: Any) -> Agent:
    rows = [{"child": "far", "goal": f"Task {n}."} for n in range(tasks)]
    model = ScriptedModel(call("delegate", tasks=rows), say("Done."), price=PRICE)
    return Agent(model=model, children=[child], max_output_tokens=50, **options)


def ran(agent: Agent) -> Result:
    result = agent.start("Go.").result(BOUND_S)
    for one in (result, *result.children):
        assert_honest(one)
    return result


class TestBudgets:
    def test_budgets_of_a_carved_remote_run_are_settled_with_what_it_used(self, served: Served) -> None:
        with served(chat_app(agent(say("Hi.")))) as url:
            child = Child(remote_agent(url, name="far", limits=Limits(tokens=2_000)), "carved")
            result = ran(parent(child, limits=Limits(tokens=9_000, usd=1)))
        [far] = result.children
        assert far.budgets["tokens"].used > 0
        assert result.budgets["tokens"].used == result.usage.total + far.usage.total
        assert result.budgets["turns"].used == 3
        assert result.budgets["usd"].used == sum(result.cost_with_children.values())

    def test_budgets_of_a_carved_remote_run_that_was_lost_are_settled_whole(self, saying: Saying) -> None:
        url = saying(500, b"")
        child = Child(remote_agent(url, name="far", limits=Limits(tokens=2_000)), "carved")
        result = ran(parent(child, limits=Limits(tokens=9_000)))
        assert result.budgets["tokens"].used == result.usage.total + 2_000

    def test_a_shared_remote_run_that_was_lost_takes_no_more_than_it_was_lent(self, saying: Saying) -> None:
        child = Child(remote_agent(saying(500, b""), name="far"), "shared")
        result = ran(parent(child, limits=Limits(turns=20, tokens=9_000, usd=1, children=4)))
        [far] = result.children
        assert (result.completed, far.stop) == (True, "failed")
        for name in ("turns", "tokens", "usd"):
            own, lent = result.budgets[name], far.budgets[name]
            assert (lent.used, lent.ceiling is None) == (lent.ceiling, False)
            assert lent.used < own.used < (own.ceiling or 0)
        assert result.budgets["children"].used == 1

    def test_budgets_that_remote_runs_share_are_lent_and_settled_with_what_they_used(self, served: Served) -> None:
        with served(chat_app(agent(say("Hi.")))) as url:
            child = Child(remote_agent(url, name="far"), "shared")
            result = ran(parent(child, tasks=3, limits=Limits(turns=20, tokens=9_000)))
        assert [far.stop for far in result.children] == ["completed"] * 3
        assert result.budgets["tokens"].used == result.usage_with_children.total
        assert result.budgets["turns"].used == 5

    def test_budgets_that_are_shared_and_empty_refuse_and_no_remote_is_asked(self, served: Served) -> None:
        far = agent(say("Hi."))
        with served(chat_app(far)) as url, Limits(turns=1).open() as tree:
            model = ScriptedModel(call("delegate", tasks=[{"child": "far", "goal": "Go."}]), grace=say("Over."))
            run = Agent(model=model, children=[remote_agent(url, name="far")]).start("Go.", within=tree)
            result = run.result(BOUND_S)
        assert isinstance(far.model, ScriptedModel)
        assert far.model.requests == []
        assert [child.stop for child in result.children] == ["budget"]
        assert_honest(result.children[0])

    def test_budgets_of_a_tree_count_all_that_was_lent_to_a_lost_remote_run(self, saying: Saying) -> None:
        with Limits(turns=20, tokens=9_000).open() as tree:
            child = remote_agent(saying(500, b""), name="far", limits=Limits(turns=3, tokens=500))
            result = parent(child).start("Go.", within=tree).result(BOUND_S)
            assert tree.budgets["turns"].used == 2 + 3
            assert tree.budgets["tokens"].used == result.usage.total + 500

    def test_budgets_of_a_tree_count_what_remote_runs_use(self, served: Served) -> None:
        with served(chat_app(agent(say("Hi.")))) as url, Limits(turns=20, tokens=9_000).open() as tree:
            result = parent(remote_agent(url, name="far")).start("Go.", within=tree).result(BOUND_S)
            assert result.completed
            assert tree.budgets["turns"].used == 3
            assert tree.budgets["tokens"].used == result.usage_with_children.total
            assert tree.budgets["tokens"].held == tree.reserved("tokens")

    @pytest.mark.parametrize("budget", ["carved", "shared"])
    def test_are_never_booked_beyond_what_it_got_whatever_it_says(self, saying: Saying, budget: Any) -> None:
        url = saying(200, json.dumps({"stop": "completed", "turns": 900, "budgets": BOASTED}).encode())
        child = Child(remote_agent(url, name="far", limits=Limits(turns=3, tokens=500)), budget)
        with Limits(turns=20).open() as tree:
            result = (
                parent(child, limits=Limits(turns=10, tokens=9_000, children=4)).start("Go.", within=tree).result(60)
            )
            assert (result.completed, result.budgets["turns"].used) == (True, 2 + 3)
            assert result.budgets["tokens"].used == result.usage.total + 500
            assert tree.budgets["turns"].used == 2 + 3
        assert result.children[0].turns == 900, "what it says is told all the same"

    @pytest.mark.parametrize("budget", ["carved", "shared", "independent"])
    def test_budgets_of_a_tree_count_runs_below_a_remote_one_once(self, served: Served, budget: Any) -> None:
        below = Agent(model=ScriptedModel.looping(say("Hi."), price=PRICE), name="below", max_output_tokens=50)
        rows = [{"child": "below", "goal": "Go."}]
        model = ScriptedModel.looping(call("delegate", tasks=rows), say("Hi."), price=PRICE)
        far = Agent(model=model, children=[Child(below, budget)], max_output_tokens=50)
        with served(chat_app(far)) as url, Limits(turns=40, tokens=9_000).open() as tree:
            result = parent(remote_agent(url, name="far")).start("Go.", within=tree).result(BOUND_S)
            assert result.completed
            assert len(result.children[0].children) == 1
            assert tree.budgets["turns"].used == 2 + 2 + 1
            assert tree.budgets["tokens"].used == result.usage_with_children.total

    @pytest.mark.parametrize("status", [401, 503])
    def test_budgets_of_a_tree_count_nothing_of_a_refused_remote_run(self, saying: Saying, status: int) -> None:
        with Limits(turns=20, tokens=9_000).open() as tree:
            child = remote_agent(saying(status, b"{}"), name="far")
            result = parent(child).start("Go.", within=tree).result(BOUND_S)
            assert tree.budgets["turns"].used == 2
            assert tree.budgets["tokens"].used == result.usage.total
            assert tree.budgets["tokens"].held == tree.reserved("tokens")
