"""Cost of each adapter, beside the framework's own run with the same scripted model: CPU time, in one process.

For the Claude Agent SDK, whose work is in a program of its own, it is the whole time.

A framework has a function that returns its own run and the governed one, each of `TURNS` turns with a tool call, and
runs in a process of its own, because imports are heavy. `python benchmarks/adapters.py openai_agents` runs one.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flyball import IterationBudgetRegistry, Limits
from flyball.adapters import AdapterOptions

Run = Callable[[], object]
ENVIRONMENTS = Path(__file__).parents[1] / ".venv" / "adapters"
TURNS, ROUNDS, TIMES = 20, 9, 3
MAX_RATIO = 1.25
REGISTRY = IterationBudgetRegistry(settings={})
"""Registry that reads no file: this project's takes 2 ms, in each run."""
LIMITS = Limits(turns=TURNS + 1, tool_calls=100, tokens=10**9, usd=10**6, seconds=3_600)


def prepare_openai_agents() -> tuple[Run, Run]:
    """Return the runs of the OpenAI Agents SDK."""
    from agents import Agent, ModelResponse, RunConfig, Runner, function_tool, set_tracing_disabled
    from agents.testing import ScriptedModel, assistant_message, function_call
    from agents.usage import Usage

    from flyball.adapters import AdapterOptions, openai_agents, result_of

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

    options = AdapterOptions(LIMITS, registry=REGISTRY)

    def run_governed() -> None:
        returned = asyncio.run(openai_agents.run(create_agent(), "Count.", options=options))
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
    middleware = langchain.govern(options=AdapterOptions(LIMITS, model="openai:gpt-4o", registry=REGISTRY))

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
    options = AdapterOptions(LIMITS, model="openai:gpt-4o", registry=REGISTRY)

    def run_own() -> None:
        asyncio.run(agent.run("Count."))

    def run_governed() -> None:
        returned = asyncio.run(pydantic_ai.run(agent, "Count.", options=options))
        assert (result_of(returned).turns, result_of(returned).stop) == (TURNS, "completed"), result_of(returned)

    return run_own, run_governed


def prepare_litellm() -> tuple[Run, Run]:
    """Return the runs of a loop on LiteLLM, with its own scripted replies."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    from flyball.adapters.frameworks import LITELLM
    from flyball.adapters.litellm import govern

    module: Any = LITELLM.load()
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": parameters}}]

    async def loop(complete: Callable[..., Any]) -> None:
        messages: list[Any] = [{"role": "user", "content": "Count."}]
        for turn in range(TURNS):
            function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
            calls = [{"id": f"call_{turn}", "type": "function", "function": function}] if turn < TURNS - 1 else None
            reply = await complete("gpt-4o", messages, tools=tools, mock_response="Done.", mock_tool_calls=calls)
            messages.append(reply.choices[0].message.model_dump(exclude_none=True))
            messages += [{"role": "tool", "tool_call_id": one["id"], "content": "3"} for one in calls or ()]

    async def govern_loop() -> None:
        async with govern(options=AdapterOptions(LIMITS, registry=REGISTRY)) as llm:
            await loop(llm.acompletion)
        assert (llm.result.turns, llm.result.stop) == (TURNS, "completed"), llm.result

    return lambda: asyncio.run(loop(module.acompletion)), lambda: asyncio.run(govern_loop())


def prepare_claude() -> tuple[Run, Run]:
    """Return the runs of the Claude Agent SDK, whose program asks a scripted provider."""
    from flyball.adapters import claude, result_of
    from flyball.adapters.frameworks import CLAUDE
    from flyball.testing.server import LoopingProvider

    sdk: Any = CLAUDE.load()
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    async def add(_: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": "3"}]}

    def run(limits: Limits | None) -> None:
        with LoopingProvider(tool="mcp__math__add") as provider:
            variables = {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "sk-ant-test", "HOME": folder}
            own = sdk.ClaudeAgentOptions(
                model="claude-sonnet-4-5",
                tools=[],
                mcp_servers={
                    "math": sdk.create_sdk_mcp_server("math", tools=[sdk.tool("add", "Add.", {"a": int})(add)])
                },
                allowed_tools=["mcp__math__add"],
                env={**variables, "CLAUDE_CONFIG_DIR": folder, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
                max_turns=TURNS,
            )
            options = own if limits is None else claude.govern(own, limits=limits)
            with suppress(sdk.ClaudeSDKError):  # its own limit of turns
                asyncio.run(read(sdk.query(prompt="Count.", options=options)))
            assert len(provider.requests) == TURNS, len(provider.requests)
            assert limits is None or result_of(options).turns == TURNS

    async def read(messages: Any) -> None:
        async for _ in messages:
            pass

    return lambda: run(None), lambda: run(LIMITS)


FRAMEWORKS: dict[str, tuple[str, Callable[[], tuple[Run, Run]]]] = {
    "openai_agents": ("agents", prepare_openai_agents),
    "langchain": ("langchain", prepare_langchain),
    "pydantic_ai": ("pydantic_ai", prepare_pydantic_ai),
    "litellm": ("litellm", prepare_litellm),
    "claude": ("claude_agent_sdk", prepare_claude),
}
"""Function of each framework, with the module that it needs."""
WALL = {"claude"}
"""Frameworks whose work is in another process, so that CPU time here tells nothing."""


def measure(run: Run, clock: Callable[[], float]) -> float:
    """Return the microseconds of one turn."""
    gc.collect()
    began = clock()
    for _ in range(TIMES):
        run()
    return 1e6 * (clock() - began) / TIMES / TURNS


def compare(name: str) -> bool:
    """Print the figures of one framework; return False if its target is missed."""
    own, governed = FRAMEWORKS[name][1]()
    for run in (own, governed):
        run()
    clock = time.perf_counter if name in WALL else time.process_time
    pairs = [(measure(own, clock), measure(governed, clock)) for _ in range(ROUNDS)]
    own_us, governed_us = (min(times) for times in zip(*pairs, strict=True))
    ratio = governed_us / own_us
    print(
        f"a turn of {name:<18} {governed_us:8.0f} us  {ratio:.2f}x its own ({own_us:.0f} us, "
        f"the adapter {governed_us - own_us:.0f} us)  (target {MAX_RATIO}x)",
        flush=True,
    )
    return ratio <= MAX_RATIO


def find_python(name: str) -> str | None:
    """Return an interpreter that has a framework: this one, or one of `make test-adapters`. None if there is none."""
    if find_spec(FRAMEWORKS[name][0]) is not None:
        return sys.executable
    other = ENVIRONMENTS / f"{name}-newest" / "bin" / "python"
    return str(other) if other.exists() else None


def main() -> int:
    if sys.argv[1:]:
        return 0 if all(compare(name) for name in sys.argv[1:]) else 1
    pythons = {name: find_python(name) for name in FRAMEWORKS}
    for name in [name for name, python in pythons.items() if python is None]:
        print(f"a turn of {name:<18} not measured: run `make test-adapters ARGS={name}-newest` first", flush=True)
    found = {name: python for name, python in pythons.items() if python is not None}
    return max(subprocess.run([python, __file__, name], check=False).returncode for name, python in found.items())


if __name__ == "__main__":
    sys.exit(main())
