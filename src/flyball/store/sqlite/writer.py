"""Group commit: one thread at a time writes to a file, and commits for all threads that wait.

The writer has no thread of its own. A thread that finds it idle becomes the leader and writes at once. Threads that
arrive in the meantime wait; when the leader is done, the first of them leads and writes for all of them in one
transaction. Handing each step to a separate thread took longer than writing it.

A commit that must not wait for the disk (`try_run`) needs checkpoints elsewhere: SQLite would make one inside every
few hundredth commit. The writer makes them in a worker thread.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar, cast

from ..._internal.workers import WorkerPool
from ...errors import FlyballError
from .. import errors
from .connection import File

T = TypeVar("T")

log = logging.getLogger(__name__)
_WRITES_PER_CHECKPOINT = 1_000
"""A write of a run, such as a step, changes two to four pages."""
_LONG_LOG_PAGES = 4_000
"""Pages (16 MB) of the log at which commits wait until it is copied."""
_MAX_LOG_PAGES = 16_000
"""Pages (64 MB) of the log at which a commit makes a checkpoint itself, because none could be made before."""
_CHECKPOINT_WORKERS = WorkerPool()
_MAX_BATCH = 100
"""Maximum number of jobs in one commit: the first has to wait for the last."""


class Writer:
    """Runs actions in order, on the one connection that writes to the file.

    Actions that wait at the same time share a transaction. Each has its own savepoint, so one that fails does not undo
    the others.
    """

    def __init__(self, file: File, identity: tuple[int, int], on_rollback: Callable[[], object]) -> None:
        self._file = file
        self._on_rollback = on_rollback
        """Called after a rollback, before the next write."""
        self._connection = file.open()
        self._connection.execute("PRAGMA busy_timeout = 0")  # `_begin` does the waiting
        self._identity = identity
        self._writes_until_checkpoint = _WRITES_PER_CHECKPOINT
        self._is_checkpointing = False
        if file.synchronous != "full":  # with it, every commit waits for the disk anyway
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {_MAX_LOG_PAGES}")
        self._lock = Lock()
        """Guards the next three attributes and `is_leader` of the jobs. Never held during a write."""
        self._waiting: list[_WriteJob[Any]] = []
        self._busy = False
        self._closed = False

    @property
    def is_busy(self) -> bool:
        """True if a thread writes now, or is about to."""
        return self._busy or self._is_checkpointing or self._lock.locked()

    def run(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run an action and wait for its commit.

        Return its value, or raise its error.
        """
        job = _WriteJob(action)
        self._run_jobs([job])
        if job.error is not None:
            try:
                raise job.error
            finally:
                del job  # the error's traceback holds this frame
        return cast("T", job.value)

    def run_all(self, actions: Sequence[Callable[[sqlite3.Connection], object]]) -> list[Exception | None]:
        """Run several actions and wait for their commit. Return the error of each, or None."""
        jobs = [_WriteJob(action) for action in actions]
        self._run_jobs(jobs)
        return [cast("Exception | None", job.error) for job in jobs]

    def try_run(self, actions: Sequence[Callable[[sqlite3.Connection], object]]) -> list[Exception | None] | None:
        """Run actions as `run_all` does, but only if no other thread or process writes. Otherwise return None.

        For a thread that must not wait. A commit to the write-ahead log takes less time than handing it to a thread.
        """
        if not self._try_take_turn():
            return None
        jobs = [_WriteJob(action) for action in actions]
        try:
            committed = self._commit(jobs, may_wait=False)
        finally:
            with self._lock:
                self._hand_over()
        self._count_writes(len(jobs))
        return [cast("Exception | None", job.error) for job in jobs] if committed else None

    def _count_writes(self, count: int) -> None:
        """Start a checkpoint if there were many writes since the last one."""
        self._writes_until_checkpoint -= count
        if self._writes_until_checkpoint > 0 or self._is_checkpointing or self._file.synchronous == "full":
            return
        worker = _CHECKPOINT_WORKERS.acquire()
        if worker is not None:
            self._is_checkpointing = True
            worker.start(self._checkpoint)

    def _checkpoint(self) -> None:
        """Copy the log into the database, on a worker thread, while commits continue on the other connection."""
        try:
            other = self._file.connect()
            try:
                _, pages, copied = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                other.close()
            if copied == pages or pages > _LONG_LOG_PAGES:
                self._renew_log()
        except sqlite3.Error as error:  # SQLite makes one later, inside a commit
            log.debug("no checkpoint of %s: %s", self._file.path, error)
        finally:
            self._writes_until_checkpoint = _WRITES_PER_CHECKPOINT
            self._is_checkpointing = False

    def _renew_log(self) -> None:
        """Copy the rest of the log and write to its start, which waits for the disk. Other commits wait meanwhile."""
        until = time.monotonic() + self._file.busy_seconds
        while not self._try_take_turn():
            if self._closed or time.monotonic() > until:
                return
            time.sleep(0.001)
        connection = self._connection
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE fence SET newest = newest")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            with self._lock:
                self._hand_over()

    def _try_take_turn(self) -> bool:
        with self._lock:
            if self._closed or self._busy:
                return False
            self._busy = True
            return True

    def close(self) -> None:
        """Refuse new actions. The connection closes after those that already wait."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._busy:
                return
        self._connection.close()

    def _run_jobs(self, jobs: Sequence[_WriteJob[Any]]) -> None:
        with self._lock:
            if self._closed:
                raise errors.store_closed(str(self._file.path))
            if not jobs:
                return
            self._waiting += jobs
            leads, self._busy = not self._busy, True
        if leads:
            self._lead()
        for job in jobs:
            self._wait(job)
            if not job.done:
                self._lead()

    def _wait(self, job: _WriteJob[Any]) -> None:
        try:
            job.wakeup.acquire()
        except BaseException:  # an interrupted thread must not leave others waiting for it to lead
            with self._lock:
                if job in self._waiting:
                    self._waiting.remove(job)
                    if job.is_leader:
                        self._hand_over()
            raise

    def _hand_over(self) -> None:
        """Make the first waiting job the leader.

        Without one, close the connection of a closed writer.
        """
        self._busy = bool(self._waiting)
        if self._closed and not self._busy:
            self._connection.close()
        if self._waiting:
            self._waiting[0].is_leader = True
            self._waiting[0].wakeup.release()

    def _lead(self) -> None:
        """Write the waiting jobs, then hand over."""
        with self._lock:
            jobs, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
        try:
            self._commit(jobs)
            self._count_writes(len(jobs))
        finally:
            for job in jobs:
                job.done = True
                job.wakeup.release()
            with self._lock:
                self._hand_over()

    def _begin(self, connection: sqlite3.Connection, *, may_wait: bool) -> bool:
        """Begin a transaction.

        Return False if another process writes and waiting is not allowed.
        """
        deadline, pause_s = time.monotonic() + self._file.busy_seconds, 0.001
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return True
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or (may_wait and time.monotonic() >= deadline):
                    raise
            if not may_wait:
                return False
            time.sleep(pause_s)
            pause_s = min(0.05, pause_s * 1.5)

    def _commit(self, jobs: Sequence[_WriteJob[Any]], *, may_wait: bool = True) -> bool:
        connection = self._connection
        try:
            if self._file.identity() != self._identity:
                raise errors.file_moved(str(self._file.path))
            if not self._begin(connection, may_wait=may_wait):
                return False
            if not self._run_together(connection, jobs):
                connection.execute("ROLLBACK")
                if not self._begin(connection, may_wait=may_wait):
                    return False
                for job in jobs:
                    self._try(connection, job)
            connection.execute("COMMIT")
        except BaseException as error:
            for job in jobs:
                job.error = job.error or self._to_store_error(error)
            self._on_rollback()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if not isinstance(error, Exception):  # Ctrl-C is for the thread that writes, not for those it writes for
                raise
        return True

    def _run_together(self, connection: sqlite3.Connection, jobs: Sequence[_WriteJob[Any]]) -> bool:
        """Run the actions. Return False if one of several fails, which is rare: each then needs a savepoint of its own.

        Around all of them, a savepoint would take a third of the time: SQLite copies each page before it changes.
        """
        try:
            for job in jobs:
                job.value = job.action(connection)
        except Exception:
            if len(jobs) == 1 or not connection.in_transaction:  # on a full disk SQLite rolls back the transaction
                raise
            self._on_rollback()
            return False
        return True

    def _try(self, connection: sqlite3.Connection, job: _WriteJob[Any]) -> None:
        """Run one job in a savepoint, so that a failure undoes only its changes."""
        connection.execute("SAVEPOINT one")
        try:
            job.value = job.action(connection)
        except Exception as error:
            job.error = self._to_store_error(error)
            if not connection.in_transaction:
                raise
            self._on_rollback()
            connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")

    def _to_store_error(self, error: BaseException) -> BaseException:
        """Return a new error for one job.

        A traceback belongs to one thread, so jobs cannot share it.
        """
        if isinstance(error, sqlite3.Error | UnicodeEncodeError):
            return self._file.to_store_error(error)
        if isinstance(error, FlyballError):
            return type(error)(*error.args)
        return error if isinstance(error, Exception) else errors.writer_interrupted(str(self._file.path))


class _WriteJob(Generic[T]):
    """An action to run in a transaction, and its outcome."""

    __slots__ = ("action", "done", "error", "is_leader", "value", "wakeup")

    def __init__(self, action: Callable[[sqlite3.Connection], T]) -> None:
        self.action = action
        self.value: T | None = None
        self.error: BaseException | None = None
        self.done = False
        """True once it is committed or refused."""
        self.is_leader = False
        """True if its thread has to write for all that wait."""
        self.wakeup = Lock()
        """Released when the job is done, or becomes the leader."""
        self.wakeup.acquire()
