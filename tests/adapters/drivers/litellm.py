"""Driver of the stories for LiteLLM, with a loop such as a program of its own would have."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from flyball.adapters import AdapterOptions, litellm
from flyball.adapters.frameworks import LITELLM
from flyball.adapters.litellm import GovernedLiteLLM

from ..stories.plan import AgentPlan

_OWN_TOOLS = "the program calls its tools itself"


@dataclass
class LiteLLMSession:
    """LiteLLM for one provider."""

    url: str

    def build(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan itself: LiteLLM has no agents."""
        return plan

    async def run(self, agent: AgentPlan, options: AdapterOptions, *, streamed: bool = False) -> str:
        """Run the loop of an agent; return its final text."""
        async with litellm.govern(options=options) as llm:
            return await Loop(self.url, llm, agent, streamed).run("Count.")


@dataclass
class Loop:
    """Loop of one agent."""

    url: str
    llm: GovernedLiteLLM
    plan: AgentPlan
    streamed: bool

    async def run(self, task: str) -> str:
        """Ask the model until it calls no tool."""
        functions = {function.__name__: function for function in self.plan.tools}
        functions |= {f"ask_{child.name}": self._delegate(child) for child in self.plan.children}
        messages: list[Any] = [{"role": "system", "content": self.plan.name}, {"role": "user", "content": task}]
        while True:
            message = await self._ask(messages, [_describe(name, one) for name, one in functions.items()])
            messages.append(message)
            if not message.tool_calls:
                return str(message.content)
            calls = [_call(functions[one.function.name], one.function.arguments) for one in message.tool_calls]
            for one, text in zip(message.tool_calls, await asyncio.gather(*calls), strict=True):
                messages.append({"role": "tool", "tool_call_id": one.id, "content": text})

    async def _ask(self, messages: list[Any], tools: list[Any]) -> Any:
        reply = await self.llm.acompletion(
            f"openai/{self.plan.model}",
            messages,
            tools=tools or None,
            stream=self.streamed,
            api_base=f"{self.url}/v1",
            api_key="key",
        )
        if self.streamed:
            reply = LITELLM.load().stream_chunk_builder([chunk async for chunk in reply])
        return reply.choices[0].message

    def _delegate(self, child: AgentPlan) -> Callable[..., Any]:
        async def ask(input: str) -> str:
            return await Loop(self.url, self.llm, child, self.streamed).run(input)

        return ask


async def _call(function: Callable[..., Any], arguments: str) -> str:
    values = json.loads(arguments)
    if inspect.iscoroutinefunction(function):
        return str(await function(**values))
    return str(await asyncio.to_thread(function, **values))


def _describe(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    kinds = {"int": "integer", int: "integer"}
    properties = {
        parameter.name: {"type": kinds.get(parameter.annotation, "string")}
        for parameter in inspect.signature(function).parameters.values()
    }
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": parameters}}


class LiteLLMDriver:
    """LiteLLM with its adapter."""

    title = "LiteLLM"
    not_applicable: dict[str, str] = {  # noqa: RUF012
        "a hung tool (`async def`)": _OWN_TOOLS,
        "a hung tool (`def`)": _OWN_TOOLS,
        "a handoff": "it has no agents",
    }

    @asynccontextmanager
    async def open(self, url: str) -> AsyncGenerator[LiteLLMSession]:
        """Return LiteLLM for a provider."""
        yield LiteLLMSession(url)
