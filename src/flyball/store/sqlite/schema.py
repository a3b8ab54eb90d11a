"""The tables of a store in SQLite, and how they came about: numbered steps, forward only.

`trace` has the rows of journals and, as the kind `events`, the events of each step in one row: `n` is the last of them.
The id of a message, or of a row of the trace, is its owner's key and, in the lower 32 bits, its place there. So what
belongs together lies together, and a step writes no index, nor the row of its run or session: two pages, mostly.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...errors import StoreError

APPLICATION_ID = 0x466C7942
"""How a file says that it is ours: "FlyB"."""

MIGRATIONS = (
    """
    CREATE TABLE fence (newest INTEGER NOT NULL);
    INSERT INTO fence VALUES (0);
    CREATE TABLE lease (
        session TEXT PRIMARY KEY, owner TEXT NOT NULL, fence INTEGER NOT NULL, since REAL NOT NULL,
        expires REAL NOT NULL
    );
    CREATE TABLE session (
        key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, created_at REAL NOT NULL,
        updated_at REAL NOT NULL
    );
    CREATE TABLE message (id INTEGER PRIMARY KEY, at REAL NOT NULL, data TEXT NOT NULL);
    CREATE TABLE state (session INTEGER PRIMARY KEY, data TEXT NOT NULL);
    CREATE TABLE run (
        key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, root INTEGER NOT NULL, parent TEXT,
        session TEXT, agent TEXT NOT NULL, task TEXT NOT NULL, metadata TEXT NOT NULL, started_at REAL NOT NULL,
        updated_at REAL NOT NULL, ended_at REAL, stop TEXT
    );
    CREATE INDEX run_by_root ON run (root);
    CREATE INDEX run_by_parent ON run (parent);
    CREATE INDEX run_by_session ON run (session);
    CREATE INDEX run_by_time ON run (started_at);
    CREATE TABLE record (run INTEGER PRIMARY KEY, data TEXT NOT NULL);
    CREATE TABLE trace (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, n INTEGER NOT NULL, take INTEGER NOT NULL,
        fingerprint INTEGER NOT NULL, data TEXT NOT NULL
    );
    CREATE VIEW session_now AS
        SELECT session.*, ifnull((newest.id & 4294967295) + 1, 0) AS messages,
            max(session.updated_at, ifnull(newest.at, 0)) AS touched_at
        FROM session LEFT JOIN message AS newest ON newest.id = (
            SELECT max(id) FROM message WHERE id >= session.key << 32 AND id < session.key + 1 << 32
        );
    CREATE VIEW run_now AS
        SELECT run.*, max(run.updated_at, ifnull(newest.at, 0)) AS touched_at
        FROM run LEFT JOIN trace AS newest ON newest.id = (
            SELECT max(id) FROM trace WHERE id >= run.key << 32 AND id < run.key + 1 << 32
        );
    """,
)
"""What is once released is never changed; a new one is added at the end."""


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the tables of a file up to date, once, whoever else opens it now."""
    if read_version(connection, path) == len(MIGRATIONS):
        return
    with transaction(connection, "IMMEDIATE"):
        for number in range(_read_version(connection, path), len(MIGRATIONS)):
            for statement in MIGRATIONS[number].split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def read_version(connection: sqlite3.Connection, path: Path) -> int:
    """How many steps the file has behind it, 0 for one that is new; a StoreError if it is not for us."""
    with transaction(connection):  # all at one moment: somebody else may be making the tables
        return _read_version(connection, path)


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "DEFERRED") -> Generator[None]:
    """All of what is done inside, or nothing."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _read_version(connection: sqlite3.Connection, path: Path) -> int:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if owner != APPLICATION_ID and (tables or owner or version):
        raise StoreError(
            str(path), "found a database of another program; expected a new file, or one that Flyball made"
        )
    if version > len(MIGRATIONS):
        raise StoreError(
            str(path),
            f"found tables of version {version}, made by a newer Flyball; this one knows them up to version "
            f"{len(MIGRATIONS)}. Expected a Flyball that is at least as new as the file",
        )
    return version
