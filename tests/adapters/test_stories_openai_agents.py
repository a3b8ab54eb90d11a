from collections.abc import Callable

import pytest

from .drivers.openai_agents import OpenAIAgentsDriver
from .stories.check import NAMES, check_story
from .stories.stories import STORIES, Story


@pytest.mark.parametrize("story", STORIES, ids=NAMES)
def test_openai_agents_in_the_story_of(story: Story, snapshot: Callable[..., None]) -> None:
    check_story(OpenAIAgentsDriver(), story, snapshot)
