"""What is written for a step, statement by statement; each function works inside a transaction that others begin."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from .. import errors
from ..encoded_step import EncodedStep, later, rise
from ..records import Guard, Holder, Pruned

_PLACES = 10_000
"""Runs whose places are remembered."""


@dataclass(slots=True)
class _Place:
    """Where a run stands in the file."""

    fence: int
    key: int
    first: int
    """The id of its next row."""
    answer: tuple[int, int] | None
    """The take and the effect of its last answer."""
    event: int
    """The number of its last event."""


class StepWriter:
    """Writes steps into the tables of one file."""

    def __init__(self, where: str) -> None:
        self.where = where
        """The file's name, for what it refuses."""
        self._places: dict[str, _Place] = {}
        """Where the runs stand whose lease was last seen here: nobody else can have written to them."""

    def forget_places(self) -> None:
        """Something was not committed, so what is remembered may be wrong."""
        self._places.clear()

    def step(self, connection: sqlite3.Connection, pack: EncodedStep, now: float) -> None:
        """Write all of a step; what it raises undoes all of it."""
        guard = pack.guard
        if guard is not None:
            self.check(connection, guard)
        if pack.run_id is not None:
            self._run(connection, pack.run_id, pack, now)
        if guard is not None and (pack.lines or pack.state is not None):
            _speak(connection, guard.session, pack, now)
        if guard is not None and pack.release:
            connection.execute("DELETE FROM lease WHERE session = ?", (guard.session,))

    def check(self, connection: sqlite3.Connection, guard: Guard) -> None:
        """Refuse a guard that is not the newest."""
        newest = connection.execute("SELECT fence FROM lease WHERE session = ?", (guard.session,)).fetchone()
        if newest is None or newest[0] != guard.fence:
            raise errors.stale(self.where, guard, newest[0] if newest else None)

    def _run(self, connection: sqlite3.Connection, run_id: str, pack: EncodedStep, now: float) -> None:
        if pack.start is not None:
            self._start(connection, run_id, pack, now)
        guard, place = pack.guard, self._places.get(run_id)
        if place is None or guard is None or place.fence != guard.fence:
            place = self._place(connection, run_id, -1 if guard is None else guard.fence)
        if pack.rows or pack.events:
            self._trace(connection, run_id, pack, place, now)
        if pack.again or pack.finish is not None:
            _finish(connection, place.key, pack, now)
        if guard is None or pack.finish is not None:
            self._places.pop(run_id, None)
        else:
            if len(self._places) >= _PLACES:  # of runs that ended elsewhere
                self._places.clear()
            self._places[run_id] = place

    def _place(self, connection: sqlite3.Connection, run_id: str, fence: int) -> _Place:
        known = connection.execute(_RUN, (run_id,)).fetchone()
        if known is None:
            raise errors.unknown(self.where, run_id)
        key, newest = known
        first = key << 32 if newest is None else newest + 1
        answer = connection.execute(_ANSWER, (first, first)).fetchone()
        told = connection.execute(_EVENT, (first, first)).fetchone()
        return _Place(fence, key, first, answer, -1 if told is None else told[0])

    def _start(self, connection: sqlite3.Connection, run_id: str, pack: EncodedStep, now: float) -> None:
        start = pack.start
        assert start is not None
        if connection.execute("SELECT 1 FROM run WHERE id = ?", (run_id,)).fetchone():
            raise errors.known(self.where, run_id)
        above = connection.execute("SELECT root FROM run WHERE id = ?", (start.parent,)).fetchone()
        values = (run_id, start.parent, start.session, start.agent, start.task, pack.metadata, start.at, now)
        key = connection.execute(
            "INSERT INTO run VALUES (NULL, ?, 0, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", values
        ).lastrowid
        connection.execute("UPDATE run SET root = ? WHERE key = ?", (above[0] if above else key, key))
        if start.session is not None:
            touch(connection, start.session, now)

    def _trace(self, connection: sqlite3.Connection, run_id: str, pack: EncodedStep, place: _Place, now: float) -> None:
        if pack.answers:
            if not rise(place.answer, pack.answers):
                raise errors.twice(self.where, run_id)
            place.answer = pack.answers[-1]
        lines = [(row.kind.value, row.n, row.take, row.fingerprint, row.data) for row in pack.rows]
        if pack.events and pack.seqs[-1] > place.event:
            whole = pack.seqs[0] > place.event
            lines.append(("events", pack.seqs[-1], 0, 0, pack.events if whole else later(pack.events, place.event)))
            place.event = pack.seqs[-1]
        placed = [(place.first + n, now, *line) for n, line in enumerate(lines)]
        place.first += len(lines)
        connection.executemany("INSERT INTO trace VALUES (?, ?, ?, ?, ?, ?, ?)", placed)

    def delete(self, connection: sqlite3.Connection, session: str, now: float) -> bool:
        """Forget a session and its runs, unless it is held; whether there was anything."""
        if holder := holder_of(connection, session, now):
            raise errors.busy(self.where, holder)
        runs = _forget_runs(connection, "SELECT root FROM run WHERE session = ?", session)
        sessions = _forget_sessions(connection, "SELECT key FROM session WHERE id = ?", session)
        connection.execute("DELETE FROM lease WHERE session = ?", (session,))
        return bool(runs or sessions)


