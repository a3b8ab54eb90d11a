"""What `govern` costs around a loop that one already has, beside that loop alone.

CPU time in one process, the two taking turns, best of several rounds. The governed loop limits turns, tokens, seconds
and tool calls: it reads the longest reply and the time left, settles the usage and claims a tool call in every turn.
Exits with 1 when a target is missed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from flyball import IterationBudgetRegistry, Limits, govern

ARGUMENTS = '{"a": 1, "b": 2}'
ROUNDS = 7
TARGETS = {10: (11, 7), 100: (5, 3.5), 1_000: (5, 3.5)}
"""Turns of a run, and what its ratio must be and should be. A short run consists largely of its start and end."""
REGISTRY = IterationBudgetRegistry(settings={})
REGISTRY.register("agent_iterations", default=90)


def add(a: int, b: int) -> int:
    return a + b


TOOLS = {"add": add}


def ask(messages: list[dict[str, Any]], max_tokens: int | None = None, timeout: float | None = None) -> dict[str, Any]:
    """Stand for any client: a model that asks for one call in each turn."""
    call = {"id": f"c{len(messages)}", "name": "add", "arguments": ARGUMENTS}
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {"role": "assistant", "content": "", "calls": [call], "usage": usage}


def bare(turns: int) -> int:
    """What one writes first: a loop over a list of dicts with a limit of turns."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "add"}]
    for _ in range(turns):
        reply = ask(messages)
        messages.append(reply)
        for call in reply["calls"]:
            value = TOOLS[call["name"]](**json.loads(call["arguments"]))
            messages.append({"role": "tool", "id": call["id"], "content": json.dumps(value)})
    return len(messages)


def governed(turns: int) -> int:
    """The same loop, governed."""
    limits = Limits(turns=turns, tool_calls=turns, tokens=100_000_000, seconds=3_600)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "add"}]
    with govern(limits, registry=REGISTRY) as run:
        for turn in run:
            if turn.grace:
                run.complete("done")
                break
            reply = ask(messages, turn.max_output_tokens, turn.remaining_s())
            turn.settle(reply["usage"])
            messages.append(reply)
            for call in reply["calls"]:
                if turn.claim_tool(call["name"]):
                    value = TOOLS[call["name"]](**json.loads(call["arguments"]))
                    messages.append({"role": "tool", "id": call["id"], "content": json.dumps(value)})
    assert run.result().turns == turns, run.result().explain()
    return len(messages)


def cpu(work: Callable[[int], int], turns: int, times: int) -> float:
    """Return the CPU microseconds of one turn."""
    began = time.process_time()
    for _ in range(times):
        assert work(turns) == 2 * turns + 1
    return 1e6 * (time.process_time() - began) / times / turns


def main() -> int:
    good = True
    for turns, (must, aim) in TARGETS.items():
        times = max(1, 10_000 // turns)
        best = [float("inf"), float("inf")]
        for _ in range(ROUNDS):
            best = [min(best[0], cpu(bare, turns, times)), min(best[1], cpu(governed, turns, times))]
        ratio = best[1] / best[0]
        what = f"a turn of a governed run of {turns:,}"
        print(
            f"{what:34} {best[1]:8.1f} us  {ratio:5.2f}x bare ({best[0]:.1f} us)  (target {must:g}x) (aim {aim:g}x)",
            flush=True,
        )
        good &= ratio <= must
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
