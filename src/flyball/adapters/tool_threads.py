"""Threads for blocking tools of frameworks. A tool that hangs keeps neither the run nor the program from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ToolThreads(Executor):
    """Executor with a daemon thread for each call. The usual one waits for all of its threads at exit."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a call."""
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        Thread(target=work, name="flyball-tool", daemon=True).start()
        return future


TOOL_THREADS = ToolThreads()


class LoopThreads(ThreadPoolExecutor):
    """The same, in the form that an event loop accepts for `asyncio.to_thread`."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a call."""
        return TOOL_THREADS.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for nothing."""


async def run_apart(function: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Await a coroutine in an event loop of its own, whose blocking calls keep no other loop from ending."""

    async def call() -> T:
        return await function(*args)

    def work() -> T:
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(LoopThreads())
            return runner.run(call())

    return await asyncio.get_running_loop().run_in_executor(TOOL_THREADS, partial(copy_context().run, work))
