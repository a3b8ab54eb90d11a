"""The pace of a run: its active seconds, and the alarm that cuts what takes too long."""

from __future__ import annotations

import asyncio
import math
from threading import Condition

import anyio

from ..budget.deadline import Clock

_MAX_ALARM_S = 30.0
"""As far ahead as the alarm is set: most calls have longer, so it need not be set anew for each."""


_SCOPES: list[type[anyio.CancelScope]] = []
"""The class of asyncio's scopes, once it was found."""


class RunTimer:
    """A clock that starts with the run, and one alarm for all of it.

    Moving the deadline of a scope costs more than all else in a turn. On asyncio the alarm is therefore a timer that is
    set anew only where it must ring sooner; where it rings too soon, it is set again.
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
        self.was_cancelled = False
        """Whether somebody has cut what goes on in this scope; who only looks must not ask the scope, as that costs."""

    def is_cancelled(self) -> bool:
        """Whether what comes next needs another scope."""
        return self.was_cancelled or (self._loop is None and self._scope is not None and self._scope.cancel_called)

    def now(self) -> float:
        """The run's active seconds so far."""
        return self._now() - self._started_at

    def set_elapsed(self, seconds: float) -> None:
        """So much of the run's time is over already."""
        self._started_at = self._now() - seconds

    def pause(self) -> None:
        """Let the run's time stand still."""
        stopped_at = self._now()
        self._now = lambda: stopped_at

    def resume(self) -> None:
        """Let it go on from there."""
        self._started_at += self._clock.now() - self._now()
        self._now = self._clock.now
        if self._scope is not None:
            self._sync_offset()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._clock.wall()

    def wait(self, condition: Condition, seconds: float) -> None:
        """Wait until the condition is notified or the seconds have passed."""
        self._clock.wait(condition, seconds)

    def scope(self) -> anyio.CancelScope:
        """A scope to enter; asyncio's is made by its own class, which anyio would look for each time."""
        if asyncio._get_running_loop() is None:  # trio
            return anyio.CancelScope()
        if not _SCOPES:
            _SCOPES.append(type(anyio.CancelScope()))
        return _SCOPES[0]()

    def enter(self, scope: anyio.CancelScope) -> None:
        """Keep the time of what happens in this scope from now on."""
        if self._deadline != math.inf or self._timer is not None:
            self.leave()  # or what may take as long as the one before would have no alarm
        self._scope, self.was_cancelled = scope, False
        self._sync_offset()

    def _sync_offset(self) -> None:
        """Find out what the event loop's time is in the run's; a clock of the caller's own goes another way."""
        try:
            self._loop = asyncio.get_running_loop()
            self._offset = self._loop.time() - self.now()
        except RuntimeError:  # trio
            self._loop = None
            self._offset = anyio.current_time() - self.now()

    def leave(self) -> None:
        """There is nothing to cut any more."""
        self._deadline = self._alarm_at = math.inf
        self._scope = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def set_deadline(self, until: float) -> None:
        """Let what comes next take until then, in the run's seconds."""
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
