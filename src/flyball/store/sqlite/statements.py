"""SQL statements of the SQLite store. The caller begins and commits the transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from .. import errors
from ..codec import to_text, to_value
from ..encoded_step import EncodedStep, filter_events_after, is_increasing
from ..records import Guard, Holder, Pruned

_MAX_POSITIONS = 10_000
"""Maximum number of runs whose positions are cached."""


class StepWriter:
    """Writer of steps into the tables of one file."""

    def __init__(self, where: str) -> None:
        self.where = where
        """File name, for error messages."""
        self._positions: dict[str, _RunPosition] = {}
        """Positions of runs by id. While the fence is unchanged, no other process can have written to the run."""
        self._sessions: dict[Guard, tuple[int, int]] = {}
        """Key of a session, and id of its next message, by the guard that wrote last."""

    def forget_positions(self) -> None:
        """Drop the cache after a rollback, which may have made it wrong."""
        self._positions.clear()
        self._sessions.clear()

    def write_step(self, connection: sqlite3.Connection, encoded: EncodedStep, now: float) -> None:
        """Write all of a step. The caller rolls back on an error."""
        guard = encoded.guard
        if guard is not None:
            self.check_guard(connection, guard)
        if encoded.run_id is not None:
            self._write_run(connection, encoded.run_id, encoded, now)
        if guard is not None and (encoded.lines or encoded.state is not None):
            self._write_session(connection, guard, encoded, now)
        if guard is not None and encoded.release:
            connection.execute("DELETE FROM lease WHERE session = ?", (guard.session,))

    def check_guard(self, connection: sqlite3.Connection, guard: Guard) -> None:
        """Raise StaleFence for a guard that is not the newest of its session."""
        newest = connection.execute("SELECT fence FROM lease WHERE session = ?", (guard.session,)).fetchone()
        if newest is None or newest[0] != guard.fence:
            raise errors.stale_fence(self.where, guard, newest[0] if newest else None)

    def _write_run(self, connection: sqlite3.Connection, run_id: str, encoded: EncodedStep, now: float) -> None:
        if encoded.start is not None:
            self._insert_run(connection, run_id, encoded, now)
        guard, position = encoded.guard, self._positions.get(run_id)
        if position is None or guard is None or position.fence != guard.fence:
            position = self._read_position(connection, run_id, -1 if guard is None else guard.fence)
        if encoded.drop_events_after is not None:
            _drop_events(connection, position, encoded.drop_events_after)
        if encoded.rows or encoded.events:
            self._write_trace(connection, run_id, encoded, position, now)
        if encoded.again or encoded.finish is not None:
            _write_finish(connection, position.key, encoded, now)
        if guard is None or encoded.finish is not None:
            self._positions.pop(run_id, None)
        else:
            if len(self._positions) >= _MAX_POSITIONS:  # most belong to runs that ended in another process
                self._positions.clear()
            self._positions[run_id] = position

    def _read_position(self, connection: sqlite3.Connection, run_id: str, fence: int) -> _RunPosition:
        run = connection.execute(_RUN, (run_id,)).fetchone()
        if run is None:
            raise errors.unknown_run(self.where, run_id)
        key, newest_id = run
        next_id = key << 32 if newest_id is None else newest_id + 1
        last_answer = connection.execute(_ANSWER, (next_id, next_id)).fetchone()
        last_event = connection.execute(_EVENT, (next_id, next_id)).fetchone()
        return _RunPosition(fence, key, next_id, last_answer, -1 if last_event is None else last_event[0])

    def _insert_run(self, connection: sqlite3.Connection, run_id: str, encoded: EncodedStep, now: float) -> None:
        start = encoded.start
        assert start is not None
        if connection.execute("SELECT 1 FROM run WHERE id = ?", (run_id,)).fetchone():
            raise errors.duplicate_run(self.where, run_id)
        parent = connection.execute("SELECT root FROM run WHERE id = ?", (start.parent,)).fetchone()
        values = (run_id, start.parent, start.session, start.agent, start.task, encoded.metadata, start.at, now)
        key = connection.execute(
            "INSERT INTO run VALUES (NULL, ?, 0, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", values
        ).lastrowid
        connection.execute("UPDATE run SET root = ? WHERE key = ?", (parent[0] if parent else key, key))
        if start.session is not None:
            touch(connection, start.session, now)

    def _write_trace(
        self, connection: sqlite3.Connection, run_id: str, encoded: EncodedStep, position: _RunPosition, now: float
    ) -> None:
        if encoded.answers:
            if not is_increasing(position.last_answer, encoded.answers):
                raise errors.duplicate_answer(self.where, run_id)
            position.last_answer = encoded.answers[-1]
        lines = [(row.kind._value_, row.n, row.take, row.fingerprint, row.data) for row in encoded.rows]
        if encoded.events and encoded.seqs[-1] > position.last_event:
            all_new = encoded.seqs[0] > position.last_event
            events = encoded.events if all_new else filter_events_after(encoded.events, position.last_event)
            lines.append(("events", encoded.seqs[-1], 0, 0, events))
            position.last_event = encoded.seqs[-1]
        rows = [(position.next_id + n, now, *line) for n, line in enumerate(lines)]
        position.next_id += len(lines)
        connection.executemany("INSERT INTO trace VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def _write_session(self, connection: sqlite3.Connection, guard: Guard, encoded: EncodedStep, now: float) -> None:
        known = self._sessions.pop(guard, None)
        key, next_id = _read_session(connection, guard.session) if known is None else known
        if key is None or encoded.state is not None:
            key = touch(connection, guard.session, now)
        next_id = key << 32 if next_id is None else next_id
        if encoded.lines:
            rows = [(next_id + n, now, line) for n, line in enumerate(encoded.lines)]
            connection.executemany("INSERT INTO message VALUES (?, ?, ?)", rows)
        if encoded.state is not None:
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, encoded.state))
        if not encoded.release:
            if len(self._sessions) >= _MAX_POSITIONS:
                self._sessions.clear()
            self._sessions[guard] = key, next_id + len(encoded.lines)

    def delete_session(self, connection: sqlite3.Connection, session: str, now: float) -> bool:
        """Delete a session and its runs. Return whether there was anything.

        Raises SessionBusy if an unexpired lease holds the session.
        """
        if holder := find_holder(connection, session, now):
            raise errors.session_busy(self.where, holder)
        runs = _delete_runs(connection, "SELECT root FROM run WHERE session = ?", session)
        sessions = _delete_sessions(connection, "SELECT key FROM session WHERE id = ?", session)
        connection.execute("DELETE FROM lease WHERE session = ?", (session,))
        return bool(runs or sessions)


@dataclass(slots=True)
class _RunPosition:
    """Cached position of a run in the file."""

    fence: int
    key: int
    next_id: int
    """Id of its next row in `trace`."""
    last_answer: tuple[int, int] | None
    """`(take, n)` of its last answer. None before the first."""
    last_event: int
    """`seq` of its last event. -1 before the first."""


_RUN = "SELECT key, (SELECT max(id) FROM trace WHERE id >= key << 32 AND id < key + 1 << 32) FROM run WHERE id = ?"
"""Key and newest row id of a run."""
_LAST = "FROM trace WHERE id < ? AND id >= ? >> 32 << 32 AND kind = '{}' ORDER BY id DESC LIMIT 1"
_ANSWER, _EVENT = f"SELECT take, n {_LAST.format('answer')}", f"SELECT n {_LAST.format('events')}"
"""Last answer and last event of a run, found by the id of its next row."""
_LATER_EVENTS = "SELECT id, data FROM trace WHERE id >= ? AND id < ? AND kind = 'events' AND n > ?"
_SESSION = """
    SELECT key, (SELECT max(id) FROM message WHERE id >= key << 32 AND id < key + 1 << 32) FROM session WHERE id = ?
