"""Driver of the stories for pydantic-ai."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI
from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from flyball.adapters import AdapterOptions, pydantic_ai

from ..stories.plan import AgentPlan


@dataclass
class PydanticAISession:
    """pydantic-ai with a client for one provider."""

    client: AsyncOpenAI

    def build(self, plan: AgentPlan, *, is_child: bool = False) -> Agent[Any, str]:
        """Return the agent of pydantic-ai. Children have the capability."""
        tools = [Tool(function) for function in plan.tools] + [self.create_tool(child) for child in plan.children]
        model = OpenAIChatModel(plan.model, provider=OpenAIProvider(openai_client=self.client))
        capabilities = [pydantic_ai.govern()] if is_child else []
        outputs: Any = [self.create_handoff(other) for other in plan.handoffs] or str
        return Agent(model, name=plan.name, tools=tools, capabilities=capabilities, output_type=outputs)

    def create_handoff(self, plan: AgentPlan) -> Any:
        """Return an output function that hands the conversation to an agent."""
        agent = self.build(plan, is_child=True)

        async def hand_off(input: str) -> str:
            """Hand the conversation over."""
            return (await agent.run("Count.")).output

        return hand_off

    def create_tool(self, plan: AgentPlan) -> Tool[Any]:
        """Return a tool that asks an agent."""
        agent = self.build(plan, is_child=True)

        async def ask(input: str) -> str:
            """Ask an agent."""
            return (await agent.run("Count.")).output

        ask.__name__ = f"ask_{plan.name}"
        return Tool(ask)

    async def run(self, agent: Any, options: AdapterOptions, *, streamed: bool = False) -> str:
        """Run an agent; return its final text."""
        if not streamed:
            return (await pydantic_ai.run(agent, "Count.", options=options)).output
        async with agent.run_stream("Count.", capabilities=[pydantic_ai.govern(options=options)]) as stream:
            return await stream.get_output()


class PydanticAIDriver:
    """pydantic-ai with its adapter."""

    title = "pydantic-ai"
    not_applicable: dict[str, str] = {}  # noqa: RUF012

    @asynccontextmanager
    async def open(self, url: str) -> AsyncGenerator[PydanticAISession]:
        """Open pydantic-ai for a provider."""
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="key") as client:
            yield PydanticAISession(client)
