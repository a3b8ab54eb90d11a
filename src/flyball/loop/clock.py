"""The clock of the loop, which moves only with answers."""

from __future__ import annotations

from threading import Condition


class LoopClock:
    """Clock that stands still until an answer carries the time."""

    __slots__ = ("at", "started_at")

    def __init__(self, started_at: float) -> None:
        self.at = 0.0
        self.started_at = started_at

    def now(self) -> float:
        """Return the run's active seconds."""
        return self.at

    def wall(self) -> float:
        """Return seconds since the epoch, by the last answer."""
        return self.started_at + self.at

    def wait(self, condition: Condition, seconds: float) -> None:
        """Raise: the loop never waits, it yields a Wait."""
        raise NotImplementedError
