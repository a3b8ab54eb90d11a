"""What the loop costs beside a bare one, written by hand over plain dicts, with the same fake model and tool.

CPU time in one process, the two taking turns, best of many rounds: a sample is so short that some fall between the
disturbances of a busy machine, and as long for the one as for the other, so that both have the same chance of that.
Concurrent runs and their memory in a process of their own each, taking turns as well.

Ours has budgets, a deadline, events, validation, one hook and one rule that fires on. Prints each ratio beside what it
must and what it should be, and exits with 1 if one is above its must.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from flyball import IterationBudgetRegistry, Limits
from flyball.agent.agent import Agent
from flyball.progress import Order, Point, Progress
from flyball.request import Call, Finish, Reply, Request, Usage

ARGUMENTS = [f'{{"a": {n}, "b": 2}}' for n in range(5_000)]
"""Other ones in each turn: a call that comes again and again would be stopped."""
USAGE = Usage(10, 5)
SAMPLE_S = 0.01
"""Seconds of a sample, or as long as one run takes."""
ROUNDS_S, MIN_ROUNDS, MAX_ROUNDS = 3.0, 7, 60
"""Seconds for all samples of a row, and how many there are of each kind."""
CROWDS, CROWD_S = 7, 0.5
"""Processes for concurrent runs of each kind, and seconds of CPU time that one measures at least."""


class Target(NamedTuple):
    """Highest ratio that is accepted, and the one to aim at."""

    must: float
    aim: float

    def __str__(self) -> str:
        return f"(must {self.must:g}x, aim {self.aim:g}x)"


TURN, SHORT_TURN, SHORT_RUN, HANDED_OVER = Target(7, 5), Target(9, 6), Target(14, 10), Target(1.9, 1.5)
CROWD, CROWD_MEMORY, GROWTH = Target(4.5, 3.5), Target(3.2, 2.5), Target(1.15, 1.05)


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def block(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class FakeModel:
    """Asks for one call in each turn, and answers in the last."""

    name, provider, price = "fake", None, None

    def __init__(self, turns: int, sleep_s: float = 0.0, tool: str = "add") -> None:
        self.turns = turns
        self.sleep_s = sleep_s
        self.tool = tool

    def ready(self) -> str | None:
        """It always is."""
        return None

    async def ask(self, request: Request, tell: object, /) -> Reply:
        """Ask for a call, or answer."""
        if self.sleep_s:
            await asyncio.sleep(self.sleep_s)
        asked = len(request.messages) // 2
        if asked + 1 >= self.turns:
            return Reply("done", usage=USAGE)
        return Reply("", (Call(f"c{asked}", self.tool, ARGUMENTS[asked]),), USAGE, Finish.CALLS)


async def bare_model(messages: list[dict[str, Any]], turns: int, sleep_s: float) -> dict[str, Any]:
    if sleep_s:
        await asyncio.sleep(sleep_s)
    asked = len(messages) // 2
    if asked + 1 >= turns:
        return {"role": "assistant", "content": "done", "usage": {"input": 10, "output": 5}}
    call = {"id": f"c{asked}", "name": "add", "arguments": ARGUMENTS[asked]}
    return {"role": "assistant", "content": "", "calls": [call], "usage": {"input": 10, "output": 5}}


async def bare(turns: int, sleep_s: float = 0.0, in_a_thread: bool = False) -> str:
    """What one writes first: a loop over a list of dicts with a limit of turns."""
    tools: dict[str, Callable[..., Any]] = {"add": block if in_a_thread else add}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "add"}]
    for _ in range(turns):
        reply = await bare_model(messages, turns, sleep_s)
        messages.append(reply)
        if not reply.get("calls"):
            return reply["content"]
        for call in reply["calls"]:
            arguments = json.loads(call["arguments"])
            if in_a_thread:
                value = await asyncio.to_thread(tools[call["name"]], **arguments)
            else:
                value = await tools[call["name"]](**arguments)
            messages.append({"role": "tool", "id": call["id"], "content": json.dumps(value)})
    return ""


def watch(point: Point, progress: Progress, about: object = None, /) -> tuple[Order, ...]:
    return ()


def governed(turns: int, sleep_s: float = 0.0, in_a_thread: bool = False) -> Callable[[], Awaitable[str]]:
    registry = IterationBudgetRegistry(settings={})
    registry.register("agent_iterations", default=90)
    agent = Agent(
        model=FakeModel(turns, sleep_s, "block" if in_a_thread else "add"),
        tools=[block if in_a_thread else add],
        limits=Limits(turns=turns, tool_calls=turns, tokens=100_000_000, seconds=3_600),
        hooks=[watch],
        registry=registry,
    )

    async def run() -> str:
        result = await agent.arun("add")
        assert result.stop == "completed", result.explain()
        return result.text

    return run


async def cpu(work: Callable[[], Awaitable[object]], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - began) / times


async def side_by_side(turns: int, in_a_thread: bool = False) -> tuple[float, float]:
    """The best CPU time of one run, bare and ours."""
    kinds = (lambda: bare(turns, in_a_thread=in_a_thread)), governed(turns, in_a_thread=in_a_thread)
    once = [await warm_up(work) for work in kinds]
    sample_s = max(SAMPLE_S, *once)
    times = [max(1, round(sample_s / seconds)) for seconds in once]
    best = [float("inf"), float("inf")]
    for _ in range(min(MAX_ROUNDS, max(MIN_ROUNDS, int(ROUNDS_S / sample_s / 2)))):
        for place, work in enumerate(kinds):
            best[place] = min(best[place], await cpu(work, times[place]))
    return best[0], best[1]


async def warm_up(work: Callable[[], Awaitable[object]]) -> float:
    """CPU seconds of one run, after a few."""
    await cpu(work, 3)
    return await cpu(work, 3)


async def crowd(kind: str) -> tuple[float, float]:
    """CPU seconds of 1,000 concurrent runs of 5 turns, and bytes per run at the highest point."""
    ours = governed(5, 0.01)
    work = ours if kind == "ours" else lambda: bare(5, 0.01)
    await work()
    began, crowds = time.process_time(), 0
    while time.process_time() - began < CROWD_S:
        await asyncio.gather(*[work() for _ in range(1_000)])
        crowds += 1
    used = (time.process_time() - began) / crowds
    tracemalloc.start()
    await asyncio.gather(*[work() for _ in range(1_000)])
    return used, tracemalloc.get_traced_memory()[1] / 1_000


def crowds_side_by_side() -> tuple[list[float], list[float]]:
    """The best CPU seconds and bytes of concurrent runs, bare and ours, each in processes of their own."""
    samples: dict[str, list[list[float]]] = {"bare": [], "ours": []}
    for _ in range(CROWDS):
        for kind, seen in samples.items():
            command = [sys.executable, __file__, kind]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
            seen.append(json.loads(done.stdout))
    plain, ours = [[min(column) for column in zip(*seen, strict=True)] for seen in samples.values()]
    return plain, ours


def judged(what: str, ours: float, bare: float, target: Target, unit: str = "us") -> bool:
    """Print a ratio beside its target. Return True if it is at most its must."""
    ratio = ours / bare
    shown = f"{ours:8.1f} {unit}  {ratio:5.2f}x of {bare:.1f} {unit}"
    print(f"{what:34} {shown:32} {target}{'' if ratio <= target.must else '  MISSED'}")
    return ratio <= target.must


async def turns() -> bool:
    good, per_turn = True, dict[int, float]()
    for count in (10, 100, 1_000, 5_000):
        plain, ours = [1e6 * seconds / count for seconds in await side_by_side(count)]
        per_turn[count] = ours
        good &= judged(f"a turn of a run of {count:,}", ours, plain, SHORT_TURN if count == 10 else TURN)
    good &= judged("a turn of 5,000 beside one of 100", per_turn[5_000], per_turn[100], GROWTH)
    plain, ours = [1e6 * seconds for seconds in await side_by_side(3)]
    good &= judged("a run of 3 turns", ours, plain, SHORT_RUN)
    if sys.platform == "linux":  # on two cores, handing a call to a thread jitters by a factor of two
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    plain, ours = [1e6 * seconds / 10 for seconds in await side_by_side(10, in_a_thread=True)]
    return good & judged("a turn with a `def` tool", ours, plain, HANDED_OVER)


def main() -> int:
    if len(sys.argv) > 1:
        print(json.dumps(asyncio.run(crowd(sys.argv[1]))))
        return 0
    good = asyncio.run(turns())
    plain, ours = crowds_side_by_side()
    good &= judged("1,000 runs at once: CPU of one", 1e3 * ours[0], 1e3 * plain[0], CROWD)
    good &= judged("1,000 runs at once: memory of one", ours[1] / 1024, plain[1] / 1024, CROWD_MEMORY, "KiB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
