"""Open databases: one per file in each process, shared by all stores on that file.

On POSIX a process loses all of its locks on a file when it closes any descriptor of that file. So an existing database
is opened by SQLite only, which knows this and keeps such descriptors until the last connection is closed.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TypeVar

from ...errors import ConfigError
from .. import errors
from .connection import File
from .statements import StepWriter
from .writer import Writer

T = TypeVar("T")

_IDLE_READERS = 4


class Database:
    """The connections of this process to one file."""

    def __init__(self, file: File, identity: tuple[int, int]) -> None:
        self.file = file
        self.identity = identity
        self.users = 0
        """Number of stores that use it. Guarded by the lock of the registry."""
        self.step_writer = StepWriter(str(file.path))
        self._readers = _Readers(file)
        self._writer: Writer | None = None
        self._process = os.getpid()
        self._connection_lock = Lock()
        """Held while the connections are opened or closed."""

    @property
    def is_same_process(self) -> bool:
        """True if this process opened it, and not a parent that forked."""
        return os.getpid() == self._process

    @property
    def is_in_use(self) -> bool:
        """True if a thread may be inside SQLite, or hold a lock of this database."""
        writes = self._writer is not None and self._writer.is_busy
        return writes or self._readers.are_busy or self._connection_lock.locked()

    def read(self, build: Callable[..., T], statement: str, values: tuple[object, ...]) -> list[T]:
        """Run one statement and build a value from each of its rows."""
        self._check_process()
        return self._readers.fetch(build, statement, values)

    def write(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run an action in a transaction and return its value.

        Other threads may share the transaction.
        """
        self._check_process()
        assert self._writer is not None
        return self._writer.run(action)

    def write_all(self, actions: Sequence[Callable[[sqlite3.Connection], object]]) -> list[Exception | None]:
        """Run several actions in one transaction. Return the error of each, or None."""
        self._check_process()
        assert self._writer is not None
        return self._writer.run_all(actions)

    def try_write_all(self, actions: Sequence[Callable[[sqlite3.Connection], object]]) -> list[Exception | None] | None:
        """Run actions as `write_all` does, but only if that needs no waiting. Otherwise return None."""
        self._check_process()
        assert self._writer is not None
        return self._writer.try_run(actions)

    def open(self) -> None:
        """Connect, unless another store already did."""
        with self._connection_lock:
            if self._writer is None:
                self._writer = Writer(self.file, self.identity, self.step_writer.forget_positions)

    def close(self) -> None:
        """Disconnect. Threads that are reading or writing finish first."""
        with self._connection_lock:
            self._readers.close()
            if self._writer is not None:
                self._writer.close()

    def _check_process(self) -> None:
        if not self.is_same_process:  # a fork does not inherit SQLite's locks
            raise errors.opened_before_fork(str(self.file.path))


class _Readers:
    """Pool of read connections: one for each thread that reads, a few kept idle."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._idle: list[sqlite3.Connection] = []
        self._in_use = 0
        self._lock = Lock()
        self._closed = False

    @property
    def are_busy(self) -> bool:
        """True if a thread reads now, or is about to."""
        return self._in_use > 0 or self._lock.locked()

    def fetch(self, build: Callable[..., T], statement: str, values: tuple[object, ...]) -> list[T]:
        """Run one statement and build a value from each of its rows."""
        with self._file.translate_errors():
            connection = self._acquire()
            try:
                if connection is None:
                    connection = self._file.read()
                rows = connection.execute(statement, values).fetchall()
            finally:
                self._release(connection)
            return [build(*row) for row in rows]

    def close(self) -> None:
        """Close the idle connections. Threads close those that they still use."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _acquire(self) -> sqlite3.Connection | None:
        with self._lock:
            if self._closed:
                raise errors.store_closed(str(self._file.path))
            self._in_use += 1
            return self._idle.pop() if self._idle else None

    def _release(self, connection: sqlite3.Connection | None) -> None:
        with self._lock:
            keep = connection is not None and not self._closed and len(self._idle) < _IDLE_READERS
            if connection is not None and keep:
                self._idle.append(connection)
        if connection is not None and not keep:
            connection.close()
        with self._lock:
            self._in_use -= 1


class _Registry:
    """Databases of this process, by device and inode."""

    def __init__(self) -> None:
        self._lock = Lock()
        """Held briefly: never while a database is opened, closed, read or written."""
        self._open: dict[tuple[int, int], Database] = {}
        self._unclosed: set[Database] = set()
        """Databases that are open or being closed."""
        self._abandoned: deque[Database] = deque()
        """One entry for each store that was garbage-collected without being closed."""
        self._stranded: dict[tuple[int, int], Database] = {}
        """Databases in use when this process was forked: SQLite's memory of them is unusable here."""
        self._has_hooks = False

    def acquire(self, file: File) -> Database:
        """Return the open database of a file.

        Create and open it if needed.
        """
        self._release_abandoned()
        with self._lock:
            self._register_hooks()
            database = self._get_database(file)
            database.users += 1
        try:
            database.open()
        except BaseException:
            self.release(database)
            raise
        return database

    def release(self, database: Database) -> None:
        """Give up one use of a database. The last one closes it."""
        if not database.is_same_process:
            return
        with self._lock:
            database.users -= 1
            if database.users:
                return
            if self._open.get(database.identity) is database:
                del self._open[database.identity]
        database.close()
        with self._lock:
            self._unclosed.discard(database)

    def abandon(self, database: Database) -> None:
        """Note that a store on this database was garbage-collected.

        The next `acquire` releases it. The collector may run in any thread at any line, also inside a transaction. So
        this method takes no lock and does no I/O.
        """
        self._abandoned.append(database)

    def close(self) -> None:
        """Close all databases when the interpreter ends."""
        with self._lock:
            unclosed = list(self._unclosed)
            self._open.clear()
            self._unclosed.clear()
        for database in unclosed:
            database.close()

    def _get_database(self, file: File) -> Database:
        # Creating closes a descriptor of a new file. Under the lock, no other thread has SQLite's locks on it yet.
        file.create()
        identity = file.identity()
        if identity in self._stranded:
            raise errors.forked_in_use(str(file.path))
        known = self._open.get(identity)
        if known is None:
            known = self._open[identity] = Database(file, identity)
            self._unclosed.add(known)
        elif known.file.options != file.options:
            raise ConfigError(
                f"sqlite store {file.path}",
                file.options,
                f"{known.file.options}, as this process opened it before",
            )
        elif known.file.identity() != identity:
            raise errors.file_moved(str(known.file.path))
        return known

    def _release_abandoned(self) -> None:
        while self._abandoned:
            try:
                database = self._abandoned.popleft()
            except IndexError:  # another thread has taken it
                return
            self.release(database)

    def _register_hooks(self) -> None:
        if not self._has_hooks:
            self._has_hooks = True
            atexit.register(self.close)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forget_parent)

    def _forget_parent(self) -> None:
        """Close the inherited connections in a forked child.

        SQLite counts its locks per process in its own memory, and that memory says that this process has the locks of
        its parent. A connection that is opened beside an inherited one would take no lock at all.
        """
        self._lock = Lock()
        inherited = self._unclosed | set(self._stranded.values())
        self._open, self._unclosed = {}, set()
        self._abandoned.clear()
        if any(database.is_in_use for database in inherited):
            self._stranded = {database.identity: database for database in inherited}
            return
        for database in inherited:
            database.close()


DATABASES = _Registry()
