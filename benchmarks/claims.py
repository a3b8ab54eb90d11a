"""What a claim costs beside the counter that people write by hand: a lock, a comparison, an increment.

Ratios of wall time in one process, the candidates taking turns, best of many rounds; 8 threads claim from one budget.
Exits with 1 when a target is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from threading import Barrier, Lock, Thread

from flyball import IterationBudget

CALLS, ROUNDS = 20_000, 25


class HandWritten:
    """The counter by hand."""

    def __init__(self, ceiling: int) -> None:
        self.lock = Lock()
        self.ceiling = ceiling
        self.used = 0

    def consume(self, amount: int = 1) -> bool:
        """Count, or refuse."""
        with self.lock:
            if self.used + amount > self.ceiling:
                return False
            self.used += amount
            return True


def by_hand() -> Callable[[int], None]:
    counter = HandWritten(10**9)

    def work(calls: int) -> None:
        for _ in range(calls):
            counter.consume()

    return work


def single() -> Callable[[int], None]:
    budget = IterationBudget("turns", 10**9)

    def work(calls: int) -> None:
        for _ in range(calls):
            budget.consume()

    return work


def family() -> Callable[[int], None]:
    root = IterationBudget("tree", 10**9)
    child = IterationBudget("run", 10**9, parent=IterationBudget("parent", 10**9, parent=root))

    def work(calls: int) -> None:
        for _ in range(calls):
            child.consume()

    return work


def held() -> Callable[[int], None]:
    budget = IterationBudget("tokens", 10**9)

    def work(calls: int) -> None:
        for _ in range(calls):
            budget.hold(2).settle(1)

    return work


CANDIDATES = {"by hand": by_hand, "consume": single, "family of three": family, "hold and settle": held}
TARGETS = {"consume": 1.2, "family of three": 3.0, "hold and settle": 4.0}


def seconds(work: Callable[[int], None], threads: int) -> float:
    """The time in which `threads` threads make CALLS calls together."""
    if threads == 1:
        began = time.perf_counter()
        work(CALLS)
        return time.perf_counter() - began
    gate = Barrier(threads + 1)

    def run() -> None:
        gate.wait()
        work(CALLS // threads)

    workers = [Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    gate.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - began


def main() -> int:
    missed = 0
    for threads in (1, 8):
        best = dict.fromkeys(CANDIDATES, float("inf"))
        for _ in range(ROUNDS):
            for name, make in CANDIDATES.items():
                best[name] = min(best[name], seconds(make(), threads))
        for name, target in TARGETS.items():
            ratio = best[name] / best["by hand"]
            missed += ratio > target
            nanoseconds = best[name] / CALLS * 1e9
            print(f"{threads} threads  {name:16} {nanoseconds:5.0f} ns  {ratio:4.2f}x by hand  (target {target}x)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
