"""Runners and signals: what handles and parents need of a run, local or remote."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from threading import RLock
from typing import Any, Protocol

from ..loop.effects import Cancel, Extend, LeaseLost, PauseChildren, Signal, Steer, StoreFailed
from ..recorder import Recorder
from ..result import Result


class SignalQueue:
    """Accepts signals from any thread, as long as they can still affect the run.

    The driver holds `lock` from the moment it drains the queue until the loop has processed the signals. So a signal
    that was accepted certainly reaches the loop.
    """

    __slots__ = (
        "ended",
        "in_grace_turn",
        "is_cancelling",
        "lock",
        "on_cancel",
        "paused_children",
        "pending",
        "resume_waiters",
    )

    def __init__(self) -> None:
        self.lock = RLock()
        self.ended = False
        self.in_grace_turn = False
        """True in the grace turn, in which the run can no longer be steered or extended."""
        self.is_cancelling = False
        """True once a signal has asked to interrupt the effect in progress."""
        self.pending: Sequence[Signal] = ()
        self.paused_children: PauseChildren | None = None
        """Signal that no more child runs may start. None if they may."""
        self.resume_waiters: list[Callable[[], object]] | None = None
        """Callbacks of child runs that wait to start. They are called on any thread."""
        self.on_cancel: Callable[[], object] | None = None
        """Callback that interrupts the effect in progress. It is called on any thread."""

    def send(self, signal: Signal) -> bool:
        """Add a signal. Return False if it is too late."""
        interrupts = isinstance(signal, Cancel | LeaseLost | StoreFailed)
        with self.lock:
            if self.ended or (self.in_grace_turn and isinstance(signal, Steer | Extend)):
                return False
            self.pending = (*self.pending, signal)
            if type(signal) is PauseChildren:
                self.note_children(signal)
            if interrupts:
                self.is_cancelling = True
                if self.on_cancel is not None:
                    self.on_cancel()
            return True

    def find_pause(self) -> PauseChildren | None:
        """Return the signal that no more child runs may start, or None."""
        return self.paused_children

    def note_children(self, signal: PauseChildren) -> None:
        """Note whether child runs may start, and wake those that wait for it."""
        with self.lock:
            self.paused_children = signal if signal.paused else None
            waiters, self.resume_waiters = self.resume_waiters or (), None
        for wake in waiters:
            wake()

    def drain(self) -> Sequence[Signal]:
        """Return and remove all signals. The caller holds `lock`."""
        signals, self.pending = self.pending, ()
        return signals


class Runner(Protocol):
    """Run in progress. `RunDriver` runs it here, a remote agent elsewhere."""

    @property
    def agent(self) -> str:
        """Name of the agent."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Recorder of the run."""
        ...

    @property
    def signals(self) -> SignalQueue:
        """Signals to the run."""
        ...

    @property
    def children(self) -> Mapping[str, Runner]:
        """Child runs in progress, by run id."""
        ...

    @property
    def result(self) -> Result | None:
        """Result of the run, also after a cancel. None until it has ended."""
        ...

    @property
    def idle_s(self) -> float:
        """Seconds without progress."""
        ...

    def drive(self) -> Coroutine[Any, Any, Result]:
        """Run to the end and return the result."""
        ...

    def stall(self, idle_s: float) -> None:
        """Interrupt an effect that makes no progress."""
        ...
