"""The loop's clock."""

from __future__ import annotations

from threading import Condition


class Told:
    """The loop's clock: it stands still until an answer tells the time."""

    __slots__ = ("at", "started_at")

    def __init__(self, started_at: float) -> None:
        self.at = 0.0
        self.started_at = started_at

    def now(self) -> float:
        """The run's active seconds."""
        return self.at

    def wall(self) -> float:
        """Seconds since the epoch, as far as the loop knows."""
        return self.started_at + self.at

    def wait(self, condition: Condition, seconds: float) -> None:
        """The loop never waits; it yields a Wait."""
        raise NotImplementedError
