"""What a child costs beside a plain run of the same agent: 1,000 children of 3 turns, 50 at a time.

CPU time in one process, the two taking turns, best of several rounds. Exits with 1 when the target is missed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from flyball import IterationBudgetRegistry, Limits
from flyball.agent.agent import Agent
from flyball.request import Call, Finish, Reply, Request, Usage

CHILDREN, AT_ONCE, TURNS, ROUNDS, TARGET = 1_000, 50, 3, 5, 2.5
USAGE = Usage(10, 5)
TASKS = json.dumps({"tasks": [{"child": "worker", "goal": f"Add up row {n}."} for n in range(CHILDREN)]})


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class FakeModel:
    """Asks for a call in each turn but the last."""

    name, provider, price = "fake", None, None

    def __init__(self, turns: int, call: Call) -> None:
        self.turns = turns
        self.call = call

    def ready(self) -> str | None:
        """It always is."""
        return None

    async def ask(self, request: Request, tell: object, /) -> Reply:
        """Ask for the call, or answer."""
        asked = len(request.messages) // 2
        if asked + 1 >= self.turns:
            return Reply("done", usage=USAGE)
        call = Call(f"c{asked}", self.call.name, self.call.arguments)
        return Reply("", (call,), USAGE, Finish.CALLS)


REGISTRY = IterationBudgetRegistry(settings={"delegation.max_concurrent_children": AT_ONCE})
WORKER = Agent(
    model=FakeModel(TURNS, Call("", "add", '{"a": 1, "b": 2}')),
    tools=[add],
    name="worker",
    limits=Limits(turns=TURNS, tokens=1_000_000),
    registry=REGISTRY,
)


PARENT = Agent(
    model=FakeModel(2, Call("", "delegate", TASKS)),
    children=[WORKER],
    limits=Limits(children=CHILDREN),
    registry=REGISTRY,
)


async def plain() -> None:
    """The same runs, without a parent."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(n: int) -> None:
        async with room:
            result = await WORKER.arun(f"Add up row {n}.")
            assert result.completed, result.explain()

    await asyncio.gather(*[one(n) for n in range(CHILDREN)])


async def delegated() -> None:
    """All of them as children of one run, by one call."""
    result = await PARENT.arun("Add everything up.")
    assert result.completed, result.explain()
    assert [child.completed for child in result.children] == [True] * CHILDREN, result.tool_results[0].text[:500]


def cpu(work: Callable[[], Coroutine[Any, Any, None]]) -> float:
    """Microseconds of CPU for each run."""
    gc.collect()
    began = time.process_time()
    asyncio.run(work())
    return (time.process_time() - began) / CHILDREN * 1e6


def main() -> int:
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        best[0] = min(best[0], cpu(plain))
        best[1] = min(best[1], cpu(delegated))
    ratio = best[1] / best[0]
    print(
        f"a child of {TURNS} turns  {best[1]:6.0f} us  {ratio:4.2f}x a plain run ({best[0]:.0f} us)  (target {TARGET}x)"
    )
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
