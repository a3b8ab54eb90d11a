"""What a look at a deadline costs a tool that polls it in its inner loop, beside `time.monotonic()` alone.

Ratios in one process, the candidates taking turns, best of many rounds. Exits with 1 when the target is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from timeit import Timer

from flyball import Deadline, DeadlineToken

CALLS, ROUNDS, TARGET = 50_000, 25, 10.0


def main() -> int:
    token = DeadlineToken(Deadline.after(3_600))
    candidates: dict[str, Callable[[], object]] = {
        "time.monotonic": time.monotonic,
        "token.is_expired": token.is_expired,
        "a token of a token": token.within(60).is_expired,
        "token.remaining_s": token.remaining_s,
    }
    timers = {name: Timer(call) for name, call in candidates.items()}
    best = dict.fromkeys(candidates, float("inf"))
    for _ in range(ROUNDS):
        for name, timer in timers.items():
            best[name] = min(best[name], timer.timeit(CALLS))
    missed = 0
    for name, seconds in list(best.items())[1:]:
        ratio = seconds / best["time.monotonic"]
        missed += ratio > TARGET
        print(f"{name:20} {seconds / CALLS * 1e9:5.0f} ns  {ratio:4.1f}x time.monotonic  (target {TARGET:g}x)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
