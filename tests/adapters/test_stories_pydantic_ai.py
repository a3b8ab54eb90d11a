from collections.abc import Callable

import pytest

from .drivers.pydantic_ai import PydanticAIDriver
from .stories.check import NAMES, check_story
from .stories.stories import STORIES, Story


@pytest.mark.filterwarnings("ignore:Failed to extract usage")  # pydantic-ai's, in the story of such a usage
@pytest.mark.parametrize("story", STORIES, ids=NAMES)
def test_pydantic_ai_in_the_story_of(story: Story, snapshot: Callable[..., None]) -> None:
    check_story(PydanticAIDriver(), story, snapshot)
