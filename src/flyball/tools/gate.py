"""The gate of one call: its end is decided once, by whoever comes first."""

from __future__ import annotations

from enum import StrEnum
from threading import Lock

from ..errors import CallClosed


class End(StrEnum):
    """What can end a call. Exactly one of them does."""

    FINISHED = "finished"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


class Gate:
    """One compare-and-set: of all that try to end a call, the first does, and the others learn that they came late."""

    __slots__ = ("_end", "_lock")

    def __init__(self) -> None:
        self._end: End | None = None
        self._lock = Lock()

    @property
    def end(self) -> End | None:
        """How the call ended, or None while it is open."""
        return self._end

    def close(self, end: End) -> bool:
        """End the call so; False if it has ended already, and then nothing changes."""
        with self._lock:
            if self._end is not None:
                return False
            self._end = end
            return True

    def commit(self) -> None:
        """Do nothing while the call is open, else raise CallClosed: for a tool that is about to write outside."""
        if self._end is not None:
            raise CallClosed(self._end.value)
