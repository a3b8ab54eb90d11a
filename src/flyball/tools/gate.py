"""The gate of one call: its end is decided once, by whoever comes first."""

from __future__ import annotations

from threading import Lock

from ..errors import CallClosed
from ..outcome import Outcome


class Gate:
    """One compare-and-set: of all outcomes that a call might have, the first stands; the others came too late."""

    __slots__ = ("_lock", "_outcome")

    def __init__(self) -> None:
        self._outcome: Outcome | None = None
        self._lock = Lock()

    @property
    def outcome(self) -> Outcome | None:
        """What the call came to, or None while it is open."""
        return self._outcome

    def close(self, outcome: Outcome) -> bool:
        """End the call so; False if it has ended already, and then nothing changes."""
        with self._lock:
            if self._outcome is not None:
                return False
            self._outcome = outcome
            return True

    def commit(self) -> None:
        """Do nothing while the call is open, else raise CallClosed: for a tool that is about to write outside."""
        if self._outcome is not None:
            raise CallClosed(self._outcome.status.value)
