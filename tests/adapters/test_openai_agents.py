import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from agents import Agent, OpenAIChatCompletionsModel, OpenAIProvider, RunConfig, Tool, function_tool
from openai import AsyncOpenAI

from flyball import Limits, Result
from flyball.adapters import openai_agents, result_of
from flyball.testing.server import LoopingProvider


@function_tool
async def add(a: int) -> str:
    """Add one."""
    return str(a + 1)


@dataclass
class Client:
    """Scripted provider, and the configuration of a run that uses it."""

    provider: LoopingProvider
    client: AsyncOpenAI
    config: RunConfig

    def create_chat_model(self) -> OpenAIChatCompletionsModel:
        return OpenAIChatCompletionsModel("gpt-4o", self.client)


@asynccontextmanager
async def open_client(provider: LoopingProvider, *, chat: bool = False) -> AsyncGenerator[Client]:
    with provider:
        async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="key") as client:
            models = OpenAIProvider(openai_client=client, use_responses=not chat)
            yield Client(provider, client, RunConfig(model_provider=models, tracing_disabled=True))


def create_agent(*tools: Tool, model: object = "gpt-4o") -> Agent:
    return Agent("counter", instructions="Count.", tools=list(tools or (add,)), model=model)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_endless_agent_makes_its_turns_and_one_report(chat: bool, streamed: bool) -> None:
    async def main() -> None:
        async with open_client(LoopingProvider(report="I counted."), chat=chat) as open_:
            if streamed:
                returned = openai_agents.run_streamed(
                    create_agent(), "Count.", limits=Limits(turns=3), run_config=open_.config
                )
                async for _ in returned.stream_events():
                    pass
            else:
                returned = await openai_agents.run(
                    create_agent(), "Count.", limits=Limits(turns=3), run_config=open_.config
                )
            result = result_of(returned)
            assert returned.final_output == "I counted."
            assert (result.stop, result.turns, result.requests, result.text) == ("budget", 3, 4, "I counted.")
            provider = open_.provider
            assert (len(provider.requests), provider.last_requests, provider.refused) == (4, 1, [])
            assert provider.requests[-1].body["tools"]
            if not streamed:  # the SDK asks for the usage of a stream at its own address only
                assert result.usage.total == sum(usage.total for usage in provider.billed)

    asyncio.run(main())


def test_a_model_object_of_an_agent_is_held_too() -> None:
    async def main() -> Result:
        async with open_client(LoopingProvider(report="I counted.")) as open_:
            agent = create_agent(model=open_.create_chat_model())
            return result_of(await openai_agents.run(agent, "Count.", limits=Limits(turns=2)))

    result = asyncio.run(main())
    assert (result.stop, result.turns, result.requests) == ("budget", 2, 3)


def test_an_agent_that_is_a_tool_has_a_report_of_its_own() -> None:
    async def main() -> Result:
        async with open_client(LoopingProvider(report="I counted.")) as open_:
            top = Agent("top", tools=[create_agent().as_tool("count", "Counts.")], model="gpt-4o")
            returned = await openai_agents.run(top, "Count.", limits=Limits(turns=5), run_config=open_.config)
            assert len(open_.provider.requests) == 7
            return result_of(returned)

    result = asyncio.run(main())
    assert [(one["agent"], one["level"], one["reported"]) for one in result.state["conversations"]] == [
        ("top", 0, True),
        ("counter", 1, True),
    ]
