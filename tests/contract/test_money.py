"""Twenty runs at once in one envelope: together they pass its tokens and its money by no more than a provider lies.

The provider bills the upper estimate of each request. A run near its limit reserves a nearer one, unless the model
counts its own requests: `Counting` does, so its reservations are exact.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, TokenPrice, TurnBudget, Usage, tool
from flyball.budget.price import Tier, compute_max_request_cost
from flyball.errors import Retryable
from flyball.event import ModelReplied, ModelRequested
from flyball.request import Call, Finish, Purpose, Reply, Request, estimate_request_tokens

LONG = 60.0
RUNS = 20
PRICE = TokenPrice(3, 15, cached=0.3, written=3.75, tiers=(Tier(above=900, input=6, output=22.5, written=7.5),))


@tool(poll=True)
async def touch() -> str:
    await anyio.sleep(0)
    return "touched " * 10


class Provider:
    """A model that counts what it reads and writes, splits it in any way, and may tell more than is true."""

    name, provider, price, max_output_tokens = "counted", None, PRICE, 300

    def __init__(self, lies_by: int = 0, fails: bool = False) -> None:
        self.lies_by, self.fails = lies_by, fails
        self.lied = {"tokens": 0, "usd": 0}
        self._dice, self._lock = random.Random(3), Lock()

    def ready(self) -> str | None:
        return None

    async def ask(self, request: Request, tell: object, /) -> Reply:
        await anyio.sleep(0)
        assert request.max_output_tokens is not None
        with self._lock:
            if self.fails and self._dice.random() < 0.3:
                raise Retryable("it broke", 0.0, began=self._dice.random() < 0.5)
            usage = self._usage(estimate_request_tokens(request), request.max_output_tokens)
        if request.purpose is Purpose.GRACE:
            return Reply("I touched.", usage=usage)
        return Reply("", (Call("c", "touch", "{}"),), usage, Finish.CALLS)

    def _usage(self, most_input: int, most_output: int) -> Usage | None:
        if self.fails and self._dice.random() < 0.2:
            return None
        read, made = most_input, most_output  # as much as there can be
        cached = self._dice.randint(0, read)
        told = Usage(read, made + self.lies_by, cached, written=self._dice.randint(0, read - cached))
        self.lied["tokens"] += max(0, told.total - read - most_output)
        self.lied["usd"] += max(0, PRICE.cost(told) - compute_max_request_cost(PRICE, read, most_output))
        return told


class Counting(Provider):
    """A provider whose model counts its own requests, exactly as it bills them."""

    def count(self, request: Request) -> int:
        return estimate_request_tokens(request)


def all_at_once(way: str, agent: Agent, shared: TurnBudget) -> list[Result]:
    results: list[Result] = []

    async def one() -> None:
        results.append(await agent.arun("go", within=shared))

    async def tasks() -> None:
        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as group:
                for _ in range(RUNS):
                    group.start_soon(one)

    def alone(task: str) -> Result:
        return agent.run(task, within=shared)

    if way == "threads":
        with ThreadPoolExecutor(RUNS) as pool:
            return list(pool.map(alone, ["go"] * RUNS))
    anyio.run(tasks, backend=way)
    return results


TOKENS, MONEY = {"tokens": 30_000}, {"usd": 0.1}


@pytest.mark.parametrize(
    ("way", "limits", "lies_by"),
    [
        *[(way, {**TOKENS, **MONEY}, lies_by) for way in ("asyncio", "trio", "threads") for lies_by in (0, 500)],
        *[("asyncio", TOKENS, 0), ("trio", TOKENS, 500), ("threads", MONEY, 0), ("asyncio", MONEY, 500)],
    ],
    ids=str,
)
def test_parallel_runs_exceed_a_shared_ceiling_by_no_more_than_the_provider_lies(
    way: str, limits: dict[str, Any], lies_by: int, closed: Any
) -> None:
    model, shared = Counting(lies_by), Limits(**limits).open(grace=False)
    agent = Agent(model=model, tools=[touch], limits=Limits(turns=50, tokens=100_000, retries=100))
    results = [closed(result) for result in all_at_once(way, agent, shared)]
    shared.close()
    assert {result.stop for result in results} == {"budget"}
    for name in limits:
        budget = shared.budgets[name]
        assert budget.ceiling is not None
        assert budget.used <= budget.ceiling + model.lied[name]
        assert budget.available == max(0, budget.ceiling - budget.used), "something is still set aside"
    assert max(shared.budgets[name].ratio for name in limits) > 0.5
    assert bool(model.lied["tokens"]) == bool(lies_by)
    booked = {name: sum(result.budgets[name].used for result in results) for name in ("tokens", "usd")}
    assert booked == {name: shared.budgets[name].used for name in booked}
    assert booked["usd"] == sum(result.cost["counted"] for result in results)


@pytest.mark.parametrize("way", ["asyncio", "threads"])
def test_parallel_runs_stay_within_a_shared_ceiling_when_requests_break_without_usage(way: str, closed: Any) -> None:
    shared = Limits(tokens=30_000, usd=0.2).open(grace=False)
    agent = Agent(model=Counting(fails=True), tools=[touch], limits=Limits(turns=50, tokens=100_000, retries=100))
    results = [closed(result) for result in all_at_once(way, agent, shared)]
    shared.close()
    assert sum(result.estimated_requests for result in results) > 0
    for name in ("tokens", "usd"):
        budget = shared.budgets[name]
        assert budget.used == sum(result.budgets[name].used for result in results) <= (budget.ceiling or 0)


@pytest.mark.parametrize("way", ["asyncio", "threads"])
def test_parallel_runs_exceed_a_shared_ceiling_by_no_more_than_their_estimates_were_too_low(
    way: str, closed: Any
) -> None:
    shared = Limits(tokens=30_000).open(grace=False)
    agent = Agent(model=Provider(fails=True), tools=[touch], limits=Limits(turns=50, tokens=100_000, retries=100))
    results = [closed(result) for result in all_at_once(way, agent, shared)]
    shared.close()
    too_low = 0
    for result in results:
        requests = [event for event in result.events if event.kind in ("model_requested", "model_replied")]
        assert len(requests) % 2 == 0, "each request is answered"
        for requested, replied in zip(requests[::2], requests[1::2], strict=True):
            assert isinstance(requested, ModelRequested)
            assert isinstance(replied, ModelReplied)
            too_low += max(0, replied.input_tokens - requested.estimated_tokens)
    budget = shared.budgets["tokens"]
    assert budget.used == sum(result.budgets["tokens"].used for result in results) <= (budget.ceiling or 0) + too_low
