import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agents import Runner

from flyball.adapters import AdapterOptions

from .drivers.openai_agents import OpenAIAgentsDriver, OpenAIAgentsSession
from .stories.check import NAMES, check_story
from .stories.plan import Bench, Verdict
from .stories.stories import STORIES, Story

QUICK = ("parallel", "a sub-agent", "a cancel", "an unknown", "a limit met", "nested")


@pytest.mark.parametrize("story", STORIES, ids=NAMES)
def test_openai_agents_in_the_story_of(story: Story, snapshot: Callable[..., None]) -> None:
    check_story(OpenAIAgentsDriver(), story, snapshot)


class UngovernedSession(OpenAIAgentsSession):
    """The SDK without Flyball."""

    async def run(self, agent: Any, options: AdapterOptions, *, streamed: bool = False) -> str:
        returned = await Runner.run(agent, "Count.", run_config=self.config, max_turns=1_000)
        return str(returned.final_output)


class UngovernedDriver(OpenAIAgentsDriver):
    """OpenAI Agents SDK without its adapter."""

    @asynccontextmanager
    async def open(self, url: str) -> AsyncGenerator[OpenAIAgentsSession]:
        async with super().open(url) as session:
            yield UngovernedSession(session.config)


@pytest.mark.parametrize(
    "story", [story for story in STORIES if story.name.startswith(QUICK)], ids=lambda story: story.name
)
def test_without_its_adapter_nothing_is_seen_in_the_story_of(story: Story) -> None:
    async def tell() -> Verdict:
        return await story.tell(Bench(UngovernedDriver()))

    assert asyncio.run(tell()) is Verdict.UNSEEN
