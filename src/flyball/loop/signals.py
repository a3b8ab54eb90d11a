"""Signals that stop or change a running loop, and what they mean for its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..progress import Halt
from ..result import Stop
from ..unit import Unit
from .effects import Cancel, LeaseLost, Signal, Stalled, Steer, StoreFailed, TimeUp
from .ending import End

_NONE: frozenset[str] = frozenset()


class StopSignals:
    """Requests to end the run, from outside and from hooks, and texts steered into it."""

    cancelled_by: str | None = None
    lease_lost = time_up = False
    halt: Halt | None = None
    failure: dict[str, Any] | None = None
    """Error of a hook, or of the store."""
    idle_s: float | None = None
    """Idle seconds reported by the stall detector, or None."""
    extended = _NONE
    """Limits raised since the end was last decided."""

    def __init__(self, has_stop: bool = False) -> None:
        self.has_stop = has_stop
        """True once anything happened that may end the run: a signal, an order of a hook, or the end of its time."""
        self.steered: Sequence[str] = ()
        """Texts of the user that are not in the history yet."""

    def receive(self, signal: Signal) -> None:
        """Note a signal. The first cancel counts."""
        match signal:
            case Steer(text):
                self.steered = [*self.steered, text]
                return
            case Cancel(by):
                self.cancelled_by = self.cancelled_by or by
            case TimeUp():
                self.time_up = True
            case LeaseLost():
                self.lease_lost = True
            case Stalled(seconds):
                self.idle_s = seconds
            case StoreFailed(error):
                self.failure = dict(error)
            case _:
                return
        self.has_stop = True

    def request_halt(self, order: Halt) -> None:
        """Note that a hook or a person halts the run. The first halt counts."""
        self.halt = self.halt or order
        self.has_stop = True

    def fail(self, error: Mapping[str, Any]) -> None:
        """Note an error that ends the run. The first one counts."""
        self.failure = self.failure or dict(error)
        self.has_stop = True

    def take_steered(self) -> Sequence[str]:
        """Return the steered texts, and forget them."""
        steered, self.steered = self.steered, ()
        return steered

    def note_extended(self, name: str) -> None:
        """Note that a limit was raised."""
        self.extended |= {name}

    def forget_extended(self) -> None:
        """Forget raised limits: an end is decided now."""
        if self.extended:
            self.extended = _NONE

    @property
    def is_cancelled(self) -> bool:
        """True if the run was cancelled or lost its lease."""
        return self.lease_lost or self.cancelled_by is not None

    def find_cancellation(self) -> End | None:
        """Return the end of a run that was cancelled or lost its lease."""
        if self.lease_lost:
            return End(Stop.CONTENDED)
        return None if self.cancelled_by is None else End(Stop.CANCELLED, by=self.cancelled_by)

    def find_end(self) -> End | None:
        """Return the strongest end that was requested. Time is not considered."""
        if not self.has_stop:
            return None
        cancelled = self.find_cancellation()
        if cancelled is not None:
            return cancelled
        if self.failure is not None:
            return End(Stop.FAILED, error=self.failure)
        if self.halt is not None:
            return End(Stop.HALTED, by=self.halt.by, warning=self.halt.message or None, grace=self.halt.grace)
        if self.idle_s is not None:
            return End(Stop.STALLED, warning=f"No progress for {Unit.SECONDS.show(self.idle_s)}.")
        return None
