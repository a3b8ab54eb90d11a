import os
from collections.abc import Callable

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
pytest.importorskip("litellm", reason="it needs openai 2: make test-adapters")

from .drivers.litellm import LiteLLMDriver
from .stories.check import NAMES, check_story
from .stories.stories import STORIES, Story


@pytest.mark.parametrize("story", STORIES, ids=NAMES)
def test_litellm_in_the_story_of(story: Story, snapshot: Callable[..., None]) -> None:
    check_story(LiteLLMDriver(), story, snapshot)
