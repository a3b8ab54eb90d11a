"""A clock that stands still until a test moves it."""

from __future__ import annotations

import math
from threading import Condition


class ManualClock:
    """Clock that a test moves. Waiting moves it too, so that nothing sleeps.

    >>> clock = ManualClock()
    >>> clock.move(2.5)
    >>> clock.now()
    2.5
    """

    def __init__(self, now: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._now = now
        self._wall = wall

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._now

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return self._wall

    def wait(self, condition: Condition, seconds: float) -> None:
        """Advance both clocks instead of waiting."""
        if seconds == math.inf:
            raise ValueError("an infinite wait never ends on a clock that only the test moves")
        self.move(max(0.0, seconds))

    def move(self, seconds: float) -> None:
        """Advance both clocks by these seconds."""
        if seconds < 0:
            raise ValueError(f"time cannot move back by {seconds} s")
        self._now += seconds
        self._wall += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, while no time passes.

        An administrator or daylight saving does this to a real clock.
        """
        self._wall += seconds
