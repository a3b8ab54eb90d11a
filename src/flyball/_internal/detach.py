"""Foreign coroutines that may ignore their cancellation. On asyncio they are left behind after a second.

A task that catches `CancelledError` and continues cannot be ended. So such code runs in a task that can be left behind:
its caller continues without it. Trio has no task that its parent does not wait for. There the caller waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any, Protocol, TypeVar

import anyio

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

CHECKS = 10
CHECK_EVERY_S = 0.1
"""Foreign code may take this long to end after its cancel. Checks that are counted, because a timer alone would be
unjust to code in an event loop that was blocked for that long."""


def leave_behind(task: asyncio.Task[Any], scope: anyio.CancelScope | None) -> None:
    """Stop waiting for a task that ignores its cancellation. No code waits for its end or reads its result."""
    handle = getattr(scope, "_cancel_handle", None)
    if handle is not None:
        handle.cancel()  # anyio cancels the task again in each cycle of the event loop, which would take all its time
    asyncio.tasks._unregister_task(task)  # `asyncio.run` would wait for it # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
    task.add_done_callback(_read_outcome)


def _read_outcome(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # otherwise asyncio would log that it was never read


async def run_detachable(
    function: Callable[[], Awaitable[T]], seconds: float, on_left: Callable[[], object]
) -> T | None:
    """Await a foreign function for at most so many seconds, and return its result. None means that it was cancelled.

    If it ignores its cancellation, `on_left` is called, and it is left behind. If the caller is cancelled, the function
    is cancelled first.
    """
    scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
    if asyncio._get_running_loop() is None:  # trio
        with scope:
            return await function()
        return None
    task = asyncio.get_running_loop().create_task(_run_in_scope(function, scope))
    cancelled: asyncio.CancelledError | None = None
    try:
        await asyncio.wait([task], timeout=None if seconds == inf else max(0.0, seconds))
    except asyncio.CancelledError as error:
        cancelled = error
        scope.cancel()
    if not task.done():
        with anyio.CancelScope(shield=True):
            cancelled = await _wait_for_end(task) or cancelled
    if not task.done():
        leave_behind(task, scope)
        on_left()
    if cancelled is not None:
        task.add_done_callback(_read_outcome)
        raise cancelled
    return task.result() if task.done() else None


async def _run_in_scope(function: Callable[[], Awaitable[T]], scope: anyio.CancelScope) -> T | None:
    with scope:
        return await function()
    return None


async def _wait_for_end(task: asyncio.Task[Any]) -> asyncio.CancelledError | None:
    """Wait a limited time for a task that was cancelled. Return a cancellation of the caller that came meanwhile."""
    cancelled = None
    for _ in range(CHECKS):
        if task.done():
            break
        try:
            await asyncio.wait([task], timeout=CHECK_EVERY_S)
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


class Detachable(Protocol[T_co]):
    """Owner of work in a task that can be left behind."""

    def signal_cancelled(self) -> None:
        """Learn that the caller was cancelled. The work then ends."""
        ...

    def continue_without(self, task: asyncio.Task[Any], /) -> Coroutine[Any, Any, T_co]:
        """Return the work that follows when this task is left behind."""
        ...


class DetachableTask:
    """Task in which a run is driven. When it hangs, the run continues in a new task.

    A task for each foreign call would cost more than a turn of the loop. So the calls are awaited directly, and the
    task of the whole run is left behind.
    """

    __slots__ = ("_is_left", "_loop", "_task", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_left = False

    def leave(self) -> None:
        """Stop waiting for the current task. `run` then continues with other work."""
        self._is_left = True
        self._wake()

    async def run(self, work: Coroutine[Any, Any, T], owner: Detachable[T]) -> T:
        """Run `work` in a task of its own and return its result.

        If the caller is cancelled, the owner learns it, and the cancellation is raised after the end of the work.
        """
        cancelled: asyncio.CancelledError | None = None
        while True:
            task = self._task = self._loop.create_task(self._catch(work))
            task.add_done_callback(self._wake)  # for a task that is cancelled before it starts
            while not task.done() and not self._is_left:
                waiter = self._waiter = self._loop.create_future()
                try:
                    if cancelled is None:
                        await waiter
                    else:
                        with anyio.CancelScope(shield=True):
                            await waiter
                except asyncio.CancelledError as error:
                    if cancelled is None:
                        cancelled = error
                        owner.signal_cancelled()
            if task.done():
                break
            self._is_left = False
            work = owner.continue_without(task)
        outcome = task.result() if cancelled is None or not task.cancelled() else None
        if cancelled is not None:
            raise cancelled
        assert outcome is not None, "a task that was not cancelled has its outcome"
        value, error = outcome
        if error is not None:
            raise error
        return value

    async def _catch(self, work: Coroutine[Any, Any, T]) -> tuple[Any, BaseException | None]:
        """Return the result of the work, or its error: Ctrl-C raised in a task would end the event loop."""
        if self._task is not None:
            self._task.remove_done_callback(self._wake)
        try:
            return await work, None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return None, error
        finally:
            self._wake()  # one cycle of the event loop before the callback of the task would

    def _wake(self, _: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
