"""A clock that stands still until somebody moves it."""

from __future__ import annotations

import math
from threading import Condition


class ManualClock:
    """A clock that a test moves by hand; waiting moves it too, so that nothing ever sleeps.

    >>> clock = ManualClock()
    >>> clock.move(2.5)
    >>> clock.now()
    2.5
    """

    def __init__(self, now: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._now = now
        self._wall = wall

    def now(self) -> float:
        """Seconds on the scale that only moves forward."""
        return self._now

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._wall

    def wait(self, condition: Condition, seconds: float) -> None:
        """Let the seconds pass at once."""
        if seconds == math.inf:
            raise ValueError("nobody can wait for ever on a clock that only a test moves")
        self.move(max(0.0, seconds))

    def move(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time cannot go back; found {seconds}")
        self._now += seconds
        self._wall += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or daylight saving would; no time passes."""
        self._wall += seconds
