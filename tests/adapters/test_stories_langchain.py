from collections.abc import Callable

import pytest

from .drivers.langchain import LangChainDriver
from .stories.check import NAMES, check_story
from .stories.stories import STORIES, Story


@pytest.mark.parametrize("story", STORIES, ids=NAMES)
def test_langchain_in_the_story_of(story: Story, snapshot: Callable[..., None]) -> None:
    check_story(LangChainDriver(), story, snapshot)
