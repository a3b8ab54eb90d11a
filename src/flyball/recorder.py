"""Recorder of a run's events, and sinks that log or buffer them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, Self, TypeVarTuple, cast, overload

from .event import Event, Header, own_fields

Sink = Callable[[Event], None]
"""Function that receives events. The recorder calls it for each event, one at a time, on the thread of the run. It must
not block (see `buffered`). Its exceptions are counted in the result and change nothing else."""

Fields = TypeVarTuple("Fields")
"""Types of the fields that an event class adds to its header, in order."""


class Teller(Protocol):
    """Receiver of events from any thread, such as a governed run."""

    def tell(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        """Record an event."""
        ...


EventRow = tuple[Callable[..., Event], float, int, Sequence[Any]]
"""Event that is not built: its class, time, turn and own fields."""
_ROW_HEADER_LENGTH = 3
"""Entries before the own fields of an event that is not built yet: its class, time and turn. All rows share one flat
list, because a tuple per event would be most of what the garbage collector traverses."""


class Recorder:
    """Numbers events, keeps at most `events_kept` of the newest, and calls the sinks.

    Without sinks, an event object is built, and gets its number, only when it is read. Most never are.
    """

    __slots__ = (
        "_counted_rows",
        "_kept_count",
        "_max_events",
        "_rows",
        "_rows_until_drop",
        "_skipped",
        "at",
        "dropped",
        "ended",
        "header",
        "other_event_count",
        "sink_errors",
        "sinks",
        "streamed",
        "turn",
        "unstored",
    )

    def __init__(self, header: Header, sinks: Iterable[Sink] = (), events_kept: int = 10_000) -> None:
        self.header = header
        self.sinks = tuple(sinks)
        self.at = 0.0
        """Seconds since the run started. Set after each wait instead of read from a clock, because only waits take
        time."""
        self.turn = 0
        self.other_event_count = 0
        """Number of events that did not come from the loop, so that a replay does not repeat them."""
        self.dropped = 0
        """Number of oldest events that are no longer kept. Those of the current turn may still be dropped."""
        self.sink_errors = 0
        self.ended = False
        """True once the end of the run is decided. Requests of sinks and hooks are then too late."""
        self.streamed = 0
        """Number of events that only the sinks have received."""
        self.unstored: list[EventRow] | None = None
        """Events that the journal of the run has yet to store: the newest ones. None if there is no journal."""
        self._max_events = events_kept
        self._rows_until_drop = events_kept
        """Length of `_rows` up to which there cannot be too many events: each has at least one entry."""
        self._rows: list[Any] = []
        """Built events, and the fields of events that are not built yet."""
        self._kept_count = self._counted_rows = 0
        """Events counted in `_rows` so far, and the number of its entries that they take."""
        self._skipped = 0
        """Numbers that no event here has."""

    @property
    def seq(self) -> int:
        """Number of the next event."""
        return self.dropped + self._skipped + self._count_kept()

    def skip_to(self, seq: int) -> None:
        """Give the next event this number. The numbers before it belong to events of another process."""
        skipped = seq - self.seq
        self._skipped += skipped
        self.other_event_count += skipped

    def _count_kept(self) -> int:
        rows, index = self._rows, self._counted_rows
        while index < len(rows):
            index = _next_index(rows, index)
            self._kept_count += 1
        self._counted_rows = index
        return self._kept_count

    @property
    def is_watched(self) -> bool:
        """True if events are delivered or stored while the run is in progress."""
        return bool(self.sinks) or self.unstored is not None

    @property
    def events(self) -> list[Event]:
        """Return a list of the events that are kept."""
        return list(self.recorded_events)

    @property
    def recorded_events(self) -> RecordedEvents:
        """Return a lazy sequence of the events of a run that has ended."""
        self.drop_oldest()
        return RecordedEvents(self._rows, self.header, self.dropped)

    def read_since(self, seq: int) -> list[Event]:
        """Return the kept events from a number on. Call it on the thread of the run."""
        rows, first = self._rows, max(seq, self.dropped)
        index, left = len(rows), self.seq - first
        if left >= self._count_kept():  # more than there are, if numbers were skipped
            return self.recorded_events[:]
        while left > 0:  # from the end, because few events are new
            index -= 1
            left -= isinstance(rows[index], Event | type)
        return _build_events(rows[index:], self.header, first)

    @property
    def loop_event_count(self) -> int:
        """Return the number of events that came from the loop."""
        return self.seq - self.other_event_count

    def emit(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        """Record an event and pass it to the sinks."""
        if self.unstored is not None:
            self.unstored.append((kind, self.at, self.turn, fields))
        if self.sinks:
            event = kind(self.seq, self.at, self.turn, self.header, *fields)
            self._rows.append(event)
            self._deliver(event)
        else:
            self._rows += (kind, self.at, self.turn) + fields  # noqa: RUF005  (with * it takes twice as long)

    def start_turn(self, turn: int) -> None:
        """Note the turn of the following events, and drop the oldest if there are too many."""
        self.turn = turn
        if len(self._rows) > self._rows_until_drop:
            self.drop_oldest()

    def take_unstored(self) -> tuple[int, Sequence[EventRow]]:
        """Return the events since the last call, for the journal, and the number of the first."""
        rows = self.unstored
        if not rows:
            return 0, ()
        self.unstored = []
        return self.seq - len(rows), rows

    def stream(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        """Pass an event to the sinks only. It is not kept, and counted apart, because a replayed run has none."""
        self.streamed += 1
        self._deliver(kind(-self.streamed, self.at, self.turn, self.header, *fields))

    def show(self, content: object, sensitive: Mapping[str, frozenset[str]]) -> None:
        """Pass a request, reply or outcome to the sinks that have `receive_content`.

        It is no event, so that no other sink gets to see it. `sensitive` has the parameters to hide, by tool.
        """
        for sink in self.sinks:
            receive = getattr(sink, "receive_content", None)
            if receive is not None:
                try:
                    receive(self.header, content, sensitive)
                except Exception:
                    self.sink_errors += 1

    def build_headers(self) -> dict[str, str]:
        """Return the headers that sinks add to requests to other services, such as those of a trace."""
        headers: dict[str, str] = {}
        for sink in self.sinks:
            build = getattr(sink, "build_headers", None)
            if build is not None:
                try:
                    headers |= build(self.header)
                except Exception:
                    self.sink_errors += 1
        return headers

    def _deliver(self, event: Event) -> None:
        for sink in self.sinks:
            try:
                sink(event)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException:
                self.sink_errors += 1

    def drop_oldest(self) -> None:
        """Drop the oldest events if there are too many.

        A tenth at a time, so that a long run does not shift the whole list in each turn.
        """
        if len(self._rows) <= self._rows_until_drop:
            return
        surplus = self._count_kept() - self._max_events
        if surplus > 0:
            surplus, index = min(self._kept_count, max(surplus, self._max_events // 10)), 0
            for _ in range(surplus):
                index = _next_index(self._rows, index)
            del self._rows[:index]
            self._counted_rows -= index
            self._kept_count -= surplus
            self.dropped += surplus
        self._rows_until_drop = len(self._rows) + self._max_events - self._kept_count


def _next_index(rows: list[Any], index: int) -> int:
    kind = rows[index]
    return index + 1 if isinstance(kind, Event) else index + _ROW_HEADER_LENGTH + _count_fields(kind)


def _build_events(rows: list[Any], header: Header, first: int) -> list[Event]:
    """Return the events of flat rows, numbered from `first`."""
    index, events = 0, list[Event]()
    while index < len(rows):
        kind = rows[index]
        if isinstance(kind, Event):
            events.append(kind)
            index += 1
        else:
            fields_at = index + _ROW_HEADER_LENGTH
            index = fields_at + _count_fields(kind)
            at, turn = rows[fields_at - 2 : fields_at]
            events.append(kind(first + len(events), at, turn, header, *rows[fields_at:index]))
    return events


@cache
def _count_fields(kind: type[Event]) -> int:
    return len(list(own_fields(kind)))


class RecordedEvents(Sequence[Event]):
    """Events of a run, built when first read."""

    __slots__ = ("_events", "_first_seq", "_header", "_rows")

    def __init__(self, rows: list[Any], header: Header, first: int) -> None:
        self._rows = rows
        self._header = header
        self._first_seq = first
        """Sequence number of the first event."""
        self._events: list[Event] | None = None

    def _build(self) -> list[Event]:
        rows = self._rows  # read before _events, because another thread may be building them
        if self._events is None:
            self._events, self._rows = _build_events(rows, self._header, self._first_seq), []
        return self._events

    def __len__(self) -> int:
        return len(self._build())

    def __iter__(self) -> Iterator[Event]:
        return iter(self._build())

    @overload
    def __getitem__(self, index: int) -> Event: ...

    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...

    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        return self._build()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(cast("Sequence[object]", other))

    def __repr__(self) -> str:
        return repr(list(self))


def logged(logger: logging.Logger, level: int = logging.INFO) -> Sink:
    """Return a sink that writes each event to a logger.

    The log record has the whole event as `record.flyball`. It includes the run's ids and the caller's metadata, so that
    a log can be searched for a job.
    """

    def log(event: Event) -> None:
        if logger.isEnabledFor(level):
            logger.log(level, "%s (run %s)", event.kind, event.header.run_id, extra={"flyball": event.to_dict()})

    return log


class buffered:  # noqa: N801  (lower case, because it is used like a function: sinks=[buffered(slow)])
    """Sink that delivers events to a slow sink on its own thread.

    The run never waits: when the queue is full, the event is dropped and counted in `dropped`. `close()`, or leaving
    the `with` block, delivers the queued events.
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
        """Queue an event, or drop it if the queue is full or closed."""
        if self._closed or self._queue.qsize() >= self._size:
            self.dropped += 1
        else:
            self._queue.put(event)

    def close(self, seconds: float = 5.0) -> bool:
        """Deliver the queued events; return False if `seconds` were not enough."""
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