"""
"""Key and newest message id of a session."""


def _drop_events(connection: sqlite3.Connection, position: _RunPosition, seq: int) -> None:
    """Delete the events of a run after `seq`. One row may also have earlier ones."""
    first_id = position.key << 32
    for row_id, data in connection.execute(_LATER_EVENTS, (first_id, position.next_id, seq)).fetchall():
        kept = [event for event in to_value(data) if event["seq"] <= seq]
        if kept:
            values = (to_text(kept), kept[-1]["seq"], row_id)
            connection.execute("UPDATE trace SET data = ?, n = ? WHERE id = ?", values)
        else:
            connection.execute("DELETE FROM trace WHERE id = ?", (row_id,))
    position.last_event = min(position.last_event, seq)


def _write_finish(connection: sqlite3.Connection, key: int, encoded: EncodedStep, now: float) -> None:
    finish = encoded.finish
    values = (now, finish.at, finish.stop, key) if finish else (now, None, None, key)
    connection.execute("UPDATE run SET updated_at = ?, ended_at = ?, stop = ? WHERE key = ?", values)
    connection.execute("DELETE FROM record WHERE run = ?", (key,))
    if encoded.record is not None:
        connection.execute("INSERT INTO record VALUES (?, ?)", (key, encoded.record))


def _read_session(connection: sqlite3.Connection, session: str) -> tuple[int | None, int | None]:
    """Return the key of a session and the id after its newest message. None if there is none."""
    key, newest_id = connection.execute(_SESSION, (session,)).fetchone() or (None, None)
    return key, None if newest_id is None else newest_id + 1


def touch(connection: sqlite3.Connection, session: str, now: float) -> int:
    """Set the update time of a session, created if missing.

    Return its key.
    """
    changed = connection.execute("UPDATE session SET updated_at = ? WHERE id = ?", (now, session))
    if not changed.rowcount:
        connection.execute("INSERT INTO session VALUES (NULL, ?, '', ?, ?)", (session, now, now))
    return connection.execute("SELECT key FROM session WHERE id = ?", (session,)).fetchone()[0]


def set_title(connection: sqlite3.Connection, session: str, title: str, now: float) -> None:
    """Set the title of a session."""
    connection.execute("UPDATE session SET title = ? WHERE key = ?", (title, touch(connection, session, now)))


def find_holder(connection: sqlite3.Connection, session: str, now: float) -> Holder | None:
    """Return the holder of an unexpired lease, or None."""
    statement = "SELECT session, owner, fence, since, expires FROM lease WHERE session = ? AND expires > ?"
    row = connection.execute(statement, (session, now)).fetchone()
    return Holder(*row) if row else None


def acquire(connection: sqlite3.Connection, session: str, owner: str, now: float, expires: float) -> Guard | Holder:
    """Take a free or expired lease. Otherwise return its holder."""
    if holder := find_holder(connection, session, now):
        return holder
    connection.execute("UPDATE fence SET newest = newest + 1")
    (fence,) = connection.execute("SELECT newest FROM fence").fetchone()
    connection.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?, ?)", (session, owner, fence, now, expires))
    return Guard(session, fence)


def renew(connection: sqlite3.Connection, guard: Guard, expires: float) -> bool:
    """Set the expiry of the guard's lease.

    Return False if it is no longer held.
    """
    statement = "UPDATE lease SET expires = ? WHERE session = ? AND fence = ?"
    return connection.execute(statement, (expires, guard.session, guard.fence)).rowcount == 1


def release(connection: sqlite3.Connection, guard: Guard) -> bool:
    """Release the guard's lease. Return False if it is no longer held."""
    deleted = connection.execute("DELETE FROM lease WHERE session = ? AND fence = ?", (guard.session, guard.fence))
    return deleted.rowcount == 1


