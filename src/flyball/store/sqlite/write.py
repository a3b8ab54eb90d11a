"""What is written for a step, statement by statement; each function works inside a transaction that others begin."""

from __future__ import annotations

import sqlite3

from .. import refusal
from ..pack import Pack
from ..record import Guard, Holder, Pruned


class Hand:
    """Writes steps into the tables of one file."""

    def __init__(self, where: str) -> None:
        self._where = where
        """The file's name, for what it refuses."""

    def step(self, connection: sqlite3.Connection, pack: Pack, now: float) -> None:
        """Write all of a step; what it raises undoes all of it."""
        guard = pack.guard
        if guard is not None:
            self.check(connection, guard)
        if pack.run_id is not None:
            self._run(connection, pack.run_id, pack, now)
        if guard is not None and (pack.lines or pack.state is not None):
            self._session(connection, guard.session, pack, now)
        if guard is not None and pack.release:
            connection.execute("DELETE FROM lease WHERE session = ?", (guard.session,))

    def check(self, connection: sqlite3.Connection, guard: Guard) -> None:
        """Refuse a guard that is not the newest."""
        newest = connection.execute("SELECT fence FROM lease WHERE session = ?", (guard.session,)).fetchone()
        if newest is None or newest[0] != guard.fence:
            raise refusal.stale(self._where, guard, newest[0] if newest else None)

    def _run(self, connection: sqlite3.Connection, run_id: str, pack: Pack, now: float) -> None:
        if pack.start is not None:
            self._start(connection, run_id, pack, now)
        known = connection.execute("SELECT rows, last_event FROM run WHERE id = ?", (run_id,)).fetchone()
        if known is None:
            raise refusal.unknown(self._where, run_id)
        rows, last = known
        if pack.rows:
            self._journal(connection, run_id, pack, rows)
        events = [(run_id, number, text) for number, text in pack.events if number > last]
        if events:
            connection.executemany("INSERT INTO event VALUES (?, ?, ?)", events)
        connection.execute(
            "UPDATE run SET updated_at = ?, rows = ?, last_event = ? WHERE id = ?",
            (now, rows + len(pack.rows), events[-1][1] if events else last, run_id),
        )
        if pack.again or pack.finish is not None:
            self._finish(connection, run_id, pack)

    def _start(self, connection: sqlite3.Connection, run_id: str, pack: Pack, now: float) -> None:
        start = pack.start
        assert start is not None
        if connection.execute("SELECT 1 FROM run WHERE id = ?", (run_id,)).fetchone():
            raise refusal.known(self._where, run_id)
        above = connection.execute("SELECT root FROM run WHERE id = ?", (start.parent,)).fetchone()
        root = above[0] if above else run_id
        connection.execute(
            "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, 0, -1)",
            (run_id, root, start.parent, start.session, start.agent, start.task, pack.metadata, start.at, now),
        )
        if start.session is not None:
            self.touch(connection, start.session, now)

    def _journal(self, connection: sqlite3.Connection, run_id: str, pack: Pack, rows: int) -> None:
        numbered = [
            (run_id, rows + place, row.n, row.kind.value, row.data, row.fingerprint, row.take)
            for place, row in enumerate(pack.rows)
        ]
        try:
            connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", numbered)
        except sqlite3.IntegrityError:
            raise refusal.twice(self._where, run_id) from None

    def _finish(self, connection: sqlite3.Connection, run_id: str, pack: Pack) -> None:
        finish = pack.finish
        ended = (finish.at, finish.stop) if finish else (None, None)
        connection.execute("UPDATE run SET ended_at = ?, stop = ? WHERE id = ?", (*ended, run_id))
        connection.execute("DELETE FROM record WHERE run_id = ?", (run_id,))
        if pack.record is not None:
            connection.execute("INSERT INTO record VALUES (?, ?)", (run_id, pack.record))

    def _session(self, connection: sqlite3.Connection, session: str, pack: Pack, now: float) -> None:
        messages = self.touch(connection, session, now, len(pack.lines))
        if pack.lines:
            placed = [(session, messages + place, line) for place, line in enumerate(pack.lines)]
            connection.executemany("INSERT INTO message VALUES (?, ?, ?)", placed)
        if pack.state is not None:
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (session, pack.state))

    def touch(self, connection: sqlite3.Connection, session: str, now: float, more: int = 0) -> int:
        """Note that a session is written to, with so many messages more; how many it had."""
        known = connection.execute("SELECT messages FROM session WHERE id = ?", (session,)).fetchone()
        if known is None:
            connection.execute("INSERT INTO session VALUES (?, '', ?, ?, ?)", (session, now, now, more))
            return 0
        connection.execute(
            "UPDATE session SET updated_at = ?, messages = ? WHERE id = ?", (now, known[0] + more, session)
        )
        return known[0]

    def title(self, connection: sqlite3.Connection, session: str, title: str, now: float) -> None:
        """Name a session."""
        self.touch(connection, session, now)
        connection.execute("UPDATE session SET title = ? WHERE id = ?", (title, session))

    def delete(self, connection: sqlite3.Connection, session: str, now: float) -> bool:
        """Forget a session and its runs, unless it is held; whether there was anything."""
        if holder := holder_of(connection, session, now):
            raise refusal.busy(self._where, holder)
        runs = forget(connection, "SELECT root FROM run WHERE session = ?", session)
        gone = connection.execute("DELETE FROM session WHERE id = ?", (session,)).rowcount
        for table in ("message", "state", "lease"):
            connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
        return bool(gone or runs)


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


def forget(connection: sqlite3.Connection, roots: str, *values: object) -> int:
    """Forget whole trees of runs, by a query of their roots; how many runs they were."""
    runs = f"SELECT id FROM run WHERE root IN ({roots})"
    for table in ("journal", "event", "record"):
        connection.execute(f"DELETE FROM {table} WHERE run_id IN ({runs})", values)
    return connection.execute(f"DELETE FROM run WHERE id IN ({runs})", values).rowcount


_UNTOUCHED = """
    SELECT root FROM run GROUP BY root HAVING max(updated_at) < ? AND NOT max(
        EXISTS (SELECT 1 FROM lease WHERE lease.session IN (run.id, run.session) AND expires > ?)
    )
"""
_UNUSED = """
    SELECT id FROM session WHERE updated_at < ?
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.session = session.id)
    AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.session = session.id AND expires > ?)
"""


def prune(connection: sqlite3.Connection, before: float, now: float) -> Pruned:
    """Forget runs and sessions untouched since then, but for those that are held."""
    runs = forget(connection, _UNTOUCHED, before, now)
    for table in ("message", "state", "lease"):
        connection.execute(f"DELETE FROM {table} WHERE session IN ({_UNUSED})", (before, now))
    sessions = connection.execute(f"DELETE FROM session WHERE id IN ({_UNUSED})", (before, now)).rowcount
    connection.execute("DELETE FROM lease WHERE expires < ?", (before,))
    return Pruned(runs, sessions)
