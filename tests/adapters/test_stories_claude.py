from collections.abc import Callable

import pytest

pytest.importorskip("claude_agent_sdk", reason="it brings a program of 350 MB: make test-adapters")

from .drivers.claude import ClaudeDriver
from .stories.check import NAMES, check_story
from .stories.stories import STORIES, Story


@pytest.mark.parametrize("story", STORIES, ids=NAMES)
def test_claude_in_the_story_of(story: Story, snapshot: Callable[..., None]) -> None:
    check_story(ClaudeDriver(), story, snapshot)
