"""A store in memory, for tests and for sessions that end with their process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from ..budget.deadline import SYSTEM, Clock
from ..message import Message
from . import errors
from .codec import replace_surrogates, to_message, to_value
from .encoded_step import STATE_CODEC, EncodedStep, is_increasing
from .records import Entry, Guard, Holder, Pruned, Query, Row, RunFinish, Session, Start, Step
from .store import Closing

WHERE = "memory:"


class MemoryStore(Closing):
    """A thread-safe store in the memory of this process.

    `clock` gives leases their time.
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self.tables = MemoryTables(clock)
        self.transcript = MemoryTranscript(self)
        self.journal = MemoryJournal(self)
        self.lease = MemoryLease(self.tables)
        self.state = MemoryState(self)
        self.runs = MemoryRuns(self)

    def keep(self, step: Step) -> None:
        """Write all of a step, or nothing."""
        encoded = EncodedStep.of(step)
        with self.tables.get_lock():
            self.tables.check(encoded)
            self.tables.write_step(encoded)

    def prune(self, before: float) -> Pruned:
        """Delete runs and sessions not updated since, unless a lease holds them."""
        with self.tables.get_lock():
            return self.tables.prune(before)

    def close(self) -> None:
        """Drop all data. Later calls raise StoreError."""
        self.tables.close()

    def __repr__(self) -> str:
        return "<MemoryStore>"


class MemoryTranscript:
    """Transcripts in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._tables = store.tables

    def append(self, guard: Guard, messages: Sequence[Message]) -> None:
        """Append messages to the transcript of the guard's session."""
        self._store.keep(Step(guard=guard, messages=messages))

    def read(self, session: str, after: int = 0) -> list[Message]:
        """Return the messages after the first `after` ones."""
        with self._tables.get_lock():
            table = self._tables.sessions.get(session)
            lines = table.lines[after:] if table else []
        return [to_message(line) for line in lines]

    def sessions(self, session: str | None = None, limit: int = 100) -> list[Session]:
        """Return all sessions or the named one, most recently updated first."""
        with self._tables.get_lock():
            rows = [
                Session(name, row.title, row.created_at, row.updated_at, len(row.lines))
                for name, row in self._tables.sessions.items()
                if session in (None, name)
            ]
        return sorted(rows, key=lambda row: row.updated_at, reverse=True)[:limit]

    def title(self, session: str, title: str) -> None:
        """Set the title of a session."""
        with self._tables.get_lock():
            self._tables.touch_session(session, self._tables.clock.wall()).title = replace_surrogates(title)

    def delete(self, session: str) -> bool:
        """Delete a session with its state and runs."""
        with self._tables.get_lock():
            if holder := self._tables.holder(session):
                raise errors.session_busy(WHERE, holder)
            return self._tables.delete_session(session)


class MemoryJournal:
    """Journals in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def write(self, run_id: str, rows: Sequence[Row], guard: Guard | None = None) -> None:
        """Append rows to the journal of a run."""
        self._store.keep(Step(run_id=run_id, guard=guard, rows=rows))

    def read(self, run_id: str, after: int = 0) -> list[Row]:
        """Return the rows after the first `after` ones."""
        tables = self._store.tables
        with tables.get_lock():
            return tables.runs[run_id].rows[after:] if run_id in tables.runs else []


class MemoryLease:
    """Leases in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    def acquire(self, session: str, owner: str, seconds: float) -> Guard | Holder:
        """Take the lease if it is free or expired.

        Otherwise return its holder.
        """
        with self._tables.get_lock():
            if holder := self._tables.holder(session):
                return holder
            self._tables.fence += 1
            now = self._tables.clock.wall()
            self._tables.leases[session] = Holder(session, owner, self._tables.fence, now, now + seconds)
            return Guard(session, self._tables.fence)

    def renew(self, guard: Guard, seconds: float) -> bool:
        """Extend the lease to this many seconds from now."""
        with self._tables.get_lock():
            if held := self._tables.is_held(guard):
                leases, expires = self._tables.leases, self._tables.clock.wall() + seconds
                leases[guard.session] = replace(leases[guard.session], expires=expires)
            return held

    def release(self, guard: Guard) -> bool:
        """Release the lease. Return whether it was still held."""
        with self._tables.get_lock():
            if held := self._tables.is_held(guard):
                del self._tables.leases[guard.session]
            return held

    def holder(self, session: str) -> Holder | None:
        """Return the holder of an unexpired lease, or None."""
        with self._tables.get_lock():
            return self._tables.holder(session)


