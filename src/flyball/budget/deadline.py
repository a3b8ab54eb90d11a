"""Deadlines: a moment on a clock that only moves forward, and the handle that lets a tool stop in time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Condition, Lock
from typing import Protocol

from .._internal import validation
from ..errors import ConfigError, DeadlineExceeded


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


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment after which work must not go on; `math.inf` is never. A jump of the wall clock does not move it.

    >>> Deadline.after(60).within(5).remaining <= 5
    True
    """

    at: float
    clock: Clock = SYSTEM

    def __post_init__(self) -> None:
        if self.at != self.at:
            raise ConfigError("deadline, at", self.at, "a moment, or math.inf for never")

    @classmethod
    def after(cls, seconds: float | None, clock: Clock = SYSTEM) -> Deadline:
        """The moment that is `seconds` away; None and `math.inf` are never."""
        return cls(clock.now() + validation.parse_duration("deadline, seconds", seconds), clock)

    @property
    def remaining(self) -> float:
        """Seconds until then, never negative."""
        return max(0.0, self.at - self.clock.now())

    @property
    def expired(self) -> bool:
        """Whether it is past."""
        return self.clock.now() >= self.at

    def within(self, cap: float | None) -> Deadline:
        """The nearer of this deadline and one that is `cap` seconds away."""
        return min(self, Deadline.after(cap, self.clock), key=lambda deadline: deadline.at)

    def postponed(self, seconds: float) -> Deadline:
        """The same deadline, later by `seconds`."""
        return Deadline(self.at + validation.parse_duration("deadline, postponed by", seconds), self.clock)


def create_deadline(at: float, clock: Clock) -> Deadline:
    """A deadline at a moment that was reckoned, and so need not be looked at: in a third of the time."""
    deadline, keep = object.__new__(Deadline), object.__setattr__
    keep(deadline, "at", at)
    keep(deadline, "clock", clock)
    return deadline


class Envelope(Protocol):
    """What a token needs of the run it belongs to; `TurnBudget` is one."""

    @property
    def clock(self) -> Clock:
        """The clock that the run's time is on."""
        ...

    def tool_deadline(self, cap_s: float | None = None, tool: str | None = None) -> float:
        """The moment by which one call must end."""
        ...


class DeadlineToken:
    """A handle for cooperative work: poll `is_expired()` in the inner loop and return early with what there is.

    It expires at its deadline or when somebody calls `cancel()`, from any thread. A token made from a token
    (`token.within(5)`) expires with it.
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
        """The token of one call: it expires with the run's work, after `cap_s` seconds, or after the tool's own."""
        return cls(Deadline(budget.tool_deadline(cap_s, tool), budget.clock))

    def within(self, cap_s: float | None = None) -> DeadlineToken:
        """A token for a part of this work: it expires with this one, or after `cap_s` seconds."""
        return DeadlineToken(Deadline(self._at, self._clock).within(cap_s), self)

    def is_expired(self) -> bool:
        """Whether to stop now."""
        return self._cancelled or self._now() >= self._at or (self._parent is not None and self._is_cancelled())

    def remaining_s(self) -> float:
        """Seconds until it expires; 0 after a cancel."""
        return 0.0 if self.is_expired() else max(0.0, self._at - self._now())

    def cancel(self) -> None:
        """Expire now, and everything that was made from this token."""
        self._cancelled = True
        condition = self._root()._condition
        if condition is not None:
            with condition:
                condition.notify_all()

    def wait(self, seconds: float) -> bool:
        """Sleep for `seconds`, or until it expires; True when it has expired: `while not token.wait(1): ...`."""
        until = self._now() + validation.parse_duration("token, seconds to wait", seconds)
        condition = self._root()._shared_condition()
        with condition:
            while not self.is_expired() and self._now() < until:
                self._clock.wait(condition, min(until, self._at) - self._now())
        return self.is_expired()

    def raise_if_expired(self) -> None:
        """Do nothing, or raise DeadlineExceeded."""
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
        """One condition for a whole family of tokens, made when somebody first waits: most never do."""
        with _CONDITION_LOCK:
            if self._condition is None:
                self._condition = Condition()
            return self._condition


_CONDITION_LOCK = Lock()
