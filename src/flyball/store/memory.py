"""A store in memory: for tests, and for sessions that need not outlive their process."""

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


@dataclass(slots=True)
class SessionTable:
    """All of one session."""

    created_at: float
    updated_at: float
    title: str = ""
    lines: list[str] = field(default_factory=list[str])
    state: str | None = None


@dataclass(slots=True)
class RunTable:
    """All of one run."""

    start: Start
    metadata: str
    root: str
    """The run at the top of its tree."""
    updated_at: float
    finish: RunFinish | None = None
    record: str | None = None
    rows: list[Row] = field(default_factory=list[Row])
    last_answer: tuple[int, int] | None = None
    """The take and the effect of the last answer."""
    events: dict[int, Any] = field(default_factory=dict[int, Any])

    def matches(self, query: Query) -> bool:
        """Whether it is wanted."""
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
        """What others see of it; with its record if it is to be whole."""
        start, finish = replace(self.start, metadata=to_value(self.metadata)), self.finish
        if finish is not None:
            finish = replace(finish, record=to_value(self.record) if with_record and self.record is not None else None)
        return Entry(run_id, start, finish, self.updated_at)


class MemoryTables:
    """What the parts of a store share: the tables, under one lock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sessions: dict[str, SessionTable] = {}
        self.runs: dict[str, RunTable] = {}
        self.leases: dict[str, Holder] = {}
        self.fence = 0
        self._lock = Lock()
        self._closed = False

    def get_lock(self) -> Lock:
        """The lock, of a store that is not closed."""
        if self._closed:
            raise errors.store_closed(WHERE)
        return self._lock

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True
            self.sessions, self.runs, self.leases = {}, {}, {}

    def check(self, encoded: EncodedStep) -> None:
        """Refuse a step before anything of it is written."""
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
        """Write a step that was checked."""
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
            above = self.runs.get(encoded.start.parent or "")
            self.runs[run_id] = RunTable(encoded.start, encoded.metadata, above.root if above else run_id, now)
            if encoded.start.session is not None:
                self.touch_session(encoded.start.session, now)
        run = self.runs[run_id]
        run.updated_at = now
        run.rows += encoded.rows
        run.last_answer = encoded.answers[-1] if encoded.answers else run.last_answer
        last = next(reversed(run.events), -1)
        run.events.update({event["seq"]: event for event in to_value(encoded.events or "[]") if event["seq"] > last})
        if encoded.again:
            run.finish = run.record = None
        if encoded.finish is not None:
            run.finish, run.record = encoded.finish, encoded.record

    def touch_session(self, name: str, now: float) -> SessionTable:
        """A session that is written to now."""
        session = self.sessions.setdefault(name, SessionTable(now, now))
        session.updated_at = now
        return session

    def is_held(self, guard: Guard) -> bool:
        """Whether nobody has taken the lease since; it may have expired."""
        holder = self.leases.get(guard.session)
        return holder is not None and holder.fence == guard.fence

    def holder(self, session: str) -> Holder | None:
        """Who has a lease that has not expired."""
        holder = self.leases.get(session)
        return holder if holder and holder.expires > self.clock.wall() else None

    def delete_session(self, session: str) -> bool:
        """Forget a session and its runs; whether there was anything."""
        found = self.sessions.pop(session, None) is not None
        roots = {run.root for run in self.runs.values() if run.start.session == session}
        self.delete_trees(roots)
        self.leases.pop(session, None)
        return found or bool(roots)

    def delete_trees(self, roots: set[str]) -> int:
        """Forget whole trees of runs; how many they were."""
        gone = [run_id for run_id, run in self.runs.items() if run.root in roots]
        for run_id in gone:
            del self.runs[run_id]
        return len(gone)

    def prune(self, before: float) -> Pruned:
        """Forget what is old."""
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


class MemoryStore(Closing):
    """Keeps everything in this process; safe between threads. `clock` is where leases get their time from."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self.tables = MemoryTables(clock)
        self.transcript = MemoryTranscript(self)
        self.journal = MemoryJournal(self)
        self.lease = MemoryLease(self.tables)
        self.state = MemoryState(self)
        self.runs = MemoryRuns(self)

    def keep(self, step: Step) -> None:
        """Keep all of a step, or nothing of it."""
        pack = EncodedStep.of(step)
        with self.tables.get_lock():
            self.tables.check(pack)
            self.tables.write_step(pack)

    def prune(self, before: float) -> Pruned:
        """Throw away runs and sessions untouched since then, but for those that are held."""
        with self.tables.get_lock():
            return self.tables.prune(before)

    def close(self) -> None:
        """Forget everything."""
        self.tables.close()

    def __repr__(self) -> str:
        return "<MemoryStore>"


