"""What the executor costs beside the bare call: an `async def` tool in the event loop, a `def` tool in a worker.

CPU time in one process, the candidates taking turns, best of many rounds, on one core where the machine lets us choose:
on two, handing a call to a thread jitters by a factor of two. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from pydantic import BaseModel, ConfigDict

from flyball import Limits
from flyball.request import Call
from flyball.tools import BoundedToolExecutor

CALLS, ROUNDS = 2_000, 9
ARGUMENTS = '{"a": 1, "b": 2}'


class Arguments(BaseModel):
    """What the tools take, as one would check it by hand."""

    model_config = ConfigDict(strict=True, extra="forbid")
    a: int
    b: int


async def add(a: int, b: int) -> int:
    return a + b


def block(a: int, b: int) -> int:
    return a + b


async def cpu(work: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    for _ in range(CALLS):
        await work()
    return (time.process_time() - began) / CALLS


async def main() -> int:
    if sys.platform == "linux":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pool = ThreadPoolExecutor(1)
    with Limits(seconds=3_600).open() as envelope:
        executor = BoundedToolExecutor([add, block], envelope=envelope)
        call, blocking = Call("1", "add", ARGUMENTS), Call("2", "block", ARGUMENTS)

        async def bare() -> object:
            checked = Arguments.model_validate_json(ARGUMENTS)
            return await add(a=checked.a, b=checked.b)

        async def pooled() -> object:
            return pool.submit(block, 1, 2).result()

        async def ours() -> object:
            return await executor.aexecute(call)

        async def in_a_worker() -> object:
            return await executor.aexecute(blocking)

        candidates = {"bare": bare, "ours": ours, "pool": pooled, "worker": in_a_worker}
        best = dict.fromkeys(candidates, float("inf"))
        for _ in range(ROUNDS):
            for name, work in candidates.items():
                best[name] = min(best[name], await cpu(work))
    pool.shutdown()
    missed = 0
    for name, beside, target in (("ours", "bare", 12.0), ("worker", "pool", 2.0)):
        ratio = best[name] / best[beside]
        missed += ratio > target
        shown = f"{best[name] * 1e6:5.1f} us  {ratio:4.1f}x {beside} ({best[beside] * 1e6:.1f} us)"
        print(f"{name:7} {shown}  (target {target:g}x)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
