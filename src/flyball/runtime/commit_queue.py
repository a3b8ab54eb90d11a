"""Commits of all runs of one store: in the event loop's thread if the store need not wait, otherwise in one thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from threading import Lock
from weakref import WeakValueDictionary

from ..errors import StoreError
from ..store import Step, Store
from .store_calls import STORE_WORKERS

CallSoon = Callable[[Callable[[], object]], object]
"""Thread-safe `call_soon` of an event loop."""
_QUEUES: WeakValueDictionary[tuple[int, int], CommitQueue] = WeakValueDictionary()


class CommitJob:
    """One step to be committed, and its outcome."""

    __slots__ = ("error", "is_abandoned", "on_done", "step", "wake")

    def __init__(
        self, step: Step, on_done: Callable[[CommitJob], object], wake: tuple[CallSoon, Callable[[], object]] | None
    ) -> None:
        self.step = step
        self.error: Exception | None = None
        """Error of the store. None if the step is committed."""
        self.is_abandoned = False
        """True if its run no longer waits for it. It is not written then, unless its commit is in progress."""
        self.on_done = on_done
        """Called in the writing thread. It must not block."""
        self.wake = wake
        """Function that wakes the run, and the event loop to call it in. None if the run does not wait."""


class CommitQueue:
    """Writes the steps of all runs of one store.

    Where the store need not wait, a lone run writes its step at once. Steps of several runs are written together, when
    all tasks that are ready have run: a transaction for each step takes longer than the step. Where the store would
    wait, one thread at a time writes all steps that wait, and then wakes each event loop once. The thread ends as soon
    as the store need not wait any more.

    Steps of one run stay in their order. No lock is held while the store writes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keep_now: Callable[[Sequence[Step]], Sequence[Exception | None] | None] | None
        self._keep_now = getattr(store, "keep_now", None)
        self._keep_all: Callable[[Sequence[Step]], Sequence[Exception | None]] | None
        self._keep_all = getattr(store, "keep_all", None)
        self._lock = Lock()
        self._run_count = 0
        self._due: dict[asyncio.AbstractEventLoop, list[tuple[Step, asyncio.Future[bool]]]] = {}
        """Steps that each event loop writes next."""
        self._jobs: list[CommitJob] = []
        self._is_writing = False
        """True while a thread writes, or is about to."""

    @staticmethod
    def of(store: Store) -> CommitQueue:
        """Return the queue of a store. Its runs share it."""
        key = os.getpid(), id(store)  # a forked child has no threads, so it needs its own
        queue = _QUEUES.get(key)
        return _QUEUES.setdefault(key, CommitQueue(store)) if queue is None else queue

    def add_runs(self, count: int) -> None:
        """Note that runs begin or, with a negative count, end."""
        with self._lock:
            self._run_count += count

    def keep_now(self, step: Step) -> bool:
        """Write a step in this thread if the store need not wait. Return False if nothing was written."""
        errors = None if self._keep_now is None or self._is_writing else self._keep_now([step])
        if errors is None:
            return False
        if errors[0] is not None:
            raise errors[0]
        return True

    def add_due(self, step: Step) -> asyncio.Future[bool] | None:
        """Write a step with those of other runs. Return None if there are none, or the store would wait.

        The future has what `keep_now` returns or raises. A step whose future is cancelled is not written.
        """
        if self._run_count < 2 or self._keep_now is None or self._is_writing:
            return None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # trio
            return None
        future: asyncio.Future[bool] = loop.create_future()
        due = self._due.get(loop)
        if due is None:
            self._due[loop] = [(step, future)]
            loop.call_soon(self._write_due, loop)
        else:
            due.append((step, future))
        return future

    def _write_due(self, loop: asyncio.AbstractEventLoop) -> None:
        due = [(step, future) for step, future in self._due.pop(loop) if not future.done()]
        errors = None if self._is_writing else self._try_keep_now([step for step, _ in due])
        for n, (_, future) in enumerate(due):
            error = None if errors is None else errors[n]
            if error is None:
                future.set_result(errors is not None)
            else:
                future.set_exception(error)

    def submit(self, job: CommitJob) -> None:
        """Write a step in the writing thread."""
        with self._lock:
            self._jobs.append(job)
        self._start_writing()

    def _start_writing(self) -> None:
        """Start the writing thread if a step waits for it."""
        with self._lock:
            if self._is_writing or not self._jobs:
                return
            self._is_writing = True
        worker = STORE_WORKERS.acquire()
        if worker is None:
            self._fail_waiting()
        else:
            worker.start(self._write_waiting)

    def _fail_waiting(self) -> None:
        with self._lock:
            jobs, self._jobs, self._is_writing = self._jobs, [], False
        error = StoreError(type(self._store).__name__, f"no thread is free to write; {STORE_WORKERS.hung} hang")
        _finish(jobs, [error] * len(jobs))

    def _write_waiting(self) -> None:
        while True:
            with self._lock:
                jobs = self._take_waiting()
            if not jobs:
                return
            _finish(jobs, self._keep_steps([job.step for job in jobs]))
            if self._hand_back():
                return

    def _take_waiting(self) -> list[CommitJob]:
        """Return the steps to write now, under the lock. If there are none, the writing has ended."""
        jobs, self._jobs = [job for job in self._jobs if not job.is_abandoned], []
        self._is_writing = bool(jobs)
        return jobs

    def _hand_back(self) -> bool:
        """Leave later steps to their event loops if the store need not wait. Return whether this thread has ended.

        Where many runs commit, a step always waits. The thread would never end, and compete with the event loops.
        """
        if self._try_keep_now([]) is None:
            return False
        is_left = False
        with self._lock:
            for call_soon in {job.wake[0] for job in self._jobs if job.wake is not None}:
                try:
                    call_soon(self._write_submitted)
                except RuntimeError:  # the event loop is closed
                    continue
                is_left = True
            self._is_writing = not is_left
        return is_left

    def _write_submitted(self) -> None:
        """Write the steps that a thread has left, in an event loop."""
        with self._lock:
            jobs = [] if self._is_writing else self._take_waiting()
        if not jobs:
            return
        errors = self._try_keep_now([job.step for job in jobs])
        with self._lock:
            self._is_writing = False
            if errors is None:
                self._jobs = jobs + self._jobs
        if errors is not None:
            _finish(jobs, errors)
        self._start_writing()

    def _try_keep_now(self, steps: Sequence[Step]) -> Sequence[Exception | None] | None:
        try:
            return None if self._keep_now is None else self._keep_now(steps)
        except Exception as error:
            return [error] * len(steps)

    def _keep_steps(self, steps: Sequence[Step]) -> Sequence[Exception | None]:
        if self._keep_all is None:
            return [self._try_keep(step) for step in steps]
        try:
            return self._keep_all(steps)
        except Exception as error:
            return [error] * len(steps)

    def _try_keep(self, step: Step) -> Exception | None:
        try:
            self._store.keep(step)
        except Exception as error:
            return error
        return None


def _finish(jobs: Sequence[CommitJob], errors: Sequence[Exception | None]) -> None:
    """Pass each job its outcome, and wake each event loop once."""
    waiting: dict[CallSoon, list[Callable[[], object]]] = {}
    for job, error in zip(jobs, errors, strict=True):
        job.error = error
        job.on_done(job)
        if job.wake is not None:
            call_soon, wake = job.wake
            waiting.setdefault(call_soon, []).append(wake)
    for call_soon, wakes in waiting.items():
        try:
            call_soon(lambda wakes=wakes: [wake() for wake in wakes])
        except RuntimeError:  # the event loop is closed, and its runs with it
            continue
