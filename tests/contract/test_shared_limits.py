"""Runs that share one budget at the same time never exceed it; see also tests/loop/test_shared_limits.py."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, TurnBudget, tool
from flyball.outcome import Denied
from flyball.request import Usage
from flyball.testing import ScriptedModel, call, say

LONG = 60.0
Running = Callable[..., Result]


@tool(poll=True)
async def touch() -> None:
    await anyio.sleep(0)


def stubborn(**limits: Any) -> Agent:
    line = call("touch").using(Usage(20, 10))
    model = ScriptedModel.looping(line, grace=say("I touched.").using(Usage(20, 10)))
    return Agent(model=model, tools=[touch], limits=Limits(turns=50, **limits), max_output_tokens=50)


@pytest.mark.one_door
def test_a_run_has_no_more_time_than_its_shared_budget_has_left(run: Running) -> None:
    shared = TurnBudget.create(timeout_s=0.1, max_steps=50)
    agent = Agent(model=ScriptedModel(say("too late").after(LONG)), grace=False)
    result = run(agent, within=shared)
    assert (result.stop, result.flags) == ("deadline", ("max_seconds_reached",))
    assert result.seconds < LONG
    again = run(agent, within=shared)
    assert (again.stop, again.requests) == ("deadline", 0)


@pytest.mark.parametrize("way", ["tasks", "threads"])
def test_runs_at_the_same_time_never_exceed_their_shared_budget(way: str, closed: Any) -> None:
    shared = Limits(turns=40, tool_calls=30, tokens=5_000).open()
    agent, results = stubborn(tokens=100_000), list[Result]()

    async def one() -> None:
        results.append(await agent.arun("go", within=shared))

    async def all_at_once() -> None:
        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(one)

    def alone(backend: str) -> None:
        anyio.run(one, backend=backend)

    if way == "tasks":
        anyio.run(all_at_once)
    else:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(alone, ["asyncio", "trio"] * 4))
    budgets = shared.budgets
    assert {closed(result).stop for result in results} == {"budget"}
    assert sum(result.turns for result in results) <= budgets["turns"].used <= 40
    made = sum(not isinstance(outcome, Denied) for result in results for outcome in result.tool_results)
    assert made == budgets["tool_calls"].used <= 30
    assert sum(result.usage.total for result in results) == budgets["tokens"].used <= 5_000
    shared.close()
    assert budgets["tokens"].available == 5_000 - budgets["tokens"].used  # no hold is left open


@pytest.mark.parametrize("how", ["cancel", "task"])
def test_a_cancelled_run_leaves_nothing_held_in_its_shared_budget(here: Any, how: str) -> None:
    shared = Limits(tokens=5_000).open()
    model = ScriptedModel(say("too late").after(LONG))
    agent = Agent(model=model, limits=Limits(tokens=4_000), max_output_tokens=50)

    async def work() -> None:
        async with agent.open("go", within=shared) as run:
            while not model.requests:
                await anyio.sleep(0.001)
            if how == "cancel":
                run.cancel()
                await run.aresult()

    async def cut() -> None:
        async def wait() -> None:
            await agent.arun("go", within=shared)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            while not model.requests:
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()

    here(work if how == "cancel" else cut)
    shared.close()
    tokens = shared.budgets["tokens"]
    assert tokens.available == 5_000 - tokens.used
    assert 0 < tokens.used <= 5_000  # nobody told what the request used, so the worst is assumed
