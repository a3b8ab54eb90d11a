"""What tests wait for, and what they write down."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Notebook:
    """A teller that writes down what it is told: the kinds of events, and their own fields."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[Any, ...]]] = []

    def tell(self, kind: Any, *fields: Any) -> None:
        """Write it down."""
        self.told.append((kind.kind, fields))

    def kinds(self) -> list[str]:
        """The kinds of events, in order."""
        return [kind for kind, _ in self.told]


def until(happened: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for another thread; AssertionError where it does not come in time."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"it did not happen within {seconds:g} seconds"
        time.sleep(0.001)