_RUN = "SELECT key, (SELECT max(id) FROM trace WHERE id >= key << 32 AND id < key + 1 << 32) FROM run WHERE id = ?"
"""A run, and its newest row."""
_LAST = "FROM trace WHERE id < ? AND id >= ? >> 32 << 32 AND kind = '{}' ORDER BY id DESC LIMIT 1"
_ANSWER, _EVENT = f"SELECT take, n {_LAST.format('answer')}", f"SELECT n {_LAST.format('events')}"
"""The last of a run, by the id that its next row will have."""
_SESSION = """
    SELECT key, (SELECT max(id) FROM message WHERE id >= key << 32 AND id < key + 1 << 32) FROM session WHERE id = ?
"""
"""A session, and its newest message."""


def _finish(connection: sqlite3.Connection, key: int, pack: EncodedStep, now: float) -> None:
    finish = pack.finish
    values = (now, finish.at, finish.stop, key) if finish else (now, None, None, key)
    connection.execute("UPDATE run SET updated_at = ?, ended_at = ?, stop = ? WHERE key = ?", values)
    connection.execute("DELETE FROM record WHERE run = ?", (key,))
    if pack.record is not None:
        connection.execute("INSERT INTO record VALUES (?, ?)", (key, pack.record))


def _speak(connection: sqlite3.Connection, session: str, pack: EncodedStep, now: float) -> None:
    """Write the messages and the state of a step."""
    key, newest = connection.execute(_SESSION, (session,)).fetchone() or (None, None)
    if key is None or pack.state is not None:
        key = touch(connection, session, now)
    if pack.lines:
        first = key << 32 if newest is None else newest + 1
        placed = [(first + place, now, line) for place, line in enumerate(pack.lines)]
        connection.executemany("INSERT INTO message VALUES (?, ?, ?)", placed)
    if pack.state is not None:
        connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, pack.state))


def touch(connection: sqlite3.Connection, session: str, now: float) -> int:
    """Note that a session is written to, which may begin with that; its key."""
    changed = connection.execute("UPDATE session SET updated_at = ? WHERE id = ?", (now, session))
    if not changed.rowcount:
        connection.execute("INSERT INTO session VALUES (NULL, ?, '', ?, ?)", (session, now, now))
    return connection.execute("SELECT key FROM session WHERE id = ?", (session,)).fetchone()[0]


def entitle(connection: sqlite3.Connection, session: str, title: str, now: float) -> None:
    """Name a session."""
    connection.execute("UPDATE session SET title = ? WHERE key = ?", (title, touch(connection, session, now)))


def holder_of(connection: sqlite3.Connection, session: str, now: float) -> Holder | None:
    """Who has a lease that has not expired."""
    wanted = "SELECT session, owner, fence, since, expires FROM lease WHERE session = ? AND expires > ?"
    row = connection.execute(wanted, (session, now)).fetchone()
    return Holder(*row) if row else None


def acquire(connection: sqlite3.Connection, session: str, owner: str, now: float, expires: float) -> Guard | Holder:
    """Take a lease, or tell who has it."""
    if holder := holder_of(connection, session, now):
        return holder
    connection.execute("UPDATE fence SET newest = newest + 1")
    (fence,) = connection.execute("SELECT newest FROM fence").fetchone()
    connection.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?, ?)", (session, owner, fence, now, expires))
    return Guard(session, fence)


def renew(connection: sqlite3.Connection, guard: Guard, expires: float) -> bool:
    """Let a lease last until then, if it is still this one."""
    changed = "UPDATE lease SET expires = ? WHERE session = ? AND fence = ?"
    return connection.execute(changed, (expires, guard.session, guard.fence)).rowcount == 1


def release(connection: sqlite3.Connection, guard: Guard) -> bool:
    """Give a lease back, if it is still this one."""
    gone = connection.execute("DELETE FROM lease WHERE session = ? AND fence = ?", (guard.session, guard.fence))
    return gone.rowcount == 1


def _forget_runs(connection: sqlite3.Connection, roots: str, *values: object) -> int:
    """Forget whole trees of runs, by a query of their roots; how many runs they were."""
    keys = connection.execute(f"SELECT key FROM run WHERE root IN ({roots})", values).fetchall()
    for (key,) in keys:
        connection.execute("DELETE FROM trace WHERE id >= ? AND id < ?", (key << 32, (key + 1) << 32))
        connection.execute("DELETE FROM record WHERE run = ?", (key,))
        connection.execute("DELETE FROM run WHERE key = ?", (key,))
    return len(keys)


def _forget_sessions(connection: sqlite3.Connection, wanted: str, *values: object) -> int:
    """Forget sessions, by a query of their keys; how many they were."""
    keys = connection.execute(wanted, values).fetchall()
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
_LEFT_LEASES = """
    DELETE FROM lease WHERE expires < ?1 AND (expires < ?2 OR NOT EXISTS (
        SELECT 1 FROM run WHERE run.session = lease.session OR run.id = lease.session
    ))
"""
"""Expired leases that are old, or whose runs are gone: a holder that comes back late must not write to those."""


def prune(connection: sqlite3.Connection, before: float, now: float) -> Pruned:
    """Forget runs and sessions untouched since then, but for those that are held."""
    runs = _forget_runs(connection, _UNTOUCHED, before, now)
    sessions = _forget_sessions(connection, _UNUSED, before, now)
    connection.execute(_LEFT_LEASES, (now, before))
    return Pruned(runs, sessions)
