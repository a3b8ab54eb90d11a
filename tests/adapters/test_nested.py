"""Agents of one framework that call those of another one draw on the same budgets."""

import asyncio
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, function_tool
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic import SecretStr

from flyball import Limits, Result
from flyball.adapters import langchain, openai_agents, result_of
from flyball.testing.server import LoopingProvider


@function_tool
async def add(a: int) -> str:
    """Add one."""
    return str(a + 1)


def test_a_langchain_agent_and_an_agent_that_its_tool_runs_share_their_turns_and_each_reports() -> None:
    inner: list[Result] = []

    async def main(provider: LoopingProvider) -> Any:
        async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="key") as client:
            counter = Agent("counter", tools=[add], model=OpenAIChatCompletionsModel("gpt-4o", client))

            @tool
            async def count(a: int) -> str:
                """Count."""
                returned = await openai_agents.run(counter, "Count.", limits=Limits(turns=30))
                inner.append(result_of(returned))
                return str(returned.final_output)

            model = ChatOpenAI(model="gpt-4o", base_url=f"{provider.url}/v1", api_key=SecretStr("key"))
            outer: Any = create_agent(model, [count], middleware=[langchain.govern(Limits(turns=6))])
            return await outer.ainvoke({"messages": [("user", "Count.")]})

    with LoopingProvider(report="I counted.") as provider:
        state = asyncio.run(main(provider))
    outer = result_of(state)
    assert (len(provider.requests), provider.last_requests, provider.refused) == (8, 2, [])
    assert (outer.turns, outer.budgets["turns"].used, inner[0].turns) == (1, 6, 5)
    assert (outer.stop, inner[0].stop, inner[0].text, outer.text) == ("budget", "budget", "I counted.", "I counted.")
