"""Hearing: what a service tells of its runs while they go on, passed on to those who watch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..event import Event, Header, RunEnded, RunStarted
from ..record import event_of

_MOST_RUNS = 1_000
"""No run here has more children in all."""


@dataclass(slots=True)
class _Run:
    """A run at the service that has begun: its header, which all its events share, and its newest event."""

    header: Header
    newest: Event


class Hearing:
    """The runs of which one request tells: the one that was asked for, below ours, and those below that.

    Whoever tells is not trusted. A run is one of those from its beginning to its end; what is told of any other, and
    so of a run here, is passed over. A run whose end was not heard is ended when nothing more can be.
    """

    def __init__(self, own_id: str, top_id: str, tell: Callable[[Event], None]) -> None:
        self._own_id = own_id
        self._top_id = top_id
        self._tell = tell
        self._open: dict[str, _Run] = {}
        self._known: set[str] = set()

    def hear(self, told: Mapping[str, Any]) -> None:
        """Take an event from there."""
        try:
            event = event_of(told)
        except (KeyError, TypeError, ValueError, ArithmeticError):  # of a newer Flyball, or of no Flyball
            return
        run_id = event.header.run_id
        if isinstance(event, RunStarted) and self._is_new(event.header):
            below = event.header.parent_run_id if self._known else self._own_id
            self._open[run_id] = _Run(replace(event.header, parent_run_id=below), event)
            self._known.add(run_id)
        elif isinstance(event, RunStarted) or run_id not in self._open:
            return
        run = self._open[run_id]
        event.header, run.newest = run.header, event  # by which sinks know that it is the same run
        if isinstance(event, RunEnded):
            del self._open[run_id]
        self._tell(event)

    def close(self, stop: str) -> None:
        """End what is open, the newest first, in the way in which the request has ended: every pair closes."""
        for run in reversed(self._open.values()):
            last = run.newest
            self._tell(RunEnded(last.seq + 1, last.at, last.turn, run.header, stop, None, (), last.turn, 0, {}))
        self._open.clear()

    def _is_new(self, header: Header) -> bool:
        """Whether a run may begin: the first that is told, or one below a run that goes on, with a name of its own."""
        name = f"{header.run_id}."
        is_ours = name.startswith(f"{self._top_id}.") or f"{self._own_id}.".startswith(name)
        if is_ours or header.run_id in self._known or len(self._known) >= _MOST_RUNS:
            return False
        return not self._known or header.parent_run_id in self._open
