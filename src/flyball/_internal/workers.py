"""Daemon threads that never keep a process from exiting.

A worker pool runs blocking functions, such as sync tools, and a private event loop serves the sync API. The
standard executor does not fit: it joins its threads at exit, so one hung tool would keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future
from functools import partial
from math import inf
from queue import SimpleQueue
from threading import Event, Lock, Thread, current_thread
from typing import Any, Protocol, TypeVar

import anyio

from ..errors import UsageError

log = logging.getLogger(__name__)

T = TypeVar("T")

_SHARES = 10
"""Owners that can have the maximum number of workers at the same time."""


class WorkersExhausted(RuntimeError):
    """So many workers hang that no other is started."""


class WorkerThread(Protocol):
    """Thread that runs a function, then calls the callback that the function returned."""

    def start(self, work: Callable[[], Callable[[], object] | None]) -> None:
        """Run a function next."""
        ...


class Worker:
    """Daemon thread that waits for work.

    The work must not raise. The callback that it returns is called after the worker is free again, so that a waiter who
    then wants a worker gets this one.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._work: SimpleQueue[Callable[[], Callable[[], object] | None]] = SimpleQueue()
        Thread(target=self._run, name="flyball-worker", daemon=True).start()

    def start(self, work: Callable[[], Callable[[], object] | None]) -> None:
        """Run a function next."""
        self._work.put(work)

    def _run(self) -> None:
        reusable = True
        while reusable:
            callback = self._run_safely(self._work.get())
            reusable = self._pool.release(self)
            if callback is not None:
                self._run_safely(callback)

    def _run_safely(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except BaseException:
            log.exception("unexpected exception in a worker thread")
            return None


class WorkerPool:
    """Pool of reusable workers, which replaces those that hang. Several owners, such as agents, share it.

    An owner has at most `max_workers` in use at a time. An abandoned worker no longer counts, so it is replaced. But
    while `max_hung` workers of an owner hang, `acquire` returns None for it.

    All owners together have room for ten times as many. Twice that is the limit for an owner that has no other worker:
    a spare, so that owners whose work hangs do not take the last worker from the others.
    """

    def __init__(self, max_workers: int = 32, max_hung: int = 100) -> None:
        self._max_workers = max_workers
        self._max_hung = max_hung
        self._reset()

    def _reset(self) -> None:
        # Also used in a forked child, which has none of its parent's threads.
        self._pid = os.getpid()
        self._lock = Lock()
        self._idle: list[Worker] = []
        self._busy: dict[Worker, _Share] = {}
        self._hung: dict[Worker, _Share] = {}
        self._shares: dict[int, _Share] = {}
        """Share of each owner that has workers, by its id."""

    @property
    def hung(self) -> int:
        """Number of abandoned workers that are still running."""
        return len(self._hung)

    def is_exhausted(self, owner: object = None) -> bool:
        """Return True while so many workers hang that `acquire` returns None."""
        return self._is_exhausted(self._shares.get(id(owner)))

    def _is_exhausted(self, share: _Share | None) -> bool:
        if share is None:
            return len(self._hung) >= self._max_hung * 2 * _SHARES
        return share.hung >= self._max_hung or len(self._hung) >= self._max_hung * _SHARES

    def acquire(self, owner: object = None) -> Worker | None:
        """Return a free worker, or None if there is none now for this owner."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            share = self._shares.get(id(owner))
            if self._is_full(share) or self._is_exhausted(share):
                return None
            try:
                worker = self._idle.pop() if self._idle else Worker(self)
            except RuntimeError:  # the system cannot start another thread
                return None
            if share is None:
                share = self._shares[id(owner)] = _Share(owner)
            share.busy += 1
            self._busy[worker] = share
            return worker

    def _is_full(self, share: _Share | None) -> bool:
        if share is None:
            return len(self._busy) >= self._max_workers * 2 * _SHARES
        return share.busy >= self._max_workers or len(self._busy) >= self._max_workers * _SHARES

    def abandon(self, worker: Worker) -> None:
        """Count a worker as hung, if it is still running."""
        with self._lock:
            if worker in self._busy:
                share = self._hung[worker] = self._busy.pop(worker)
                share.busy -= 1
                share.hung += 1

    def release(self, worker: Worker) -> bool:
        """Take a finished worker back; return False if it was abandoned."""
        with self._lock:
            share = self._busy.pop(worker, None)
            if share is not None:
                share.busy -= 1
                self._idle.append(worker)
                reusable = True
            else:
                share, reusable = self._hung.pop(worker, None), False
                if share is None:  # a forked child has reset the pool
                    return False
                share.hung -= 1
            if not share.busy and not share.hung:
                del self._shares[id(share.owner)]
            return reusable


class _Share:
    """Workers of one owner, which it keeps alive."""

    __slots__ = ("busy", "hung", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.busy = self.hung = 0


async def wait_for_worker(pool: WorkerPool, is_late: Callable[[], bool], owner: object = None) -> Worker | None:
    """Wait for a free worker.

    Returns None when `is_late` says so, or when too many workers hang.
    """
    pause_s = 0.001
    while (worker := pool.acquire(owner)) is None:
        if pool.is_exhausted(owner) or is_late():
            return None
        await anyio.sleep(pause_s)
        pause_s = min(0.05, pause_s * 1.5)
    return worker


async def run_in_worker(pool: WorkerPool, work: Callable[[], T]) -> T:
    """Run a blocking function in a worker and return its result. If the caller is cancelled, it is abandoned."""
    worker = await wait_for_worker(pool, lambda: False)
    if worker is None:
        raise WorkersExhausted(f"no worker thread is free; {pool.hung} hang")
    future, done = start_in_worker(worker, work)
    try:
        await done.wait()
    finally:
        if not done.is_set():
            pool.abandon(worker)
    return future.result(0)


def start_in_worker(worker: WorkerThread, work: Callable[[], T]) -> tuple[Future[T], anyio.Event]:
    """Start a blocking function in a worker. Return its future, and the event that this event loop gets at its end."""
    future: Future[T] = Future()
    done = anyio.Event()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    worker.start(_notify_after(run, done.set, get_call_soon()))
    return future, done


class PromptFuture(asyncio.Future[bool]):
    """Future of one waiting task, which continues at once when the event loop calls back with the result.

    Other futures let it continue in the next cycle of the event loop, which costs as much as a short function.
    """

    _waiter: tuple[Callable[[Any], object], contextvars.Context] | None = None

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: contextvars.Context | None = None) -> None:
        """Note the waiting task."""
        super().add_done_callback(fn, context=context)
        if context is not None:
            self._waiter = fn, context

    def set_result(self, result: bool, /) -> None:
        """Continue the waiting task. Only for callbacks of the event loop, which no task runs."""
        waiter = self._waiter
        if waiter is not None:
            self.remove_done_callback(waiter[0])
        super().set_result(result)
        if waiter is not None:
            fn, context = waiter
            context.run(fn, self)


async def run_and_wait(
    worker: WorkerThread, work: Callable[[], Callable[[], object] | None], max_seconds: float
) -> bool:
    """Run `work` in a worker and wait; return False if `max_seconds` passed first.

    A thread cannot be interrupted, so a timer is enough. If `work` returns a callback, its result came too late. The
    callback is then called in the event loop, or by the worker if the loop is closed.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return await _run_and_wait_in_trio(worker, work, max_seconds)
    done = PromptFuture(loop=loop)
    worker.start(_notify_after(work, lambda: done.done() or done.set_result(True), loop.call_soon_threadsafe))
    timer = None if max_seconds == inf else loop.call_later(max_seconds, lambda: done.done() or done.set_result(False))
    try:
        return await done
    finally:
        if timer is not None:
            timer.cancel()


async def _run_and_wait_in_trio(
    worker: WorkerThread, work: Callable[[], Callable[[], object] | None], max_seconds: float
) -> bool:
    import trio

    done = trio.Event()
    worker.start(_notify_after(work, done.set, get_call_soon()))
    with trio.move_on_after(max(0.0, max_seconds)):
        await done.wait()
    return done.is_set()


def _notify_after(
    work: Callable[[], Callable[[], object] | None],
    done: Callable[[], object],
    call_soon: Callable[[Callable[[], object]], object],
) -> Callable[[], Callable[[], object]]:
    return lambda: partial(_notify, call_soon, done, work())


def _notify(
    call_soon: Callable[[Callable[[], object]], object], done: Callable[[], object], late: Callable[[], object] | None
) -> None:
    try:
        call_soon(late or done)
    except RuntimeError:  # the event loop is closed
        if late is not None:
            late()


def get_call_soon() -> Callable[[Callable[[], object]], object]:
    """Return the thread-safe `call_soon` of the running event loop.

    Works for asyncio and trio.
    """
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio.lowlevel

        return trio.lowlevel.current_trio_token().run_sync_soon


def loop_time() -> float:
    """Return the time of the running event loop.

    Reading asyncio's directly takes a quarter of the time of anyio's.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:  # trio
        return anyio.current_time()


def is_being_cancelled() -> bool:
    """Check whether the current task is really cancelled.

    A tool may raise asyncio's CancelledError by itself.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio, whose Cancelled only trio itself can raise
        return True
    return task is None or task.cancelling() > 0


class LoopThread:
    """Private event loop in a daemon thread, for sync callers.

    A forked child creates its own.
    """

    def __init__(self) -> None:
        self._process_loops: dict[int, _ProcessLoop] = {}

    @property
    def _process_loop(self) -> _ProcessLoop:
        # By process, because a forked child may inherit a lock that is held for ever. setdefault is atomic, so
        # threads that come first at the same time get the same loop.
        return self._process_loops.setdefault(os.getpid(), _ProcessLoop())

    def run(self, create_coroutine: Callable[[], Coroutine[Any, Any, T]], alternative: str) -> T:
        """Run a coroutine on the loop and wait for it.

        Ctrl-C cancels the coroutine, gives it 5 seconds to clean up, and is raised again.
        """
        self.raise_if_inside(alternative)
        closed = Event()

        async def run_and_notify() -> T:
            try:
                return await create_coroutine()
            finally:
                closed.set()

        future = self.start(run_and_notify)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            closed.wait(5.0)  # a cancelled future is done before its task has cleaned up
            raise
        except FutureCancelled:
            raise asyncio.CancelledError from None

    def start(self, create_coroutine: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start a coroutine on the loop, with the caller's context variables."""
        return copy_context_for_thread().run(
            asyncio.run_coroutine_threadsafe, create_coroutine(), self._ensure_started()
        )

    def raise_if_inside(self, alternative: str) -> None:
        """Raise on the loop's own thread, where waiting would deadlock."""
        if self._process_loop.thread is current_thread():
            raise UsageError(
                f"a sync call would block Flyball's own event loop, which runs this code: use {alternative}"
            )

    def _ensure_started(self) -> asyncio.AbstractEventLoop:
        process_loop = self._process_loop
        with process_loop.lock:
            if process_loop.loop is None:
                process_loop.loop = asyncio.new_event_loop()
                process_loop.thread = Thread(
                    target=_run_for_ever, args=(process_loop.loop,), name="flyball-loop", daemon=True
                )
                process_loop.thread.start()
            return process_loop.loop


class _ProcessLoop:
    """Event loop of one process, and its thread."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: Thread | None = None


PRIVATE_LOOP = LoopThread()
"""Loop that all sync calls of this process share."""


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    # A SystemExit in one task stops the loop. Restart it, or every other user of the loop would wait for ever.
    while True:
        try:
            return loop.run_forever()
        except BaseException:
            log.exception("a task tried to end the private event loop")


def copy_context_for_thread() -> contextvars.Context:
    """Copy the caller's context variables for another thread.

    The variable that names the running async library is reset.
    """
    context = contextvars.copy_context()
    sniffio: Any = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context