def _delete_runs(connection: sqlite3.Connection, roots: str, *values: object) -> int:
    """Delete the trees whose roots a query selects.

    Return the number of runs.
    """
    keys = connection.execute(f"SELECT key FROM run WHERE root IN ({roots})", values).fetchall()
    for (key,) in keys:
        connection.execute("DELETE FROM trace WHERE id >= ? AND id < ?", (key << 32, (key + 1) << 32))
        connection.execute("DELETE FROM record WHERE run = ?", (key,))
        connection.execute("DELETE FROM run WHERE key = ?", (key,))
    return len(keys)


def _delete_sessions(connection: sqlite3.Connection, query: str, *values: object) -> int:
    """Delete the sessions whose keys a query selects. Return their number."""
    keys = connection.execute(query, values).fetchall()
    for (key,) in keys:
        connection.execute("DELETE FROM message WHERE id >= ? AND id < ?", (key << 32, (key + 1) << 32))
        connection.execute("DELETE FROM state WHERE session = ?", (key,))
        connection.execute("DELETE FROM session WHERE key = ?", (key,))
    return len(keys)


_UNTOUCHED = """
    SELECT root FROM run_now AS run GROUP BY root HAVING max(touched_at) < ? AND NOT max(
        EXISTS (SELECT 1 FROM lease WHERE lease.session IN (run.id, run.session) AND expires > ?)
    )
"""
_UNUSED = """
    SELECT key FROM session_now AS session WHERE touched_at < ?
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.session = session.id)
    AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.session = session.id AND expires > ?)
"""
_DELETE_OLD_LEASES = """
    DELETE FROM lease WHERE expires < ?1 AND (expires < ?2 OR NOT EXISTS (
        SELECT 1 FROM run WHERE run.session = lease.session OR run.id = lease.session
    ))
"""
"""Deletes expired leases that are old, or whose runs are gone.

Without its lease, a holder that comes back late cannot write to a run that was pruned."""


def prune(connection: sqlite3.Connection, before: float, now: float) -> Pruned:
    """Delete runs and sessions not updated since `before`, unless a lease holds them."""
    runs = _delete_runs(connection, _UNTOUCHED, before, now)
    sessions = _delete_sessions(connection, _UNUSED, before, now)
    connection.execute(_DELETE_OLD_LEASES, (now, before))
    return Pruned(runs, sessions)
