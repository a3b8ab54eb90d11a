"""Runs that share a real budget one after the other: what they use counts there, and a refusal there ends them."""

from typing import Any, Literal

import pytest

from flyball import Agent, Child, Limits, Result, TurnBudget, tool
from flyball.outcome import Denied
from flyball.request import Usage
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, say


@tool(poll=True)
async def touch() -> None:
    """Touch it."""


def stubborn(**limits: Any) -> Agent:
    line = call("touch").using(Usage(20, 10))
    model = ScriptedModel.looping(line, grace=say("I touched.").using(Usage(20, 10)))
    return Agent(model=model, tools=[touch], limits=Limits(turns=50, **limits), max_output_tokens=50)


def run(agent: Agent, shared: TurnBudget) -> Result:
    return assert_honest(ScriptDriver(agent).run("Go.", within=shared))


def test_runs_that_share_a_budget_count_their_turns_calls_and_tokens_there() -> None:
    agent = Agent(model=ScriptedModel(call("touch"), say("done")), tools=[touch], limits=Limits(tokens=10_000))
    with Limits(turns=9, tool_calls=9, tokens=50_000).open() as shared:
        first, second = run(agent, shared), run(agent, shared)
        used = {name: shared.budgets[name].used for name in ("turns", "tool_calls", "tokens")}
    assert used["turns"] == first.turns + second.turns == 4
    assert used["tool_calls"] == 2
    assert used["tokens"] == first.usage.total + second.usage.total == 60


def test_a_turn_refused_by_a_shared_budget_is_the_stop_reason_and_flag_of_the_run() -> None:
    with Limits(turns=5).open() as shared:
        first, second = run(stubborn(), shared), run(stubborn(), shared)
    assert (first.stop, first.turns, first.text) == ("budget", 5, "I touched.")
    assert (second.stop, second.turns, second.requests) == ("budget", 0, 1)
    assert first.flags == second.flags == ("max_agent_iterations_reached",)
    assert "5" in str(first.warning)


def test_a_call_refused_by_a_shared_budget_is_denied() -> None:
    with Limits(tool_calls=2).open() as shared:
        result = run(stubborn(), shared)
        assert shared.budgets["tool_calls"].used == 2
    denied = [outcome for outcome in result.tool_results if isinstance(outcome, Denied)]
    assert (len(result.tool_results), len(denied), result.flags) == (3, 1, ("max_tool_calls_reached",))


def test_a_turn_that_never_started_is_refunded_to_the_shared_budget() -> None:
    with Limits(turns=45, tokens=1_000).open() as shared:
        result = run(stubborn(tokens=100_000), shared)
        assert (result.stop, result.flags) == ("budget", ("max_tokens_reached",))
        assert shared.budgets["turns"].used == result.turns


def test_a_shared_budget_that_counts_turns_only_bounds_turns() -> None:
    result = run(stubborn(tokens=100_000), TurnBudget.create(timeout_s=None, max_steps=3))
    assert (result.stop, result.turns) == ("budget", 3)


@pytest.mark.parametrize("mode", ["independent", "carved", "shared"])
def test_calls_of_child_runs_count_in_the_envelope_of_the_tree_in_every_budget_mode(
    mode: Literal["independent", "carved", "shared"],
) -> None:
    child = Agent(model=ScriptedModel.looping(call("touch"), grace=say("Reported.")), tools=[touch], name="child")
    delegate = call("delegate", tasks=[{"child": "child", "goal": "Go."}])
    parent = Agent(
        model=ScriptedModel(delegate, say("done"), grace=say("Reported.")),
        children=[Child(child, budget=mode)],
        limits=Limits(turns=30),
    )
    with Limits(turns=30, tool_calls=4).open() as shared:
        result = run(parent, shared)
        assert shared.budgets["tool_calls"].used == 4
    [below] = result.children
    made = [outcome for outcome in below.tool_results if not isinstance(outcome, Denied)]
    assert (below.stop, below.flags, len(made)) == ("budget", ("max_tool_calls_reached",), 3)
