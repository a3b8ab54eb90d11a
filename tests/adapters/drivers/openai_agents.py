"""Driver of the stories for the OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agents import Agent, OpenAIProvider, RunConfig, function_tool
from openai import AsyncOpenAI

from flyball.adapters import AdapterOptions, openai_agents

from ..stories.plan import AgentPlan


@dataclass
class OpenAIAgentsSession:
    """The SDK with a client for one provider."""

    config: RunConfig

    def build(self, plan: AgentPlan) -> Agent[Any]:
        """Return the agent of the SDK."""
        tools = [function_tool(function) for function in plan.tools]
        tools += [self.build(child).as_tool(f"ask_{child.name}", "Asks an agent.") for child in plan.children]
        handoffs: list[Any] = [self.build(other) for other in plan.handoffs]
        return Agent(plan.name, instructions="Count.", tools=[*tools], handoffs=handoffs, model=plan.model)

    async def run(self, agent: Any, options: AdapterOptions, *, streamed: bool = False) -> str:
        """Run an agent; return its final text."""
        if not streamed:
            returned = await openai_agents.run(agent, "Count.", options=options, run_config=self.config)
            return str(returned.final_output)
        stream = openai_agents.run_streamed(agent, "Count.", options=options, run_config=self.config)
        async for _ in stream.stream_events():
            pass
        return str(stream.final_output)


class OpenAIAgentsDriver:
    """OpenAI Agents SDK with its adapter."""

    title = "OpenAI Agents SDK"
    not_applicable: dict[str, str] = {}  # noqa: RUF012

    @asynccontextmanager
    async def open(self, url: str) -> AsyncGenerator[OpenAIAgentsSession]:
        """Open the SDK for a provider."""
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="key") as client:
            models = OpenAIProvider(openai_client=client, use_responses=True)
            yield OpenAIAgentsSession(RunConfig(model_provider=models, tracing_disabled=True))
