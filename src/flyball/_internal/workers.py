"""Threads that never keep a process from exiting: workers for what blocks, and an event loop for sync callers."""

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

from ..errors import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")


class WorkerThread(Protocol):
    """Whatever does what it is given in another thread, and then calls what comes of that, if anything does."""

    def start(self, work: Callable[[], Callable[[], object] | None]) -> None:
        """Do this next."""
        ...


class Worker:
    """One daemon thread, parked until there is work.

    What it is given must not raise. It may give something back, to be called when the worker is free again: who waits
    for it, and then wants a worker, finds this one.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._work: SimpleQueue[Callable[[], Callable[[], object] | None]] = SimpleQueue()
        Thread(target=self._run, name="flyball-worker", daemon=True).start()

    def start(self, work: Callable[[], Callable[[], object] | None]) -> None:
        """Do this next."""
        self._work.put(work)

    def _run(self) -> None:
        wanted = True
        while wanted:
            then = self._run_safely(self._work.get())
            wanted = self._pool.release(self)
            if then is not None:
                self._run_safely(then)

    def _run_safely(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except BaseException:
            log.exception("what a worker was given raised")
            return None


class WorkerPool:
    """Workers that are made when needed, reused, and given up when they hang.

    At most `workers` are in use at a time. One that hangs does not count any more, so it is replaced; but when `hung`
    reaches `most_hung`, nobody gets a worker until one of them comes back.
    """

    def __init__(self, max_workers: int = 32, max_hung: int = 100) -> None:
        self._max_workers = max_workers
        self._max_hung = max_hung
        self._reset()

    def _reset(self) -> None:
        """Without workers: at first, and in a forked child, where no thread of its parent lives."""
        self._pid = os.getpid()
        self._lock = Lock()
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._hung: set[Worker] = set()

    @property
    def exhausted(self) -> bool:
        """Whether so many hang that nobody gets a worker."""
        return len(self._hung) >= self._max_hung

    @property
    def hung(self) -> int:
        """How many workers were given up and have not come back."""
        return len(self._hung)

    def acquire(self) -> Worker | None:
        """A worker that is free, or None where there is none to be had now."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            if len(self._busy) >= self._max_workers or self.exhausted:
                return None
            try:
                worker = self._idle.pop() if self._idle else Worker(self)
            except RuntimeError:  # the machine has no thread left to give
                return None
            self._busy.add(worker)
            return worker

    def abandon(self, worker: Worker) -> None:
        """Count a worker as hung, if it is still at work."""
        with self._lock:
            if worker in self._busy:
                self._busy.discard(worker)
                self._hung.add(worker)

    def release(self, worker: Worker) -> bool:
        """Whether a worker that has finished is wanted again; one that was given up is not."""
        with self._lock:
            wanted = worker in self._busy
            self._busy.discard(worker)
            self._hung.discard(worker)
            if wanted:
                self._idle.append(worker)
            return wanted


class _ProcessLoop:
    """The event loop of one process, and the thread it runs in."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: Thread | None = None


class LoopThread:
    """One private event loop in a daemon thread, for callers that have none. A forked child makes its own."""

    def __init__(self) -> None:
        self._process_loops: dict[int, _ProcessLoop] = {}

    @property
    def _process_loop(self) -> _ProcessLoop:
        """Of this process: a forked child may have inherited a lock that nobody will release."""
        return self._process_loops.setdefault(os.getpid(), _ProcessLoop())  # one step, if many threads come first

    def run(self, create_coroutine: Callable[[], Coroutine[Any, Any, T]], alternative: str) -> T:
        """Run a coroutine there and wait for it. Ctrl-C cuts it, gives it 5 seconds to close, and is raised again."""
        self.raise_if_inside(alternative)
        closed = Event()

        async def closing() -> T:
            try:
                return await create_coroutine()
            finally:
                closed.set()

        future = self.start(closing)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            closed.wait(5.0)  # a cancelled future says that it is done before its task has closed
            raise
        except FutureCancelled:
            raise asyncio.CancelledError from None

    def start(self, create_coroutine: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine there, with the context variables of who asks."""
        return copy_context_for_thread().run(
            asyncio.run_coroutine_threadsafe, create_coroutine(), self._ensure_started()
        )

    def raise_if_inside(self, alternative: str) -> None:
        """Raise where waiting would wait for itself: on the loop's own thread."""
        if self._process_loop.thread is current_thread():
            raise ConfigError("a sync call", "the private event loop's own thread", f"{alternative} there")

    def _ensure_started(self) -> asyncio.AbstractEventLoop:
        home = self._process_loop
        with home.lock:
            if home.loop is None:
                home.loop = asyncio.new_event_loop()
                home.thread = Thread(target=_run_for_ever, args=(home.loop,), name="flyball-loop", daemon=True)
                home.thread.start()
            return home.loop


PRIVATE_LOOP = LoopThread()
"""The one of this process."""


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    """Whatever a task raises: a SystemExit ends a loop, and everybody else who uses this one would wait for ever."""
    while True:
        try:
            return loop.run_forever()
        except BaseException:
            log.exception("a task tried to end the private event loop")


def copy_context_for_thread() -> contextvars.Context:
    """The context variables of who asks, for another thread: all but the one that says which event loop runs here."""
    context = contextvars.copy_context()
    sniffio: Any = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context


def is_being_cancelled() -> bool:
    """Whether somebody really cancels the current task; a tool may raise asyncio's CancelledError by itself."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio, whose Cancelled nobody else can raise
        return True
    return task is None or task.cancelling() > 0


async def wait_for_worker(pool: WorkerPool, is_late: Callable[[], bool]) -> Worker | None:
    """A worker as soon as one is free; None once it is too late, or where too many hang."""
    pause_s = 0.001
    while (worker := pool.acquire()) is None:
        if pool.exhausted or is_late():
            return None
        await anyio.sleep(pause_s)
        pause_s = min(0.05, pause_s * 1.5)
    return worker


async def run_in_worker(pool: WorkerPool, work: Callable[[], T]) -> T:
    """What a function gives, or raises, that may block. Nothing cuts it short: nobody would know what it has done."""
    came: Future[T] = Future()

    def run() -> None:
        try:
            came.set_result(work())
        except BaseException as error:
            came.set_exception(error)

    with anyio.CancelScope(shield=True):
        worker = await wait_for_worker(pool, lambda: False)
        if worker is None:
            raise RuntimeError(f"no worker is free; {pool.hung} hang")
        await run_and_wait(worker, run, inf)
    return came.result(0)


def loop_time() -> float:
    """The time of the event loop that runs here; asyncio's in a quarter of the time that anyio takes."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:  # trio
        return anyio.current_time()


def get_call_soon() -> Callable[[Callable[[], object]], object]:
    """How another thread has something done in the event loop that runs here, asyncio's or trio's."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio.lowlevel

        return trio.lowlevel.current_trio_token().run_sync_soon


async def run_and_wait(
    worker: WorkerThread, work: Callable[[], Callable[[], object] | None], max_seconds: float
) -> bool:
    """Have a worker, or another hand, do something and wait until it has, for at most so long: False when that is over.

    A thread cannot be interrupted, so a timer is all it takes. Where `work` gives something back, it came too late:
    that is called in the event loop then, or by the worker if the loop is gone.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return await _run_and_wait_in_trio(worker, work, max_seconds)
    done: asyncio.Future[bool] = loop.create_future()
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
    def notify(late: Callable[[], object] | None) -> None:
        try:
            call_soon(late or done)
        except RuntimeError:  # the event loop is closed
            if late is not None:
                late()

    return lambda: partial(notify, work())
