"""Timer of a run: its active seconds, and the alarm that cancels an effect at its deadline."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from threading import Condition

import anyio

from ..budget.deadline import Clock

_MAX_ALARM_S = 30.0
"""Maximum seconds ahead for the alarm. Most deadlines are later, so it need not be set for each effect."""


class RunTimer:
    """Clock that starts with the run, with one alarm for all effects.

    Changing the deadline of a cancel scope costs more than the rest of a turn. On asyncio the alarm is therefore a
    timer that is replaced only by an earlier one. If it fires too early, it is set again.
    """

    __slots__ = (
        "_alarm_at",
        "_clock",
        "_deadline",
        "_loop",
        "_now",
        "_offset",
        "_scope",
        "_started_at",
        "_timer",
        "on_alarm",
        "was_cancelled",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.now
        self._started_at = clock.now()
        self._offset = 0.0
        self._deadline = self._alarm_at = math.inf
        self._scope: anyio.CancelScope | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_alarm: Callable[[], object] | None = None
        """Called after an effect was cancelled at its deadline. Only on asyncio."""
        self.was_cancelled = False
        """True once the current scope was cancelled, so that the next effect needs a new one."""

    def check_scope(self) -> None:
        """Notice that the scope was cancelled. On trio its own deadline does that; on asyncio the alarm."""
        if self._loop is None and self._scope is not None and self._scope.cancel_called:
            self.was_cancelled = True

    def now(self) -> float:
        """Return the active seconds of the run."""
        return self._now() - self._started_at

    def set_elapsed(self, seconds: float) -> None:
        """Set the active seconds so far."""
        self._started_at = self._now() - seconds

    def pause(self) -> None:
        """Stop the run's time."""
        stopped_at = self._now()
        self._now = lambda: stopped_at

    def resume(self) -> None:
        """Continue the run's time."""
        self._started_at += self._clock.now() - self._now()
        self._now = self._clock.now
        if self._scope is not None:
            self._sync_offset()

    def wall(self) -> float:
        """Return the seconds since the epoch."""
        return self._clock.wall()

    def wait(self, condition: Condition, seconds: float) -> None:
        """Wait until the condition is notified or the seconds have passed."""
        self._clock.wait(condition, seconds)

    def is_on_trio(self) -> bool:
        """Return True if the running event loop is trio's."""
        return asyncio._get_running_loop() is None

    def enter(self, scope: anyio.CancelScope) -> bool:
        """Use this scope for the following effects. Return True if its own deadline is the alarm, as on trio."""
        if self._deadline != math.inf or self._timer is not None:
            self.leave()  # otherwise an effect with the same deadline as the last would have no alarm
        self._scope, self.was_cancelled = scope, False
        self._sync_offset()
        return self._loop is None

    def _sync_offset(self) -> None:
        """Compute the offset of the event loop's time. The run may have another clock."""
        try:
            self._loop = asyncio.get_running_loop()
            self._offset = self._loop.time() - self.now()
        except RuntimeError:  # trio
            self._loop = None
            self._offset = anyio.current_time() - self.now()

    def leave(self) -> None:
        """Cancel the alarm and drop the scope."""
        self._deadline = self._alarm_at = math.inf
        self._scope = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def set_deadline(self, until: float) -> None:
        """Set the deadline of the next effect, in active seconds of the run."""
        if self._loop is None:
            if until != self._deadline and self._scope is not None:
                self._scope.deadline = self._offset + until
            self._deadline = until
            return
        self._deadline = until
        if until < self._alarm_at:
            self._set_alarm(self._loop, until)

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._alarm_at = min(at, loop.time() - self._offset + _MAX_ALARM_S)
        self._timer = loop.call_at(self._offset + self._alarm_at, self._on_alarm, loop)

    def _on_alarm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._alarm_at = None, math.inf
        if loop.time() + 1e-9 < self._offset + self._deadline:
            if self._deadline != math.inf:
                self._set_alarm(loop, self._deadline)
        elif self._scope is not None:
            self._scope.cancel()
            self.was_cancelled = True
            if self.on_alarm is not None:
                self.on_alarm()
