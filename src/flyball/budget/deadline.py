"""Clocks, deadlines, and tokens that let a tool stop in time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Condition, Lock
from typing import Protocol

from .._internal import validation
from ..errors import ConfigError, DeadlineExceeded


class Clock(Protocol):
    """Source of time. `now` never goes back; `wall` may jump."""

    def now(self) -> float:
        """Return seconds on a monotonic scale."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch, for timestamps and `until=`."""
        ...

    def wait(self, condition: Condition, seconds: float) -> None:
        """Wait until the held condition is notified or `seconds` pass."""
        ...


class SystemClock:
    """Clock of the machine."""

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def wait(self, condition: Condition, seconds: float) -> None:
        """Wait on the condition, for one day at most."""
        condition.wait(min(seconds, 86_400.0))  # threading rejects a timeout of centuries


SYSTEM = SystemClock()
_CONDITION_LOCK = Lock()


@dataclass(frozen=True, slots=True)
class Deadline:
    """Moment on a monotonic clock after which work must stop.

    `at` is in seconds on `clock.now()`; `math.inf` means never. Jumps of the wall clock do not move a deadline.

    >>> Deadline.after(60).within(5).remaining <= 5
    True
    """

    at: float
    clock: Clock = SYSTEM

    def __post_init__(self) -> None:
        if self.at != self.at:
            raise ConfigError("deadline, at", self.at, "a time in seconds, or math.inf for never")

    @classmethod
    def after(cls, seconds: float | None, clock: Clock = SYSTEM) -> Deadline:
        """Return the deadline in `seconds`; None and `math.inf` mean never."""
        return cls(clock.now() + validation.parse_duration("deadline, seconds", seconds), clock)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.at - self.clock.now())

    @property
    def expired(self) -> bool:
        """True once the deadline has passed."""
        return self.clock.now() >= self.at

    def within(self, cap: float | None) -> Deadline:
        """Return the earlier of this deadline and `cap` seconds from now."""
        return min(self, Deadline.after(cap, self.clock), key=lambda deadline: deadline.at)

    def postponed(self, seconds: float) -> Deadline:
        """Return a deadline that is `seconds` later."""
        return Deadline(self.at + validation.parse_duration("deadline, postponed by", seconds), self.clock)


def create_deadline(at: float, clock: Clock) -> Deadline:
    """Create a deadline without validation, in a third of the time."""
    deadline, set_field = object.__new__(Deadline), object.__setattr__
    set_field(deadline, "at", at)
    set_field(deadline, "clock", clock)
    return deadline


class Envelope(Protocol):
    """Part of a run's budget that tokens need; `TurnBudget` implements it."""

    @property
    def clock(self) -> Clock:
        """Clock of the run's deadlines."""
        ...

    def tool_deadline(self, cap_s: float | None = None, tool: str | None = None) -> float:
        """Return the clock time by which one tool call must end."""
        ...


class DeadlineToken:
    """Handle that tells cooperative work when to stop.

    Poll `is_expired()` in the inner loop and return early with a partial result. A token expires at its deadline, or
    when any thread calls `cancel()`. A token derived with `token.within(5)` also expires with its parent.
    """

    __slots__ = ("_at", "_cancelled", "_clock", "_condition", "_now", "_parent")

    def __init__(self, deadline: Deadline, parent: DeadlineToken | None = None) -> None:
        self._at = deadline.at if parent is None else min(deadline.at, parent._at)
        self._clock = deadline.clock
        self._now = deadline.clock.now
        self._parent = parent
        self._cancelled = False
        self._condition: Condition | None = None

    @classmethod
    def from_budget(cls, budget: Envelope, cap_s: float | None = None, tool: str | None = None) -> DeadlineToken:
        """Create the token of one tool call.

        It expires when the run's work time ends, after `cap_s` seconds, or after the tool's own limit.
        """
        return cls(Deadline(budget.tool_deadline(cap_s, tool), budget.clock))

    def within(self, cap_s: float | None = None) -> DeadlineToken:
        """Derive a token that also expires after `cap_s` seconds."""
        return DeadlineToken(Deadline(self._at, self._clock).within(cap_s), self)

    def is_expired(self) -> bool:
        """Check whether the work must stop now."""
        return self._cancelled or self._now() >= self._at or (self._parent is not None and self._is_cancelled())

    def remaining_s(self) -> float:
        """Return the seconds until expiry; 0 after `cancel()`."""
        return 0.0 if self.is_expired() else max(0.0, self._at - self._now())

    def cancel(self) -> None:
        """Expire this token and all tokens derived from it."""
        self._cancelled = True
        condition = self._root()._condition
        if condition is not None:
            with condition:
                condition.notify_all()

    def wait(self, seconds: float) -> bool:
        """Sleep for `seconds` or until expiry; return True if expired.

        Typical use is `while not token.wait(1): ...`.
        """
        until = self._now() + validation.parse_duration("token, seconds to wait", seconds)
        condition = self._root()._shared_condition()
        with condition:
            while not self.is_expired() and self._now() < until:
                self._clock.wait(condition, min(until, self._at) - self._now())
        return self.is_expired()

    def raise_if_expired(self) -> None:
        """Raise DeadlineExceeded if the token has expired."""
        if self.is_expired():
            raise DeadlineExceeded(self._is_cancelled())

    def _is_cancelled(self) -> bool:
        token: DeadlineToken | None = self
        while token is not None:
            if token._cancelled:
                return True
            token = token._parent
        return False

    def _root(self) -> DeadlineToken:
        token = self
        while token._parent is not None:
            token = token._parent
        return token

    def _shared_condition(self) -> Condition:
        # One condition for all tokens derived from a root, created on the first wait: most tokens never wait.
        with _CONDITION_LOCK:
            if self._condition is None:
                self._condition = Condition()
            return self._condition
