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
from flyball.adapters import AdapterOptions

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


def prepare_langchain() -> tuple[Run, Run]:
    """Return the runs of LangChain."""
    from langchain import agents
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool

    from flyball.adapters import langchain

    class Script(BaseChatModel):
        model_name: str = "gpt-4o"
        requests: int = 0

        @property
        def _llm_type(self) -> str:
            return "script"

        def bind_tools(self, tools: Any, **settings: Any) -> Any:
            return self.bind(tools=tools, **settings)

        def _generate(self, *_: Any, **settings: Any) -> ChatResult:
            self.requests += 1
            calls = [{"name": "add", "args": {"a": 1, "b": 2}, "id": f"call_{self.requests}"}]
            message = AIMessage(
                "Done." if self.requests >= TURNS else "",
                tool_calls=[] if self.requests >= TURNS else calls,
                usage_metadata={"input_tokens": 1_000, "output_tokens": 50, "total_tokens": 1_050},
            )
            return ChatResult(generations=[ChatGeneration(message=message)])

        async def _agenerate(self, *_: Any, **settings: Any) -> ChatResult:
            return self._generate()

    @tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    task: Any = {"messages": [HumanMessage("Count.")]}
    create: Any = vars(agents)["create_agent"]
    middleware = langchain.govern(options=AdapterOptions(LIMITS, model="openai:gpt-4o"))

    def run_own() -> None:
        asyncio.run(create(Script(), [add]).ainvoke(task))

    def run_governed() -> None:
        asyncio.run(create(Script(), [add], middleware=[middleware]).ainvoke(task))
        result = middleware.result()
        assert (result.turns, result.stop) == (TURNS, "completed"), result

    return run_own, run_governed


def prepare_pydantic_ai() -> tuple[Run, Run]:
    """Return the runs of pydantic-ai."""
    from pydantic_ai import Agent, ModelResponse, RequestUsage, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from flyball.adapters import pydantic_ai, result_of

    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    def answer(messages: list[Any], _: Any) -> ModelResponse:
        turn = len(messages) // 2 + 1
        part = TextPart("Done.") if turn == TURNS else ToolCallPart("add", {"a": 1, "b": 2}, f"call_{turn}")
        return ModelResponse([part], usage=RequestUsage(input_tokens=1_000, output_tokens=50))

    agent = Agent(FunctionModel(answer, model_name="gpt-4o"), tools=[add])
    options = AdapterOptions(LIMITS, model="openai:gpt-4o")

    def run_own() -> None:
        asyncio.run(agent.run("Count."))

    def run_governed() -> None:
        returned = asyncio.run(pydantic_ai.run(agent, "Count.", options=options))
        assert (result_of(returned).turns, result_of(returned).stop) == (TURNS, "completed"), result_of(returned)

    return run_own, run_governed


FRAMEWORKS: dict[str, tuple[str, Callable[[], tuple[Run, Run]]]] = {
    "openai_agents": ("agents", prepare_openai_agents),
    "langchain": ("langchain", prepare_langchain),
    "pydantic_ai": ("pydantic_ai", prepare_pydantic_ai),
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
    own()
    governed()
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