class MemoryTranscript:
    """What was said, in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._tables = store.tables

    def append(self, guard: Guard, messages: Sequence[Message]) -> None:
        """Add messages to the end of the guard's session."""
        self._store.keep(Step(guard=guard, messages=messages))

    def read(self, session: str, after: int = 0) -> list[Message]:
        """The messages behind the first `after` ones."""
        with self._tables.get_lock():
            found = self._tables.sessions.get(session)
            lines = found.lines[after:] if found else []
        return [to_message(line) for line in lines]

    def sessions(self, session: str | None = None, limit: int = 100) -> list[Session]:
        """All sessions, or this one; the newest first."""
        with self._tables.get_lock():
            rows = [
                Session(name, row.title, row.created_at, row.updated_at, len(row.lines))
                for name, row in self._tables.sessions.items()
                if session in (None, name)
            ]
        return sorted(rows, key=lambda row: row.updated_at, reverse=True)[:limit]

    def title(self, session: str, title: str) -> None:
        """Name a session."""
        with self._tables.get_lock():
            self._tables.touch_session(session, self._tables.clock.wall()).title = replace_surrogates(title)

    def delete(self, session: str) -> bool:
        """Forget a session with its state and all of its runs."""
        with self._tables.get_lock():
            if holder := self._tables.holder(session):
                raise errors.session_busy(WHERE, holder)
            return self._tables.delete_session(session)


class MemoryJournal:
    """Effects and answers, in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def write(self, run_id: str, rows: Sequence[Row], guard: Guard | None = None) -> None:
        """Add rows."""
        self._store.keep(Step(run_id=run_id, guard=guard, rows=rows))

    def read(self, run_id: str, after: int = 0) -> list[Row]:
        """The rows behind the first `after` ones."""
        shelf = self._store.tables
        with shelf.get_lock():
            return shelf.runs[run_id].rows[after:] if run_id in shelf.runs else []


class MemoryLease:
    """Leases, in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    def acquire(self, session: str, owner: str, seconds: float) -> Guard | Holder:
        """Take the lease if it is free or has expired; else who has it."""
        with self._tables.get_lock():
            if holder := self._tables.holder(session):
                return holder
            self._tables.fence += 1
            now = self._tables.clock.wall()
            self._tables.leases[session] = Holder(session, owner, self._tables.fence, now, now + seconds)
            return Guard(session, self._tables.fence)

    def renew(self, guard: Guard, seconds: float) -> bool:
        """Have it for so many seconds from now."""
        with self._tables.get_lock():
            if held := self._tables.is_held(guard):
                leases, expires = self._tables.leases, self._tables.clock.wall() + seconds
                leases[guard.session] = replace(leases[guard.session], expires=expires)
            return held

    def release(self, guard: Guard) -> bool:
        """Give it back."""
        with self._tables.get_lock():
            if held := self._tables.is_held(guard):
                del self._tables.leases[guard.session]
            return held

    def holder(self, session: str) -> Holder | None:
        """Who has it, if anybody."""
        with self._tables.get_lock():
            return self._tables.holder(session)


class MemoryState:
    """What tools have set, in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def get(self, session: str) -> dict[str, Any]:
        """All of it."""
        with self._store.tables.get_lock():
            found = self._store.tables.sessions.get(session)
            text = found.state if found else None
        return {} if text is None else STATE_CODEC.loads(text)

    def put(self, guard: Guard, state: Mapping[str, Any]) -> None:
        """Set all of it anew."""
        self._store.keep(Step(guard=guard, state=state))


class MemoryRuns:
    """The runs, in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._tables = store.tables

    def start(self, run_id: str, start: Start, guard: Guard | None = None) -> None:
        """Enter a run."""
        self._store.keep(Step(run_id=run_id, guard=guard, start=start))

    def finish(self, run_id: str, finish: RunFinish, guard: Guard | None = None) -> None:
        """Write down what it came to."""
        self._store.keep(Step(run_id=run_id, guard=guard, finish=finish))

    def list(self, query: Query | None = None) -> list[Entry]:
        """Those that are wanted, the newest first."""
        query = query or Query()
        with self._tables.get_lock():
            found = [
                run.to_entry(run_id, with_record=False)
                for run_id, run in self._tables.runs.items()
                if run.matches(query)
            ]
        return sorted(found, key=lambda entry: (entry.start.at, entry.run_id), reverse=True)[: query.limit]

    def get(self, run_id: str) -> Entry | None:
        """One of them, with its record."""
        with self._tables.get_lock():
            run = self._tables.runs.get(run_id)
            return run.to_entry(run_id, with_record=True) if run else None

    def events(self, run_id: str, after: int = -1) -> list[dict[str, Any]]:
        """Its events behind a number."""
        with self._tables.get_lock():
            run = self._tables.runs.get(run_id)
            found = [event for number, event in run.events.items() if number > after] if run else []
            return deepcopy(found)
