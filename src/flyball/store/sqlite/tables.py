"""The five parts of a store in SQLite: reading is theirs, writing goes through the store."""

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
    """What the parts need of the store."""

    step_writer: StepWriter

    def keep(self, step: Step) -> None:
        """Keep all of a step, or nothing of it."""
        ...

    def read(self, build: Callable[..., T], statement: str, *values: object) -> list[T]:
        """What is made of each row of one statement."""
        ...

    def write(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Do this in a commit."""
        ...

    def wall(self) -> float:
        """The time of day, of which leases know."""
        ...


class SqliteTranscript:
    """What was said, in SQLite."""

    def __init__(self, database: StatementRunner) -> None:
        self._database = database

    def append(self, guard: Guard, messages: Sequence[Message]) -> None:
        """Add messages to the end of the guard's session."""
        self._database.keep(Step(guard=guard, messages=messages))

    def read(self, session: str, after: int = 0) -> list[Message]:
        """The messages behind the first `after` ones."""
        wanted = """
            SELECT message.id & 4294967295, messages, data
            FROM session_now JOIN message ON message.id >= (key << 32) + ? AND message.id < key + 1 << 32
            WHERE session_now.id = ? ORDER BY message.id
        """
        found = self._database.read(_to_positioned_message, wanted, after, session)
        if found and [place for place, _, _ in found] != list(range(after, found[0][1])):
            raise errors.missing_messages(self._database.step_writer.where, session)
        return [message for _, _, message in found]

    def sessions(self, session: str | None = None, limit: int = 100) -> list[Session]:
        """All sessions, or this one; the newest first."""
        wanted = """
            SELECT id, title, created_at, touched_at, messages FROM session_now WHERE ?1 IS NULL OR id = ?1
            ORDER BY touched_at DESC, id DESC LIMIT ?2
        """
        return self._database.read(Session, wanted, session, limit)

    def title(self, session: str, title: str) -> None:
        """Name a session."""
        database, now = self._database, self._database.wall()
        database.write(lambda connection: set_title(connection, session, replace_surrogates(title), now))

    def delete(self, session: str) -> bool:
        """Forget a session with its state and all of its runs."""
        database, now = self._database, self._database.wall()
        return database.write(lambda connection: database.step_writer.delete_session(connection, session, now))


class SqliteJournal:
    """Effects and answers, in SQLite."""

    def __init__(self, database: StatementRunner) -> None:
        self._database = database

    def write(self, run_id: str, rows: Sequence[Row], guard: Guard | None = None) -> None:
        """Add rows."""
        self._database.keep(Step(run_id=run_id, guard=guard, rows=rows))

    def read(self, run_id: str, after: int = 0) -> list[Row]:
        """The rows behind the first `after` ones."""
        wanted = """
            SELECT n, kind, data, fingerprint, take
            FROM run JOIN trace ON trace.id >= key << 32 AND trace.id < key + 1 << 32
            WHERE run.id = ? AND kind <> 'events' ORDER BY trace.id LIMIT -1 OFFSET ?
        """
        return self._database.read(_to_row, wanted, run_id, after)


class SqliteLease:
    """Leases, in SQLite."""

    def __init__(self, database: StatementRunner) -> None:
        self._database = database

    def acquire(self, session: str, owner: str, seconds: float) -> Guard | Holder:
        """Take the lease if it is free or has expired; else who has it."""
        wall = self._database.wall  # read inside: there may be a wait before the file can be written

        def act(connection: sqlite3.Connection) -> Guard | Holder:
            now = wall()
            return acquire(connection, session, owner, now, now + seconds)

        return self._database.write(act)

    def renew(self, guard: Guard, seconds: float) -> bool:
        """Have it for so many seconds from now."""
        wall = self._database.wall
        return self._database.write(lambda connection: renew(connection, guard, wall() + seconds))

    def release(self, guard: Guard) -> bool:
        """Give it back."""
        return self._database.write(lambda connection: release(connection, guard))

    def holder(self, session: str) -> Holder | None:
        """Who has it, if anybody."""
        wanted = "SELECT session, owner, fence, since, expires FROM lease WHERE session = ? AND expires > ?"
        found = self._database.read(Holder, wanted, session, self._database.wall())
        return found[0] if found else None


class SqliteState:
    """What tools have set, in SQLite."""

    def __init__(self, database: StatementRunner) -> None:
        self._database = database

    def get(self, session: str) -> dict[str, Any]:
        """All of it."""
        wanted = "SELECT data FROM session JOIN state ON state.session = key WHERE id = ?"
        found = self._database.read(STATE_CODEC.loads, wanted, session)
        return found[0] if found else {}

    def put(self, guard: Guard, state: Mapping[str, Any]) -> None:
        """Set all of it anew."""
        self._database.keep(Step(guard=guard, state=state))


_EVENTS = """
    SELECT data FROM run JOIN trace ON trace.id < key + 1 << 32 AND trace.id > ifnull((
        SELECT id FROM trace WHERE id >= key << 32 AND id < key + 1 << 32 AND kind = 'events' AND n <= ?2
        ORDER BY id DESC LIMIT 1
    ), (key << 32) - 1)
    WHERE run.id = ?1 AND kind = 'events' ORDER BY trace.id
"""
"""Looks back from the newest: whoever follows a run asks for the last few, again and again."""
_RUN = "id, parent, session, agent, task, metadata, started_at, touched_at, ended_at, stop"


class SqliteRuns:
    """The runs, in SQLite."""

    def __init__(self, database: StatementRunner) -> None:
        self._database = database

    def start(self, run_id: str, start: Start, guard: Guard | None = None) -> None:
        """Enter a run."""
        self._database.keep(Step(run_id=run_id, guard=guard, start=start))

    def finish(self, run_id: str, finish: RunFinish, guard: Guard | None = None) -> None:
        """Write down what it came to."""
        self._database.keep(Step(run_id=run_id, guard=guard, finish=finish))

    def list(self, query: Query | None = None) -> list[Entry]:
        """Those that are wanted, the newest first."""
        conditions, values = _build_conditions(query or Query())
        wanted = f"SELECT {_RUN}, NULL FROM run_now WHERE {conditions} ORDER BY started_at DESC, id DESC LIMIT ?"
        return self._database.read(_to_entry, wanted, *values)

    def get(self, run_id: str) -> Entry | None:
        """One of them, with its record."""
        wanted = f"SELECT {_RUN}, data FROM run_now LEFT JOIN record ON run = key WHERE id = ?"
        found = self._database.read(_to_entry, wanted, run_id)
        return found[0] if found else None

    def events(self, run_id: str, after: int = -1) -> list[dict[str, Any]]:
        """Its events behind a number."""
        found: list[list[dict[str, Any]]] = self._database.read(to_value, _EVENTS, run_id, after)
        return [event for events in found for event in events if event["seq"] > after]


def _build_conditions(query: Query) -> tuple[str, list[object]]:
    """The conditions of a query, and their values with its limit behind them."""
    parts: list[tuple[str, object]] = [
        ("session = ?", query.session),
        ("agent = ?", query.agent),
        ("parent = ?", query.parent),
        ("stop = ?", query.stop),
        ("(stop IS NOT NULL) = ?", query.finished),
        ("started_at < ?", query.before),
    ]
    given = [(condition, value) for condition, value in parts if value is not None]
    conditions = [condition for condition, _ in given]
    if query.parent is None and not query.children:
        conditions.append("parent IS NULL")
    return " AND ".join(conditions) or "1", [*(value for _, value in given), query.limit]


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
