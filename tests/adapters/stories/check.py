"""Check of a story against the stored verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .plan import Bench, Driver, TooEarly
from .stories import STORIES, Story

BOUND_S = 60.0
SLOW_FACTOR = 4
"""Factor of the limit of time for a machine that is too slow for the usual one."""
NAMES = [story.name for story in STORIES]


def check_story(driver: Driver, story: Story, snapshot: Callable[..., None]) -> None:
    """Tell a story with a framework. `make snapshots ARGS=tests/adapters` stores verdicts, and writes the table."""
    reason = driver.not_applicable.get(story.name)
    if reason is not None:
        snapshot(f"does not apply: {reason}")
        return

    async def tell(bench: Bench) -> str:
        return await asyncio.wait_for(story.tell(bench), BOUND_S)

    bench, slow = Bench(driver), Bench(driver)
    slow.seconds *= SLOW_FACTOR
    try:
        verdict = asyncio.run(tell(bench))
    except TooEarly:
        verdict = asyncio.run(tell(slow))
    snapshot(verdict)
