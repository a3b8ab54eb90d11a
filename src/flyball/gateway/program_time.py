"""Time of a governed program: for its work, for reports, and for its own end."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..budget.run_budget import TurnBudget

_SLOWEST_FACTOR = 1.5
"""Part of the time reserve: this many times the slowest reply."""
_PROGRAM_S = 2.0
"""Seconds for the program to end after its report."""


class ProgramTime:
    """Seconds that are left, with a reserve that grows with the slowest reply."""

    def __init__(self, envelope: TurnBudget, now: Callable[[], float], is_waiting: Callable[[], bool] | None) -> None:
        """Reserve time for the end. No time passes while the program is waiting, if that can be checked."""
        self._envelope = envelope
        self._now = now
        self._is_waiting = is_waiting
        self._slowest_s = 0.0
        self._share_s = envelope.reserve_s
        self._program_s = min(_PROGRAM_S, 0.1 * envelope.seconds) if math.isfinite(envelope.hard_at) else 0.0
        self._reserve()

    @property
    def work_s(self) -> float:
        """Seconds left for work."""
        return self._envelope.remaining_s()

    @property
    def report_s(self) -> float:
        """Seconds left for reports: the rest is for the program to end."""
        return self.program_s - self._program_s

    @property
    def program_s(self) -> float:
        """Seconds left for the program."""
        if self._is_waiting is not None and self._is_waiting():
            return math.inf
        return self._envelope.hard_at - self._now()

    def note_reply(self, started_at: float) -> None:
        """Record that a reply to a request is complete."""
        self._slowest_s = max(self._slowest_s, self._now() - started_at)
        self._reserve()

    def _reserve(self) -> None:
        """Reserve the time of the report: a share of the limit, or more if replies are slow; and the program's."""
        envelope = self._envelope
        if math.isfinite(envelope.hard_at):
            needed = max(self._share_s, _SLOWEST_FACTOR * self._slowest_s) + self._program_s
            envelope.reserve_seconds(min(needed, 0.75 * envelope.seconds))
