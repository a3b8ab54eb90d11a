"""The recorder: numbers a run's events, keeps the newest, and hands each to the sinks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, Self, TypeVarTuple, cast, overload

from .event import Delta, Event, Header, ToolReported, own_fields

Sink = Callable[[Event], None]
"""Is called inline for each event, one at a time, on the thread of the run. It must not block (see `buffered`). What it
raises is counted in the result and changes nothing else."""

Fields = TypeVarTuple("Fields")
"""What an event of some kind has beside its header, in order."""


class Teller(Protocol):
    """Who is told what happens; a governed run is one. Any thread may tell."""

    def tell(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        """Record an event."""
        ...


_ROW_HEADER_LENGTH = 3
"""What stands before an event's own fields while nobody has looked at it: its kind, time, turn. All of them in one
list: a tuple for each event would be most of what the collector has to look at."""

_TRANSIENT = frozenset[Any]({Delta, ToolReported})
"""Only for those who watch now: neither kept nor numbered, as a run that is played again has none."""


class Recorder:
    """Numbers events, keeps at most `events_kept` of the newest, and calls the sinks.

    Where there is no sink, an event is made when somebody looks at it; most are never looked at.
    """

    __slots__ = (
        "_drop_after_seq",
        "_max_events",
        "_rows",
        "at",
        "dropped",
        "ended",
        "header",
        "other_event_count",
        "seq",
        "sink_errors",
        "sinks",
        "turn",
    )

    def __init__(self, header: Header, sinks: Iterable[Sink] = (), events_kept: int = 10_000) -> None:
        self.header = header
        self.sinks = tuple(sinks)
        self.at = 0.0
        """Seconds since the run began. Time passes only while something is waited for, so it is set then, not read."""
        self.turn = 0
        self.seq = 0
        self.other_event_count = 0
        """How many of them the loop has not told: it would not tell them again."""
        self.dropped = 0
        """How many of the oldest events are no longer kept."""
        self.sink_errors = 0
        self.ended = False
        """Whether the end is decided: what a sink or hook wants of the run from now on comes too late."""
        self._max_events = events_kept
        self._drop_after_seq = events_kept
        """How many there may be until some are dropped."""
        self._rows: list[Any] = []
        """Events, and the parts of those that are not made yet."""

    @property
    def events(self) -> list[Event]:
        """Those that are kept."""
        return list(self.recorded_events)

    @property
    def recorded_events(self) -> RecordedEvents:
        """The same, of a run that is over."""
        return RecordedEvents(self._rows, self.header, self.dropped)

    @property
    def loop_event_count(self) -> int:
        """How many events the loop has told."""
        return self.seq - self.other_event_count

    def emit(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        """Record the next event, and hand it on."""
        if kind in _TRANSIENT:
            self._deliver(kind(self.seq, self.at, self.turn, self.header, *fields))
            return
        rows = self._rows
        self.seq = seq = self.seq + 1
        if self.sinks:
            event = kind(seq - 1, self.at, self.turn, self.header, *fields)
            rows.append(event)
            self._deliver(event)
        else:
            rows += (kind, self.at, self.turn)
            rows += fields
        if seq > self._drop_after_seq:
            self._drop_oldest()

    def _deliver(self, event: Event) -> None:
        for sink in self.sinks:
            try:
                sink(event)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException:
                self.sink_errors += 1

    def _drop_oldest(self) -> None:
        """A tenth at a time, so that a long run does not move the whole list for each event."""
        kept = self.seq - self.dropped
        surplus = min(kept, max(1, kept - self._max_events, self._max_events // 10))
        place = 0
        for _ in range(surplus):
            place = _next_index(self._rows, place)
        self.dropped += surplus
        self._drop_after_seq = self._max_events + self.dropped
        del self._rows[:place]


def _next_index(rows: list[Any], index: int) -> int:
    """Where the next event stands."""
    kind = rows[index]
    return index + 1 if isinstance(kind, Event) else index + _ROW_HEADER_LENGTH + _count_fields(kind)


@cache
def _count_fields(kind: type[Event]) -> int:
    return len(list(own_fields(kind)))


class RecordedEvents(Sequence[Event]):
    """The events of a run, made when somebody looks."""

    __slots__ = ("_events", "_first_seq", "_header", "_rows")

    def __init__(self, rows: list[Any], header: Header, first: int) -> None:
        self._rows = rows
        self._header = header
        self._first_seq = first
        """The number of the first of them."""
        self._events: list[Event] | None = None

    def _build_events(self) -> list[Event]:
        rows = self._rows  # before the look at the events, as another thread may be making them
        if self._events is None:
            place, events = 0, list[Event]()
            while place < len(rows):
                behind = _next_index(rows, place)
                events.append(
                    rows[place] if isinstance(rows[place], Event) else self._build_event(rows[place:behind], events)
                )
                place = behind
            self._events, self._rows = events, []
        return self._events

    def _build_event(self, row: list[Any], earlier: list[Event]) -> Event:
        kind, at, turn, *fields = row
        return kind(self._first_seq + len(earlier), at, turn, self._header, *fields)

    def __len__(self) -> int:
        return len(self._build_events())

    @overload
    def __getitem__(self, index: int) -> Event: ...

    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...

    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        return self._build_events()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(cast("Sequence[object]", other))

    def __repr__(self) -> str:
        return repr(list(self))


def logged(logger: logging.Logger, level: int = logging.INFO) -> Sink:
    """A sink that writes each event to a log; a handler finds the whole of it as `record.flyball`.

    That has the run's ids and the metadata its caller gave, so that a log can be searched for a job.
    """

    def log(event: Event) -> None:
        if logger.isEnabledFor(level):
            logger.log(level, "%s (run %s)", event.kind, event.header.run_id, extra={"flyball": event.to_dict()})

    return log


class buffered:  # noqa: N801  (it reads as the verb it stands for: sinks=[buffered(slow)])
    """A sink in front of a slow one: events wait in a queue, and a thread of its own hands them on.

    A full queue drops the event and counts it in `dropped`: the run never waits. `close()`, or leaving the `with`
    block, hands on what is still waiting.
    """

    def __init__(self, sink: Sink, size: int = 10_000) -> None:
        self.sink = sink
        self.dropped = 0
        self.errors = 0
        self._closed = False
        self._size = size
        self._queue: SimpleQueue[Event | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="flyball-buffered-sink", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Take an event, or drop it where there is no room or all is closed."""
        if self._closed or self._queue.qsize() >= self._size:
            self.dropped += 1
        else:
            self._queue.put(event)

    def close(self, seconds: float = 5.0) -> bool:
        """Hand on what waits, for at most `seconds`; True if all of it was."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self.sink(event)
            except Exception:
                self.errors += 1
