"""A store in memory: for tests, and for sessions that need not outlive their process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ..budget.clock import SYSTEM, Clock
from ..message import Message
from . import errors
from .closing import Closing
from .encoded_step import CODE, Pack
from .records import Entry, Finish, Guard, Holder, Pruned, Query, Row, Session, Start, Step
from .shelf import WHERE, Shelf
from .text import clean, to_message


class MemoryStore(Closing):
    """Keeps everything in this process; safe between threads. `clock` is where leases get their time from."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self.shelf = Shelf(clock)
        self.transcript = MemoryTranscript(self)
        self.journal = MemoryJournal(self)
        self.lease = MemoryLease(self.shelf)
        self.state = MemoryState(self)
        self.runs = MemoryRuns(self)

    def keep(self, step: Step) -> None:
        """Keep all of a step, or nothing of it."""
        pack = Pack.of(step)
        with self.shelf.opened():
            self.shelf.check(pack)
            self.shelf.put(pack)

    def prune(self, before: float) -> Pruned:
        """Throw away runs and sessions untouched since then, but for those that are held."""
        with self.shelf.opened():
            return self.shelf.prune(before)

    def close(self) -> None:
        """Forget everything."""
        self.shelf.close()

    def __repr__(self) -> str:
        return "<MemoryStore>"


class MemoryTranscript:
    """What was said, in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._shelf = store.shelf

    def append(self, guard: Guard, messages: Sequence[Message]) -> None:
        """Add messages to the end of the guard's session."""
        self._store.keep(Step(guard=guard, messages=messages))

    def read(self, session: str, after: int = 0) -> list[Message]:
        """The messages behind the first `after` ones."""
        with self._shelf.opened():
            found = self._shelf.sessions.get(session)
            lines = found.lines[after:] if found else []
        return [to_message(line) for line in lines]

    def sessions(self, session: str | None = None, limit: int = 100) -> list[Session]:
        """All sessions, or this one; the newest first."""
        with self._shelf.opened():
            rows = [
                Session(name, row.title, row.created_at, row.updated_at, len(row.lines))
                for name, row in self._shelf.sessions.items()
                if session in (None, name)
            ]
        return sorted(rows, key=lambda row: row.updated_at, reverse=True)[:limit]

    def title(self, session: str, title: str) -> None:
        """Name a session."""
        with self._shelf.opened():
            self._shelf.session(session, self._shelf.clock.wall()).title = clean(title)

    def delete(self, session: str) -> bool:
        """Forget a session with its state and all of its runs."""
        with self._shelf.opened():
            if holder := self._shelf.holder(session):
                raise errors.busy(WHERE, holder)
            return self._shelf.delete(session)


class MemoryJournal:
    """Effects and answers, in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def write(self, run_id: str, rows: Sequence[Row], guard: Guard | None = None) -> None:
        """Add rows."""
        self._store.keep(Step(run_id=run_id, guard=guard, rows=rows))

    def read(self, run_id: str, after: int = 0) -> list[Row]:
        """The rows behind the first `after` ones."""
        shelf = self._store.shelf
        with shelf.opened():
            return shelf.runs[run_id].rows[after:] if run_id in shelf.runs else []


class MemoryLease:
    """Leases, in memory."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def acquire(self, session: str, owner: str, seconds: float) -> Guard | Holder:
        """Take the lease if it is free or has expired; else who has it."""
        with self._shelf.opened():
            if holder := self._shelf.holder(session):
                return holder
            self._shelf.fence += 1
            now = self._shelf.clock.wall()
            self._shelf.leases[session] = Holder(session, owner, self._shelf.fence, now, now + seconds)
            return Guard(session, self._shelf.fence)

    def renew(self, guard: Guard, seconds: float) -> bool:
        """Have it for so many seconds from now."""
        with self._shelf.opened():
            if held := self._shelf.holds(guard):
                leases, expires = self._shelf.leases, self._shelf.clock.wall() + seconds
                leases[guard.session] = replace(leases[guard.session], expires=expires)
            return held

    def release(self, guard: Guard) -> bool:
        """Give it back."""
        with self._shelf.opened():
            if held := self._shelf.holds(guard):
                del self._shelf.leases[guard.session]
            return held

    def holder(self, session: str) -> Holder | None:
        """Who has it, if anybody."""
        with self._shelf.opened():
            return self._shelf.holder(session)


class MemoryState:
    """What tools have set, in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def get(self, session: str) -> dict[str, Any]:
        """All of it."""
        with self._store.shelf.opened():
            found = self._store.shelf.sessions.get(session)
            text = found.state if found else None
        return {} if text is None else CODE.loads(text)

    def put(self, guard: Guard, state: Mapping[str, Any]) -> None:
        """Set all of it anew."""
        self._store.keep(Step(guard=guard, state=state))


class MemoryRuns:
    """The runs, in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._shelf = store.shelf

    def start(self, run_id: str, start: Start, guard: Guard | None = None) -> None:
        """Enter a run."""
        self._store.keep(Step(run_id=run_id, guard=guard, start=start))

    def finish(self, run_id: str, finish: Finish, guard: Guard | None = None) -> None:
        """Write down what it came to."""
        self._store.keep(Step(run_id=run_id, guard=guard, finish=finish))

    def list(self, query: Query | None = None) -> list[Entry]:
        """Those that are wanted, the newest first."""
        query = query or Query()
        with self._shelf.opened():
            found = [run.entry(run_id, whole=False) for run_id, run in self._shelf.runs.items() if run.fits(query)]
        return sorted(found, key=lambda entry: (entry.start.at, entry.run_id), reverse=True)[: query.limit]

    def get(self, run_id: str) -> Entry | None:
        """One of them, with its record."""
        with self._shelf.opened():
            run = self._shelf.runs.get(run_id)
            return run.entry(run_id, whole=True) if run else None

    def events(self, run_id: str, after: int = -1) -> list[dict[str, Any]]:
        """Its events behind a number."""
        with self._shelf.opened():
            run = self._shelf.runs.get(run_id)
            found = [event for number, event in run.events.items() if number > after] if run else []
            return deepcopy(found)