class MemoryState:
    """Session states in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def get(self, session: str) -> dict[str, Any]:
        """Return the state of a session. Empty if none was set."""
        with self._store.tables.get_lock():
            table = self._store.tables.sessions.get(session)
            text = table.state if table else None
        return {} if text is None else STATE_CODEC.loads(text)

    def put(self, guard: Guard, state: Mapping[str, Any]) -> None:
        """Replace the state of the guard's session."""
        self._store.keep(Step(guard=guard, state=state))


class MemoryRuns:
    """Runs in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._tables = store.tables

    def start(self, run_id: str, start: Start, guard: Guard | None = None) -> None:
        """Record the start of a run."""
        self._store.keep(Step(run_id=run_id, guard=guard, start=start))

    def finish(self, run_id: str, finish: RunFinish, guard: Guard | None = None) -> None:
        """Record how a run ended."""
        self._store.keep(Step(run_id=run_id, guard=guard, finish=finish))

    def events(self, run_id: str, after: int = -1) -> list[dict[str, Any]]:
        """Return the run's events whose `seq` is above `after`, in order."""
        with self._tables.get_lock():
            run = self._tables.runs.get(run_id)
            events = [event for seq, event in run.events.items() if seq > after] if run else []
            return deepcopy(events)

    def list(self, query: Query | None = None) -> list[Entry]:
        """Return the runs that match a query, newest first."""
        query = query or Query()
        with self._tables.get_lock():
            entries = [
                run.to_entry(run_id, with_record=False)
                for run_id, run in self._tables.runs.items()
                if run.matches(query)
            ]
        return sorted(entries, key=lambda entry: (entry.start.at, entry.run_id), reverse=True)[: query.limit]

    def get(self, run_id: str) -> Entry | None:
        """Return one run with its record. None if it is unknown."""
        with self._tables.get_lock():
            run = self._tables.runs.get(run_id)
            return run.to_entry(run_id, with_record=True) if run else None


