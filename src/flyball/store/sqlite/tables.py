"""The five parts of a SQLite store. They read by themselves and write through the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ...message import Message
from .. import errors
from ..codec import replace_surrogates, to_message, to_value
from ..encoded_step import STATE_CODEC
from ..records import Entry, Guard, Holder, Kind, Query, Row, RunFinish, Session, Start, Step
from .statements import StepWriter, acquire, release, renew, set_title

T = TypeVar("T")


class StatementRunner(Protocol):
    """Methods of the store that its parts use."""

    step_writer: StepWriter

    def keep(self, step: Step) -> None:
        """Write all of a step, or nothing."""
        ...

    def read(self, build: Callable[..., T], statement: str, *values: object) -> list[T]:
        """Run one statement and build a value from each of its rows."""
        ...

    def write(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run an action in a transaction. Return its value."""
        ...

    def wall(self) -> float:
        """Return the current time in seconds since the epoch."""
        ...


class SqliteTranscript:
    """Transcripts in SQLite."""

    def __init__(self, database: StatementRunner) -> None:
        self._database = database

    def append(self, guard: Guard, messages: Sequence[Message]) -> None:
        """Append messages to the transcript of the guard's session."""
        self._database.keep(Step(guard=guard, messages=messages))

    def read(self, session: str, after: int = 0) -> list[Message]:
        """Return the messages after the first `after` ones."""
        statement = """
            SELECT message.id & 4294967295, messages, data
            FROM session_now JOIN message ON message.id >= (key << 32) + ? AND message.id < key + 1 << 32
            WHERE session_now.id = ? ORDER BY message.id
        """
        rows = self._database.read(_to_positioned_message, statement, after, session)
        if rows and [position for position, _, _ in rows] != list(range(after, rows[0][1])):
            raise errors.missing_messages(self._database.step_writer.where, session)
        return [message for _, _, message in rows]

    def sessions(self, session: str | None = None, limit: int = 100) -> list[Session]:
        """Return all sessions or the named one, most recently updated first."""
        statement = """
            SELECT id, title, created_at, touched_at, messages FROM session_now WHERE ?1 IS NULL OR id = ?1
            ORDER BY touched_at DESC, id DESC LIMIT ?2
        """
        return self._database.read(Session, statement, session, limit)

    def title(self, session: str, title: str) -> None:
        """Set the title of a session."""
        database, now = self._database, self._database.wall()
        database.write(lambda connection: set_title(connection, session, replace_surrogates(title), now))

    def delete(self, session: str) -> bool:
        """Delete a session with its state and runs."""
        database, now = self._database, self._database.wall()
        return database.write(lambda connection: database.step_writer.delete_session(connection, session, now))


class SqliteJournal:
    """Journals in SQLite."""

    def __init__(self, database: StatementRunner) -> None:
        self._database = database

    def write(self, run_id: str, rows: Sequence[Row], guard: Guard | None = None) -> None:
        """Append rows to the journal of a run."""
        self._database.keep(Step(run_id=run_id, guard=guard, rows=rows))

    def read(self, run_id: str, after: int = 0) -> list[Row]:
        """Return the rows after the first `after` ones."""
        statement = """
            SELECT n, kind, data, fingerprint, take
            FROM run JOIN trace ON trace.id >= key << 32 AND trace.id < key + 1 << 32
            WHERE run.id = ? AND kind <> 'events' ORDER BY trace.id LIMIT -1 OFFSET ?
        """
        return self._database.read(_to_row, statement, run_id, after)


class SqliteLease:
    """Leases in SQLite."""

    def __init__(self, database: StatementRunner) -> None:
        self._database = database

    def acquire(self, session: str, owner: str, seconds: float) -> Guard | Holder:
        """Take the lease if it is free or expired.

        Otherwise return its holder.
        """
        wall = self._database.wall  # called inside the transaction, which may have to wait for other writers

        def take_lease(connection: sqlite3.Connection) -> Guard | Holder:
            now = wall()
            return acquire(connection, session, owner, now, now + seconds)

        return self._database.write(take_lease)

    def renew(self, guard: Guard, seconds: float) -> bool:
        """Extend the lease to this many seconds from now."""
        wall = self._database.wall
        return self._database.write(lambda connection: renew(connection, guard, wall() + seconds))

    def release(self, guard: Guard) -> bool:
        """Release the lease. Return whether it was still held."""
        return self._database.write(lambda connection: release(connection, guard))

    def holder(self, session: str) -> Holder | None:
        """Return the holder of an unexpired lease, or None."""
        statement = "SELECT session, owner, fence, since, expires FROM lease WHERE session = ? AND expires > ?"
        holders = self._database.read(Holder, statement, session, self._database.wall())
        return holders[0] if holders else None


