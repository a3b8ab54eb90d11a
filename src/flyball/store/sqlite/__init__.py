"""A store in one file, with nothing but the standard library: for one machine, and many processes on it."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TypeVar

from ... import check
from ...clock import SYSTEM, Clock
from ...errors import ConfigError
from .. import refusal
from ..closing import Closing
from ..pack import Pack
from ..record import Pruned, Step
from .file import File
from .part import SqliteJournal, SqliteLease, SqliteRuns, SqliteState, SqliteTranscript
from .write import Hand, prune
from .writer import Writer

T = TypeVar("T")

_IDLE_READERS = 4
_SYNCHRONOUS = ("normal", "full")


class SqliteStore(Closing):
    """Keeps everything in a file. Safe between threads, and between processes of one machine.

    `synchronous="full"` makes every commit outlive a power loss too, for the time of a flush to the disk each.
    `busy_seconds` is how long to wait for other processes. `clock` is where leases get their time from.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: str = "normal",
        busy_seconds: float = 30.0,
        clock: Clock = SYSTEM,
    ) -> None:
        if synchronous not in _SYNCHRONOUS:
            raise ConfigError("sqlite store, synchronous", synchronous, f"one of {', '.join(_SYNCHRONOUS)}")
        patience = min(check.duration("sqlite store, busy_seconds", busy_seconds), 86_400.0)
        file = File(Path(path).absolute(), synchronous, patience)
        self.path = file.path
        self.hand = Hand(str(file.path))
        self.wall = clock.wall
        self._writer = Writer(file)
        self._readers = _Readers(file, self._writer)
        self._close = weakref.finalize(self, _close, self._writer, self._readers)
        self.transcript = SqliteTranscript(self)
        self.journal = SqliteJournal(self)
        self.lease = SqliteLease(self)
        self.state = SqliteState(self)
        self.runs = SqliteRuns(self)

    def keep(self, step: Step) -> None:
        """Keep all of a step in one commit, or nothing of it."""
        pack, hand, now = Pack.of(step), self.hand, self.wall()
        self._writer.do(lambda connection: hand.step(connection, pack, now))

    def prune(self, before: float) -> Pruned:
        """Throw away runs and sessions untouched since then, but for those that are held."""
        now = self.wall()
        return self.write(lambda connection: prune(connection, before, now))

    def close(self) -> None:
        """Let go of the file. What was kept stays."""
        self._close()

    def read(self, made: Callable[..., T], statement: str, *values: object) -> list[T]:
        """What is made of each row of one statement."""
        return self._readers.rows(made, statement, values)

    def write(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Do this in a commit, perhaps with what others wait for; what it gave."""
        return self._writer.do(act)

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path}>"


class _Readers:
    """Connections for reading: as many as read at once, of which a few are kept for the next."""

    def __init__(self, file: File, writer: Writer) -> None:
        self._file = file
        self._writer = writer
        self._idle: list[sqlite3.Connection] = []
        self._lock = Lock()
        self._closed = False

    def rows(self, made: Callable[..., T], statement: str, values: tuple[object, ...]) -> list[T]:
        """What is made of each row of one statement."""
        self._writer.check_process()
        with self._file.explained():
            connection = self._borrow()
            try:
                found = connection.execute(statement, values).fetchall()
            finally:
                self._give_back(connection)
            return [made(*row) for row in found]

    def close(self) -> None:
        """Close those that nobody uses; the others are closed when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _borrow(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise refusal.closed(str(self._file.path))
            if self._idle:
                return self._idle.pop()
        return self._file.read()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE_READERS:
                self._idle.append(connection)
                return
        connection.close()


def _close(writer: Writer, readers: _Readers) -> None:
    """Also at the end of the interpreter, and for a store that nobody has closed."""
    if writer.is_ours:
        readers.close()
        writer.close()
