"""Blocking calls of a run to its store, bounded by the run's own time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakSet

import anyio

from .._internal.workers import WorkerPool, loop_time, start_in_worker, wait_for_worker
from ..errors import StoreError
from ..store import Store

T = TypeVar("T")
CLOSING_S = 5.0
"""Seconds that a run may take after its deadline, or after a cancel, to save its messages and settle its budgets."""
STORE_WORKERS = WorkerPool(max_workers=250, max_hung=1_000)
"""Threads that wait for a store. Tools have their own threads, which may all hang."""


class StoreCaller:
    """Calls the store for one run.

    A call may take the remaining time of the run and its closing seconds. Once the run is cancelled, a call may take
    the closing seconds only. A call cannot be interrupted, so one that takes longer is abandoned.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._children = WeakSet[StoreCaller]()
        self._scope: anyio.CancelScope | None = None
        self.is_cancelled = False
        """True once the run is cancelled."""
        self.has_abandoned = False
        """True once a call took too long. It may still end, and write what it was called with."""

    def for_child(self) -> StoreCaller:
        """Return the caller of a child run, which is cancelled with this one."""
        child = StoreCaller(self._store)
        child.is_cancelled = self.is_cancelled
        self._children.add(child)
        return child

    def cancel(self) -> None:
        """Let the call in progress, and each later one, take the closing seconds only."""
        self.is_cancelled = True
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, loop_time() + CLOSING_S)
        for child in list(self._children):
            child.cancel()

    async def call(self, work: Callable[[], T], remaining_s: float = math.inf) -> T:
        """Run a blocking function of the store. Raises StoreError if it takes too long."""
        until = loop_time() + max(0.0, remaining_s)
        worker = await wait_for_worker(STORE_WORKERS, lambda: self.is_cancelled or loop_time() > until)
        if worker is None:
            raise self.build_error(f"no thread is free to call it; {STORE_WORKERS.hung} hang")
        future, done = start_in_worker(worker, work)
        try:
            await self.wait(done, remaining_s)
        finally:
            if not done.is_set():
                STORE_WORKERS.abandon(worker)
        return future.result(0)

    async def wait(self, done: anyio.Event, remaining_s: float = math.inf) -> None:
        """Wait for a call of the store. Raises StoreError if it takes too long."""
        seconds = CLOSING_S + (0.0 if self.is_cancelled else max(0.0, remaining_s))
        self._scope = anyio.CancelScope(shield=True, deadline=loop_time() + seconds)
        try:
            with self._scope:
                await done.wait()
        except BaseException:  # the task was cancelled
            with anyio.CancelScope(shield=True, deadline=loop_time() + CLOSING_S):
                await done.wait()
            raise
        finally:
            self._scope = None
            self.has_abandoned = self.has_abandoned or not done.is_set()
        if not done.is_set():
            raise self.build_error()

    def build_error(self, reason: str = "it did not respond in the time of the run") -> StoreError:
        """Return the error for a call that was abandoned."""
        where = str(getattr(self._store, "path", type(self._store).__name__))
        return StoreError(where, f"{reason}, so not all of the run is stored: check the store, then resume it")
