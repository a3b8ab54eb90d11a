"""Time, as something that can be handed in: tests move it, programs read the system's."""

from __future__ import annotations

import time
from threading import Condition
from typing import Protocol


class Clock(Protocol):
    """Where time comes from. `now` never goes back; only `wall` knows the date, and it may jump."""

    def now(self) -> float:
        """Seconds on a scale that only moves forward."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch, for what people read and for `until=`."""
        ...

    def wait(self, condition: Condition, seconds: float) -> None:
        """Wait until the condition, which the caller holds, is notified or the seconds have passed."""
        ...


class SystemClock:
    """The machine's own clock."""

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def wait(self, condition: Condition, seconds: float) -> None:
        """Wait for real; at most a day at a time, because a lock refuses a timeout of centuries."""
        condition.wait(min(seconds, 86_400.0))


SYSTEM = SystemClock()
