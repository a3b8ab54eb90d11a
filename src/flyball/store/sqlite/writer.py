"""The writer: one thread that writes to a file, and commits for all who wait at once."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, Generic, TypeVar, cast

from .. import refusal
from .file import File

T = TypeVar("T")

_AT_ONCE = 100
"""Acts in one commit: the first of them waits for the last."""
_CLOSING_S = 60.0


class _Job(Generic[T]):
    """Something to be written, and who waits for it."""

    __slots__ = ("act", "committed", "error", "value")

    def __init__(self, act: Callable[[sqlite3.Connection], T]) -> None:
        self.act = act
        self.value: T | None = None
        self.error: BaseException | None = None
        self.committed = Lock()
        self.committed.acquire()


class Writer:
    """Does what it is given in a thread of its own, in order; whoever gives it waits until that is committed.

    What waits meanwhile is one transaction. Each part of it stands alone: one that is refused takes no other down.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._connection = file.open()
        self._identity = file.identity()
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._gate = Lock()
        self._closed = False
        self._process = os.getpid()
        self._thread = Thread(target=self._work, name="flyball-store", daemon=True)
        self._thread.start()

    def do(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Have this written, and wait until it is committed; what it gave, or raised."""
        self.check_process()
        job = _Job(act)
        with self._gate:
            if self._closed:
                raise refusal.closed(str(self._file.path))
            self._jobs.put(job)
        job.committed.acquire()
        if job.error is not None:
            try:
                raise job.error
            finally:
                del job  # the error's traceback holds this frame
        return cast("T", job.value)

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that opened the file."""
        return os.getpid() == self._process

    def check_process(self) -> None:
        """Refuse to go on in a child that was forked: SQLite's locks do not come with it, nor does the thread."""
        if not self.is_ours:
            raise refusal.forked(str(self._file.path))

    def close(self) -> None:
        """Commit what waits, and end the thread."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        if current_thread() is not self._thread:
            self._thread.join(_CLOSING_S)

    def _work(self) -> None:
        try:
            while jobs := self._waiting():
                self._commit(jobs)
                for job in jobs:
                    job.committed.release()
                del jobs  # what was written is not held on to while nobody wants anything
        finally:
            self._connection.close()

    def _waiting(self) -> list[_Job[Any]]:
        """All that wait now, at least one; none when it is time to end."""
        job = self._jobs.get()
        jobs: list[_Job[Any]] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) == _AT_ONCE:
                return jobs
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return jobs
        if jobs:
            self._jobs.put(None)  # nothing can have come behind it
        return jobs

    def _commit(self, jobs: Sequence[_Job[Any]]) -> None:
        connection = self._connection
        try:
            with self._file.explained():
                if self._file.identity() != self._identity:
                    raise refusal.moved(str(self._file.path))
                connection.execute("BEGIN IMMEDIATE")
                for job in jobs:
                    self._try(connection, job, alone=len(jobs) == 1)
                connection.execute("COMMIT")
        except BaseException as error:
            for job in jobs:
                job.error = job.error or error
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _try(self, connection: sqlite3.Connection, job: _Job[Any], *, alone: bool) -> None:
        """Do one of several, so that its failure is its own; on a full disk SQLite gives up the whole transaction."""
        if not alone:
            connection.execute("SAVEPOINT one")
        try:
            with self._file.explained():
                job.value = job.act(connection)
        except Exception as error:
            job.error = error
            if alone or not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO one")
        if not alone:
            connection.execute("RELEASE one")
