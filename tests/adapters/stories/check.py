"""Check of a story against the stored verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .plan import Bench, Driver
from .stories import STORIES, Story

BOUND_S = 60.0
NAMES = [story.name for story in STORIES]


def check_story(driver: Driver, story: Story, snapshot: Callable[..., None]) -> None:
    """Tell a story with a framework. `make snapshots ARGS=tests/adapters` stores verdicts, and writes the table."""
    reason = driver.not_applicable.get(story.name)
    if reason is not None:
        snapshot(f"does not apply: {reason}")
        return

    async def tell() -> str:
        return await asyncio.wait_for(story.tell(Bench(driver)), BOUND_S)

    snapshot(asyncio.run(tell()))
