"""The runner: whoever brings one run to its end, here or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from threading import RLock
from typing import Any, Protocol

from ..loop.effects import Cancel, Extend, LeaseLost, Signal, Steer, StoreFailed
from ..recorder import Recorder
from ..result import Result


class SignalQueue:
    """Takes letters from any thread until the run is past the point where they could still count.

    The driver holds `lock` from the moment it empties the box until the loop has heard the letters and decided; so
    whoever is told that a letter was taken knows that the run hears it.
    """

    __slots__ = ("_on_cancel", "ended", "in_grace_turn", "is_cancelling", "lock", "pending")

    def __init__(self) -> None:
        self.lock = RLock()
        self.ended = False
        self.in_grace_turn = False
        """In the grace turn: nothing can be steered or extended any more."""
        self.is_cancelling = False
        """Whether somebody wants what is under way to be cut."""
        self.pending: list[Signal] = []
        self._on_cancel: Callable[[], object] | None = None

    def send(self, signal: Signal) -> bool:
        """Leave a letter; False where it comes too late."""
        urgent = isinstance(signal, Cancel | LeaseLost | StoreFailed)
        with self.lock:
            if self.ended or (self.in_grace_turn and isinstance(signal, Steer | Extend)):
                return False
            self.pending.append(signal)
            if urgent:
                self.is_cancelling = True
                if self._on_cancel is not None:
                    self._on_cancel()
            return True

    def on_cancel(self, callback: Callable[[], object] | None) -> None:
        """What to call when somebody wants what is under way to be cut; it may be called from any thread."""
        with self.lock:
            self._on_cancel = callback

    def drain(self) -> Sequence[Signal]:
        """All letters since the last time; `lock` is held."""
        letters, self.pending = self.pending, []
        return letters


class Runner(Protocol):
    """What a family and a handle need of it. A Driver is one; a remote agent has another."""

    @property
    def agent(self) -> str:
        """Whose run it is."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Who records the run."""
        ...

    @property
    def signals(self) -> SignalQueue:
        """Where letters for the run are left."""
        ...

    @property
    def children(self) -> Mapping[str, Runner]:
        """Those of its children that go on now, by the ids of their runs."""
        ...

    @property
    def result(self) -> Result | None:
        """What it came to, as soon as that is known; also after a cancel."""
        ...

    @property
    def idle_s(self) -> float:
        """For how long nothing has come of it."""
        ...

    def drive(self) -> Coroutine[Any, Any, Result]:
        """Bring it to its end."""
        ...

    def stall(self, idle_s: float) -> None:
        """Cut what is under way, as nothing comes of it."""
        ...
