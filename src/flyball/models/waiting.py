"""Waiting for a reply: one time limit that moves as tokens come."""

from __future__ import annotations

from math import inf

import anyio

from .patience import Patience

_END_S = 1.0
"""How long a server that has said everything may take to end its stream; then its connection is not used again."""


class Waiting:
    """The time that is left for one reply."""

    __slots__ = ("_between", "_complaint", "_first", "_until", "_whole", "scope")

    def __init__(self, patience: Patience) -> None:
        now = anyio.current_time()
        self._whole, self._first, self._between = patience.whole, patience.first, patience.between
        self._until = now + (inf if patience.whole is None else patience.whole)
        self.scope = anyio.CancelScope()
        self._complaint = ""
        self._expect(now, patience.first, f"said nothing for {patience.first} s")

    def heard(self) -> None:
        """A token came; the next must come in time too."""
        self._expect(anyio.current_time(), self._between, f"fell silent for {self._between} s in the middle of a reply")

    def finish(self) -> None:
        """Everything was said; only the end of the stream is to come."""
        self.scope.deadline = min(self.scope.deadline, anyio.current_time() + _END_S)

    def complaint(self) -> str:
        """What it was that took too long."""
        return self._complaint

    def _expect(self, now: float, seconds: float | None, complaint: str) -> None:
        at = now + (inf if seconds is None else seconds)
        self.scope.deadline = min(at, self._until)
        self._complaint = complaint if at <= self._until else f"needs more than {self._whole} s for a reply"
