"""A store in one file, with nothing but the standard library: for one machine, and many processes on it."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..._internal import validation
from ...budget.deadline import SYSTEM, Clock
from ...errors import ConfigError
from .. import errors
from ..encoded_step import EncodedStep
from ..records import Pruned, Step
from ..store import Closing
from .connection import File
from .database import DATABASES, Database
from .statements import prune
from .tables import SqliteJournal, SqliteLease, SqliteRuns, SqliteState, SqliteTranscript

T = TypeVar("T")

_SYNCHRONOUS = ("normal", "full")


class SqliteStore(Closing):
    """Keeps everything in a file. Safe between threads, and between processes of one machine.

    All stores of a process on one file share its connections, and must be opened with the same options.
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
        patience = min(validation.parse_duration("sqlite store, busy_seconds", busy_seconds), 86_400.0)
        file = File(Path(path).absolute(), synchronous, patience)
        self.path = file.path
        self.wall = clock.wall
        self._database = DATABASES.acquire(file)
        self.step_writer = self._database.step_writer
        self._finalizer = weakref.finalize(self, DATABASES.abandon, self._database)
        """Dead once the store is closed."""
        self._finalizer.atexit = False
        self.transcript = SqliteTranscript(self)
        self.journal = SqliteJournal(self)
        self.lease = SqliteLease(self)
        self.state = SqliteState(self)
        self.runs = SqliteRuns(self)

    def keep(self, step: Step) -> None:
        """Keep all of a step in one commit, or nothing of it."""
        pack, hand, now = EncodedStep.of(step), self.step_writer, self.wall()
        self.write(lambda connection: hand.write_step(connection, pack, now))

    def keep_now(self, step: Step) -> bool:
        """The same on a thread that must not wait: False, and nothing is kept, where it would have to."""
        pack, hand, now = EncodedStep.of(step), self.step_writer, self.wall()
        return self._get_database().try_write(lambda connection: hand.write_step(connection, pack, now))

    def prune(self, before: float) -> Pruned:
        """Throw away runs and sessions untouched since then, but for those that are held."""
        now = self.wall()
        return self.write(lambda connection: prune(connection, before, now))

    def close(self) -> None:
        """Close the store. What was kept stays; the file is closed with the last store of this process that uses it."""
        if self._finalizer.detach() is not None:
            DATABASES.release(self._database)

    def read(self, build: Callable[..., T], statement: str, *values: object) -> list[T]:
        """What is made of each row of one statement."""
        return self._get_database().read(build, statement, values)

    def write(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Do this in a commit, perhaps with what others wait for; what it gave."""
        return self._get_database().write(action)

    def _get_database(self) -> Database:
        if not self._finalizer.alive:
            raise errors.store_closed(str(self.path))
        return self._database

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path}>"
