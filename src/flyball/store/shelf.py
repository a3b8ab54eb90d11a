"""The tables of a store in memory, under one lock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from ..budget.clock import Clock
from . import errors
from .encoded_step import Pack, rise
from .records import Entry, Finish, Guard, Holder, Pruned, Query, Row, Start
from .text import to_value

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
    finish: Finish | None = None
    record: str | None = None
    rows: list[Row] = field(default_factory=list[Row])
    answered: tuple[int, int] | None = None
    """The take and the effect of the last answer."""
    events: dict[int, Any] = field(default_factory=dict[int, Any])

    def fits(self, query: Query) -> bool:
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

    def entry(self, run_id: str, *, whole: bool) -> Entry:
        """What others see of it; with its record if it is to be whole."""
        start, finish = replace(self.start, metadata=to_value(self.metadata)), self.finish
        if finish is not None:
            finish = replace(finish, record=to_value(self.record) if whole and self.record is not None else None)
        return Entry(run_id, start, finish, self.updated_at)


class Shelf:
    """What the parts of a store share: the tables, under one lock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sessions: dict[str, SessionTable] = {}
        self.runs: dict[str, RunTable] = {}
        self.leases: dict[str, Holder] = {}
        self.fence = 0
        self._lock = Lock()
        self._closed = False

    def opened(self) -> Lock:
        """The lock, of a store that is not closed."""
        if self._closed:
            raise errors.closed(WHERE)
        return self._lock

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True
            self.sessions, self.runs, self.leases = {}, {}, {}

    def check(self, pack: Pack) -> None:
        """Refuse a step before anything of it is written."""
        if pack.guard and not self.holds(pack.guard):
            newest = self.leases.get(pack.guard.session)
            raise errors.stale(WHERE, pack.guard, newest.fence if newest else None)
        if pack.run_id is None:
            return
        run = self.runs.get(pack.run_id)
        if run is None and pack.start is None:
            raise errors.unknown(WHERE, pack.run_id)
        if run is not None and pack.start is not None:
            raise errors.known(WHERE, pack.run_id)
        if not rise(run.answered if run else None, pack.answers):
            raise errors.twice(WHERE, pack.run_id)

    def put(self, pack: Pack) -> None:
        """Write a step that was checked."""
        now = self.clock.wall()
        if pack.run_id is not None:
            self._put_run(pack.run_id, pack, now)
        if pack.guard is not None and (pack.lines or pack.state is not None):
            session = self.session(pack.guard.session, now)
            session.lines += pack.lines
            session.state = session.state if pack.state is None else pack.state
        if pack.guard is not None and pack.release:
            del self.leases[pack.guard.session]

    def _put_run(self, run_id: str, pack: Pack, now: float) -> None:
        if pack.start is not None:
            above = self.runs.get(pack.start.parent or "")
            self.runs[run_id] = RunTable(pack.start, pack.metadata, above.root if above else run_id, now)
            if pack.start.session is not None:
                self.session(pack.start.session, now)
        run = self.runs[run_id]
        run.updated_at = now
        run.rows += pack.rows
        run.answered = pack.answers[-1] if pack.answers else run.answered
        last = next(reversed(run.events), -1)
        run.events.update({event["seq"]: event for event in to_value(pack.events or "[]") if event["seq"] > last})
        if pack.again:
            run.finish = run.record = None
        if pack.finish is not None:
            run.finish, run.record = pack.finish, pack.record

    def session(self, name: str, now: float) -> SessionTable:
        """A session that is written to now."""
        session = self.sessions.setdefault(name, SessionTable(now, now))
        session.updated_at = now
        return session

    def holds(self, guard: Guard) -> bool:
        """Whether nobody has taken the lease since; it may have expired."""
        holder = self.leases.get(guard.session)
        return holder is not None and holder.fence == guard.fence

    def holder(self, session: str) -> Holder | None:
        """Who has a lease that has not expired."""
        holder = self.leases.get(session)
        return holder if holder and holder.expires > self.clock.wall() else None

    def delete(self, session: str) -> bool:
        """Forget a session and its runs; whether there was anything."""
        found = self.sessions.pop(session, None) is not None
        roots = {run.root for run in self.runs.values() if run.start.session == session}
        self.forget(roots)
        self.leases.pop(session, None)
        return found or bool(roots)

    def forget(self, roots: set[str]) -> int:
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
        runs = self.forget({run.root for run in self.runs.values()} - live)
        used = {run.start.session for run in self.runs.values()}
        old = [
            name
            for name, session in self.sessions.items()
            if session.updated_at < before and name not in used and not self.holder(name)
        ]
        for name in old:
            del self.sessions[name]
        return Pruned(runs, len(old))
