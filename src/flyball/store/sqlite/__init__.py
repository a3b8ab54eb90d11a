"""A store in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..._internal import validation
from ...budget.deadline import SYSTEM, Clock
from ...errors import ConfigError, FlyballError
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
    """A store in one SQLite file. Safe for threads and for processes of one machine.

    All stores of a process on one file share its connections, and must be opened with the same options.
    `synchronous="full"` makes every commit survive a power loss, at the price of one flush to the disk each.
    `busy_seconds` is how long to wait for other processes that write. `clock` gives leases their time.
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
        busy_timeout = min(validation.parse_duration("sqlite store, busy_seconds", busy_seconds), 86_400.0)
        file = File(Path(path).absolute(), synchronous, busy_timeout)
        self.path = file.path
        self._waits_for_disk = synchronous == "full"
        self.wall = clock.wall
        self._database = DATABASES.acquire(file)
        self.step_writer = self._database.step_writer
        self._finalizer = weakref.finalize(self, DATABASES.abandon, self._database)
        """Releases the database of a store that is never closed. Not alive once the store is closed."""
        self._finalizer.atexit = False
        self.transcript = SqliteTranscript(self)
        self.journal = SqliteJournal(self)
        self.lease = SqliteLease(self)
        self.state = SqliteState(self)
        self.runs = SqliteRuns(self)

    def keep(self, step: Step) -> None:
        """Write all of a step in one commit, or nothing."""
        encoded, step_writer, now = EncodedStep.of(step), self.step_writer, self.wall()
        self.write(lambda connection: step_writer.write_step(connection, encoded, now))

    def keep_all(self, steps: Sequence[Step]) -> Sequence[Exception | None]:
        """Write several steps in one commit. Return the error of each, or None.

        A step that fails is left out. The others are written.
        """
        return self._keep_steps(steps, self._get_database().write_all) or ()

    def keep_now(self, steps: Sequence[Step]) -> Sequence[Exception | None] | None:
        """Write steps as `keep_all` does, but only if that needs no waiting. Otherwise return None.

        With `synchronous="full"` every commit waits for the disk.
        """
        return None if self._waits_for_disk else self._keep_steps(steps, self._get_database().try_write_all)

    def _keep_steps(
        self,
        steps: Sequence[Step],
        write_all: Callable[[Sequence[Callable[[sqlite3.Connection], object]]], Sequence[Exception | None] | None],
    ) -> Sequence[Exception | None] | None:
        now = self.wall()
        actions: list[Callable[[sqlite3.Connection], object]] = []
        invalid: dict[int, Exception] = {}
        for n, step in enumerate(steps):
            try:
                actions.append(partial(self.step_writer.write_step, encoded=EncodedStep.of(step), now=now))
            except FlyballError as error:
                invalid[n] = error
        errors = write_all(actions)
        if errors is None or not invalid:
            return errors
        rest = iter(errors)
        return [invalid[n] if n in invalid else next(rest) for n in range(len(steps))]

    def prune(self, before: float) -> Pruned:
        """Delete runs and sessions not updated since, unless a lease holds them."""
        now = self.wall()
        return self.write(lambda connection: prune(connection, before, now))

    def close(self) -> None:
        """Close the store. Stored data stays.

        The file is closed with the last store of this process that uses it.
        """
        if self._finalizer.detach() is not None:
            DATABASES.release(self._database)

    def read(self, build: Callable[..., T], statement: str, *values: object) -> list[T]:
        """Run one statement and build a value from each of its rows."""
        return self._get_database().read(build, statement, values)

    def write(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run an action in a transaction and return its value.

        Other threads may share the transaction.
        """
        return self._get_database().write(action)

    def _get_database(self) -> Database:
        if not self._finalizer.alive:
            raise errors.store_closed(str(self.path))
        return self._database

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path}>"