class SqliteState:
    """Session states in SQLite."""

    def __init__(self, database: StatementRunner) -> None:
        self._database = database

    def get(self, session: str) -> dict[str, Any]:
        """Return the state of a session. Empty if none was set."""
        statement = "SELECT data FROM session JOIN state ON state.session = key WHERE id = ?"
        states = self._database.read(STATE_CODEC.loads, statement, session)
        return states[0] if states else {}

    def put(self, guard: Guard, state: Mapping[str, Any]) -> None:
        """Replace the state of the guard's session."""
        self._database.keep(Step(guard=guard, state=state))


_EVENTS = """
    SELECT data FROM run JOIN trace ON trace.id < key + 1 << 32 AND trace.id > ifnull((
        SELECT id FROM trace WHERE id >= key << 32 AND id < key + 1 << 32 AND kind = 'events' AND n <= ?2
        ORDER BY id DESC LIMIT 1
    ), (key << 32) - 1)
    WHERE run.id = ?1 AND kind = 'events' ORDER BY trace.id
"""
"""Searches backwards from the newest row: a caller that follows a run asks for the last few events repeatedly."""
_RUN = "id, parent, session, agent, task, metadata, started_at, touched_at, ended_at, stop"


class SqliteRuns:
    """Runs in SQLite."""

    def __init__(self, database: StatementRunner) -> None:
        self._database = database

    def start(self, run_id: str, start: Start, guard: Guard | None = None) -> None:
        """Record the start of a run."""
        self._database.keep(Step(run_id=run_id, guard=guard, start=start))

    def finish(self, run_id: str, finish: RunFinish, guard: Guard | None = None) -> None:
        """Record how a run ended."""
        self._database.keep(Step(run_id=run_id, guard=guard, finish=finish))

    def events(self, run_id: str, after: int = -1) -> list[dict[str, Any]]:
        """Return the run's events whose `seq` is above `after`, in order."""
        batches: list[list[dict[str, Any]]] = self._database.read(to_value, _EVENTS, run_id, after)
        return [event for events in batches for event in events if event["seq"] > after]

    def list(self, query: Query | None = None) -> list[Entry]:
        """Return the runs that match a query, newest first."""
        conditions, values = _build_conditions(query or Query())
        statement = f"SELECT {_RUN}, NULL FROM run_now WHERE {conditions} ORDER BY started_at DESC, id DESC LIMIT ?"
        return self._database.read(_to_entry, statement, *values)

    def get(self, run_id: str) -> Entry | None:
        """Return one run with its record. None if it is unknown."""
        statement = f"SELECT {_RUN}, data FROM run_now LEFT JOIN record ON run = key WHERE id = ?"
        entries = self._database.read(_to_entry, statement, run_id)
        return entries[0] if entries else None


def _build_conditions(query: Query) -> tuple[str, list[object]]:
    """Return the conditions of a query and their values, the limit last."""
    parts: list[tuple[str, object]] = [
        ("session = ?", query.session),
        ("agent = ?", query.agent),
        ("parent = ?", query.parent),
        ("stop = ?", query.stop),
        ("(stop IS NOT NULL) = ?", query.finished),
        ("started_at < ?", query.before),
    ]
    used = [(condition, value) for condition, value in parts if value is not None]
    conditions = [condition for condition, _ in used]
    if query.parent is None and not query.children:
        conditions.append("parent IS NULL")
    return " AND ".join(conditions) or "1", [*(value for _, value in used), query.limit]


def _to_positioned_message(position: int, messages: int, line: str) -> tuple[int, int, Message]:
    return position, messages, to_message(line)


def _to_row(n: int, kind: str, data: str, fingerprint: int, take: int) -> Row:
    return Row(n, Kind(kind), data, fingerprint, take)


def _to_entry(*row: Any) -> Entry:
    run_id, parent, session, agent, task, metadata, started, updated, ended, stop, record = row
    start = Start(at=started, agent=agent, session=session, parent=parent, task=task, metadata=to_value(metadata))
    if stop is None:
        return Entry(run_id, start, None, updated)
    return Entry(run_id, start, RunFinish(at=ended, stop=stop, record=to_value(record) if record else None), updated)