class MemoryTables:
    """The tables that the parts of a memory store share, under one lock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sessions: dict[str, SessionTable] = {}
        self.runs: dict[str, RunTable] = {}
        self.leases: dict[str, Holder] = {}
        self.fence = 0
        self._lock = Lock()
        self._closed = False

    def get_lock(self) -> Lock:
        """Return the lock. Raises StoreError if the store is closed."""
        if self._closed:
            raise errors.store_closed(WHERE)
        return self._lock

    def close(self) -> None:
        """Drop all data and refuse further use."""
        with self._lock:
            self._closed = True
            self.sessions, self.runs, self.leases = {}, {}, {}

    def check(self, encoded: EncodedStep) -> None:
        """Raise an error for a step that must not be written."""
        if encoded.guard and not self.is_held(encoded.guard):
            newest = self.leases.get(encoded.guard.session)
            raise errors.stale_fence(WHERE, encoded.guard, newest.fence if newest else None)
        if encoded.run_id is None:
            return
        run = self.runs.get(encoded.run_id)
        if run is None and encoded.start is None:
            raise errors.unknown_run(WHERE, encoded.run_id)
        if run is not None and encoded.start is not None:
            raise errors.duplicate_run(WHERE, encoded.run_id)
        if not is_increasing(run.last_answer if run else None, encoded.answers):
            raise errors.duplicate_answer(WHERE, encoded.run_id)

    def write_step(self, encoded: EncodedStep) -> None:
        """Write a step that `check` has accepted."""
        now = self.clock.wall()
        if encoded.run_id is not None:
            self._write_run(encoded.run_id, encoded, now)
        if encoded.guard is not None and (encoded.lines or encoded.state is not None):
            session = self.touch_session(encoded.guard.session, now)
            session.lines += encoded.lines
            session.state = session.state if encoded.state is None else encoded.state
        if encoded.guard is not None and encoded.release:
            del self.leases[encoded.guard.session]

    def _write_run(self, run_id: str, encoded: EncodedStep, now: float) -> None:
        if encoded.start is not None:
            parent = self.runs.get(encoded.start.parent or "")
            self.runs[run_id] = RunTable(encoded.start, encoded.metadata, parent.root if parent else run_id, now)
            if encoded.start.session is not None:
                self.touch_session(encoded.start.session, now)
        run = self.runs[run_id]
        run.updated_at = now
        run.rows += encoded.rows
        run.last_answer = encoded.answers[-1] if encoded.answers else run.last_answer
        if encoded.drop_events_after is not None:
            run.events = {seq: event for seq, event in run.events.items() if seq <= encoded.drop_events_after}
        last_seq = next(reversed(run.events), -1)
        new_events = (event for event in to_value(encoded.events or "[]") if event["seq"] > last_seq)
        run.events.update({event["seq"]: event for event in new_events})
        if encoded.again:
            run.finish = run.record = None
        if encoded.finish is not None:
            run.finish, run.record = encoded.finish, encoded.record

    def touch_session(self, name: str, now: float) -> SessionTable:
        """Return a session, created if missing, with its update time set."""
        session = self.sessions.setdefault(name, SessionTable(now, now))
        session.updated_at = now
        return session

    def is_held(self, guard: Guard) -> bool:
        """Check whether the guard's lease is still the newest.

        It may have expired.
        """
        holder = self.leases.get(guard.session)
        return holder is not None and holder.fence == guard.fence

    def holder(self, session: str) -> Holder | None:
        """Return the holder of an unexpired lease, or None."""
        holder = self.leases.get(session)
        return holder if holder and holder.expires > self.clock.wall() else None

    def delete_session(self, session: str) -> bool:
        """Delete a session and its runs. Return whether there was anything."""
        existed = self.sessions.pop(session, None) is not None
        roots = {run.root for run in self.runs.values() if run.start.session == session}
        self.delete_trees(roots)
        self.leases.pop(session, None)
        return existed or bool(roots)

    def delete_trees(self, roots: set[str]) -> int:
        """Delete whole trees of runs. Return the number of runs."""
        run_ids = [run_id for run_id, run in self.runs.items() if run.root in roots]
        for run_id in run_ids:
            del self.runs[run_id]
        return len(run_ids)

    def prune(self, before: float) -> Pruned:
        """Delete runs and sessions that were last updated before a time."""
        live = {
            run.root
            for run_id, run in self.runs.items()
            if run.updated_at >= before or any(self.holder(key or "") for key in (run_id, run.start.session))
        }
        runs = self.delete_trees({run.root for run in self.runs.values()} - live)
        used = {run.start.session for run in self.runs.values()}
        old = [
            name
            for name, session in self.sessions.items()
            if session.updated_at < before and name not in used and not self.holder(name)
        ]
        for name in old:
            del self.sessions[name]
        return Pruned(runs, len(old))


@dataclass(slots=True)
class SessionTable:
    """Stored data of one session."""

    created_at: float
    updated_at: float
    title: str = ""
    lines: list[str] = field(default_factory=list[str])
    """Messages as JSON."""
    state: str | None = None
    """State as JSON. None means that none was set."""


@dataclass(slots=True)
class RunTable:
    """Stored data of one run."""

    start: Start
    metadata: str
    root: str
    """Id of the run at the top of its tree."""
    updated_at: float
    finish: RunFinish | None = None
    record: str | None = None
    rows: list[Row] = field(default_factory=list[Row])
    last_answer: tuple[int, int] | None = None
    """`(take, n)` of the last answer. None before the first."""
    events: dict[int, Any] = field(default_factory=dict[int, Any])
    """Events by their `seq`."""

    def matches(self, query: Query) -> bool:
        """Check whether the run satisfies a query."""
        start, stop = self.start, self.finish.stop if self.finish else None
        return (
            query.session in (None, start.session)
            and query.agent in (None, start.agent)
            and (query.children or query.parent == start.parent)
            and query.parent in (None, start.parent)
            and query.stop in (None, stop)
            and query.finished in (None, stop is not None)
            and (query.before is None or start.at < query.before)
        )

    def to_entry(self, run_id: str, *, with_record: bool) -> Entry:
        """Return the public view of the run, with its record on request."""
        start, finish = replace(self.start, metadata=to_value(self.metadata)), self.finish
        if finish is not None:
            finish = replace(finish, record=to_value(self.record) if with_record and self.record is not None else None)
        return Entry(run_id, start, finish, self.updated_at)
