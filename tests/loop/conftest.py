"""The fixture `audit`, which holds a run to what its story allowed: see audit.py."""

from collections.abc import Callable
from typing import Any

import pytest

from flyball import Agent, Result

pytest.register_assert_rewrite("tests.loop.audit")

from .audit import audited  # noqa: E402


@pytest.fixture(scope="session")
def audit() -> Callable[[Agent, list[Any], Result, float], None]:
    """`audit(agent, story, result, max_seconds)` raises AssertionError at the first thing that was not allowed."""
    return audited
