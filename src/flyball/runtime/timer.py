"""The pace of a run: its active seconds, and the alarm that cuts what takes too long."""

from __future__ import annotations

import asyncio
import math
from threading import Condition

import anyio

from ..budget.deadline import Clock

_AHEAD_S = 30.0
"""As far ahead as the alarm is set: most calls have longer, so it need not be set anew for each."""


_SCOPES: list[type[anyio.CancelScope]] = []
"""The class of asyncio's scopes, once it was found."""


class RunTimer:
    """A clock that starts with the run, and one alarm for all of it.

    Moving the deadline of a scope costs more than all else in a turn. On asyncio the alarm is therefore a timer that is
    set anew only where it must ring sooner; where it rings too soon, it is set again.
    """

    __slots__ = ("_began", "_clock", "_due", "_loop", "_now", "_offset", "_rings_at", "_scope", "_timer", "was_cut")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = clock.now
        self._began = clock.now()
        self._offset = 0.0
        self._due = self._rings_at = math.inf
        self._scope: anyio.CancelScope | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.was_cut = False
        """Whether somebody has cut what goes on in this scope; who only looks must not ask the scope, as that costs."""

    def is_cut(self) -> bool:
        """Whether what comes next needs another scope."""
        return self.was_cut or (self._loop is None and self._scope is not None and self._scope.cancel_called)

    def now(self) -> float:
        """The run's active seconds so far."""
        return self._now() - self._began

    def begin_at(self, seconds: float) -> None:
        """So much of the run's time is over already."""
        self._began = self._now() - seconds

    def stop(self) -> None:
        """Let the run's time stand still."""
        stopped_at = self._now()
        self._now = lambda: stopped_at

    def go_on(self) -> None:
        """Let it go on from there."""
        self._began += self._clock.now() - self._now()
        self._now = self._clock.now
        if self._scope is not None:
            self._tie()

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
        if self._due != math.inf or self._timer is not None:
            self.leave()  # or what may take as long as the one before would have no alarm
        self._scope, self.was_cut = scope, False
        self._tie()

    def _tie(self) -> None:
        """Find out what the event loop's time is in the run's; a clock of the caller's own goes another way."""
        try:
            self._loop = asyncio.get_running_loop()
            self._offset = self._loop.time() - self.now()
        except RuntimeError:  # trio
            self._loop = None
            self._offset = anyio.current_time() - self.now()

    def leave(self) -> None:
        """There is nothing to cut any more."""
        self._due = self._rings_at = math.inf
        self._scope = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def allow(self, until: float) -> None:
        """Let what comes next take until then, in the run's seconds."""
        if self._loop is None:
            if until != self._due and self._scope is not None:
                self._scope.deadline = self._offset + until
            self._due = until
            return
        self._due = until
        if until < self._rings_at:
            self._set(self._loop, until)

    def _set(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = min(at, loop.time() - self._offset + _AHEAD_S)
        self._timer = loop.call_at(self._offset + self._rings_at, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._rings_at = None, math.inf
        if loop.time() + 1e-9 < self._offset + self._due:
            if self._due != math.inf:
                self._set(loop, self._due)
        elif self._scope is not None:
            self._scope.cancel()
            self.was_cut = True
