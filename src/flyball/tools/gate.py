"""The gate of one call: its end is decided once, by whoever comes first."""

from __future__ import annotations

from threading import Lock

from ..errors import CallClosed
from ..outcome import Outcome


class Gate:
    """One compare-and-set: of all outcomes that a call might have, the first stands; the others came too late."""

    __slots__ = ("_lock", "outcome")

    def __init__(self, threads: bool = True) -> None:
        """`threads` is whether several may want to close it."""
        self.outcome: Outcome | None = None
        """What the call came to, or None while it is open; only `close` sets it."""
        self._lock = Lock() if threads else None

    def close(self, outcome: Outcome) -> bool:
        """End the call so; False if it has ended already, and then nothing changes."""
        if self._lock is not None:
            with self._lock:
                return self._closed(outcome)
        return self._closed(outcome)

    def _closed(self, outcome: Outcome) -> bool:
        if self.outcome is not None:
            return False
        self.outcome = outcome
        return True

    def commit(self) -> None:
        """Do nothing while the call is open, else raise CallClosed: for a tool that is about to write outside."""
        if self.outcome is not None:
            raise CallClosed(self.outcome.status.value)
