"""Tables of a SQLite store, made by numbered migrations that only go forward.

`trace` holds the rows of journals. It also holds the events of each step, in one row of the kind `events` whose `n` is
the `seq` of the last event. The id of a message, or of a row of `trace`, is the key of its session or run in the upper
bits and its position there in the lower 32 bits. So the rows of one run lie together, and a step needs no index and
does not update the row of its run or session. Most steps write two pages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...errors import StoreError

APPLICATION_ID = 0x466C7942
"""Marks a file as a Flyball database: "FlyB" in ASCII."""

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
"""A released migration never changes. A new one is appended."""


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Apply the missing migrations, once among all processes that open the file."""
    if read_version(connection, path) == len(MIGRATIONS):
        return
    with transaction(connection, "IMMEDIATE"):
        for number in range(_read_version(connection, path), len(MIGRATIONS)):
            for statement in MIGRATIONS[number].split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def read_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the number of migrations applied, 0 for a new file.

    Raises StoreError for a file of another program or of a newer Flyball.
    """
    with transaction(connection):  # one snapshot: another process may be creating the tables
        return _read_version(connection, path)


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "DEFERRED") -> Generator[None]:
    """Commit the block as one transaction, or roll it back on an error."""
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
        raise StoreError(str(path), "another program made this database: use a new file, or one that Flyball made")
    if version > len(MIGRATIONS):
        raise StoreError(
            str(path),
            f"a newer Flyball created the file: it has version {version}, and this Flyball reads up to version "
            f"{len(MIGRATIONS)}. Upgrade Flyball",
        )
    return version
