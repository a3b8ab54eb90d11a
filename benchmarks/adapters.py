"""Cost of each adapter, beside the framework's own run with the same scripted model: CPU time, in one process.

A framework has a function that returns its own run and the governed one, each of `TURNS` turns with a tool call, and
runs in a process of its own, because imports are heavy. `python benchmarks/adapters.py openai_agents` runs one.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from flyball import Limits

Run = Callable[[], object]
TURNS, ROUNDS, TIMES = 20, 9, 3
MAX_RATIO = 1.25
LIMITS = Limits(turns=TURNS + 1, tool_calls=100, tokens=10**9, usd=10**6, seconds=3_600)


def prepare_openai_agents() -> tuple[Run, Run]:
    """Return the runs of the OpenAI Agents SDK."""
    from agents import Agent, ModelResponse, RunConfig, Runner, function_tool, set_tracing_disabled
    from agents.testing import ScriptedModel, assistant_message, function_call
    from agents.usage import Usage

    from flyball.adapters import openai_agents, result_of

    set_tracing_disabled(True)

    @function_tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    def create_agent() -> Agent[Any]:
        usage = Usage(requests=1, input_tokens=1_000, output_tokens=50, total_tokens=1_050)
        calls = [function_call("add", {"a": 1, "b": n}, call_id=f"call_{n}") for n in range(TURNS - 1)]
        items = [*calls, assistant_message("Done.")]
        model: Any = ScriptedModel([ModelResponse(output=[item], usage=usage, response_id=None) for item in items])
        model.model = "gpt-4o"
        return Agent("counter", instructions="Count.", tools=[add], model=model)

    def run_own() -> None:
        asyncio.run(Runner.run(create_agent(), "Count.", run_config=RunConfig(), max_turns=TURNS))

    def run_governed() -> None:
        returned = asyncio.run(openai_agents.run(create_agent(), "Count.", limits=LIMITS))
        assert (result_of(returned).turns, result_of(returned).stop) == (TURNS, "completed"), result_of(returned)

    return run_own, run_governed


FRAMEWORKS: dict[str, tuple[str, Callable[[], tuple[Run, Run]]]] = {
    "openai_agents": ("agents", prepare_openai_agents),
}
"""Function of each framework, with the module that it needs."""


def measure(run: Run) -> float:
    """Return the CPU microseconds of one turn."""
    gc.collect()
    began = time.process_time()
    for _ in range(TIMES):
        run()
    return 1e6 * (time.process_time() - began) / TIMES / TURNS


def compare(name: str) -> bool:
    """Print the figures of one framework; return False if its target is missed."""
    own, governed = FRAMEWORKS[name][1]()
    own(), governed()
    pairs = [(measure(own), measure(governed)) for _ in range(ROUNDS)]
    own_us, governed_us = (min(times) for times in zip(*pairs, strict=True))
    ratio = governed_us / own_us
    print(
        f"a turn of {name:<18} {governed_us:8.0f} us  {ratio:.2f}x its own ({own_us:.0f} us, "
        f"the adapter {governed_us - own_us:.0f} us)  (target {MAX_RATIO}x)",
        flush=True,
    )
    return ratio <= MAX_RATIO


def main() -> int:
    if sys.argv[1:]:
        return 0 if all(compare(name) for name in sys.argv[1:]) else 1
    found = [name for name, (module, _) in FRAMEWORKS.items() if find_spec(module) is not None]
    return max([subprocess.run([sys.executable, __file__, name], check=False).returncode for name in found])


if __name__ == "__main__":
    sys.exit(main())
