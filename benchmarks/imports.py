"""What importing Flyball costs beside `import httpx`.

CPU time of the import alone, each in a fresh process, the candidates taking turns, best of many. Compiled files are
kept in a folder of this benchmark, as an installation has them. What the first agent and the first governed loop load
later is shown too, without a target. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Collection

ROUNDS = 25
PEER = "import httpx"
TARGETS = {
    "from flyball import Agent": (1.2, 0.8),
    "from flyball import govern, Limits": (0.4, 0.3),
}
"""What a ratio must be, and what it should be."""
LOADED_ON_FIRST_USE = ("import flyball.agent.run_factory", "import flyball.governor.governed_run")


def cpu(statement: str, environment: dict[str, str]) -> float:
    """Return the CPU milliseconds of one import in a process of its own."""
    program = f"import time; began = time.process_time(); {statement}; print(1e3 * (time.process_time() - began))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
    return float(done.stdout)


def measure(statements: Collection[str]) -> dict[str, float]:
    """Return the best time of each import."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        best = dict.fromkeys(statements, float("inf"))
        for statement in statements:  # compiles
            cpu(statement, environment)
        for _ in range(ROUNDS):
            for statement in statements:
                best[statement] = min(best[statement], cpu(statement, environment))
    return best


def main() -> int:
    times = measure([PEER, *TARGETS, *LOADED_ON_FIRST_USE])
    peer, good = times.pop(PEER), True
    for statement, taken in times.items():
        line = f"{statement:38} {taken:6.1f} ms  {taken / peer:5.2f}x `{PEER}` ({peer:.1f} ms)"
        if statement in TARGETS:
            must, aim = TARGETS[statement]
            line += f"  (target {must:g}x) (aim {aim:g}x)"
            good &= taken / peer <= must
        print(line)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
