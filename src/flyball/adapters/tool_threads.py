"""Threads for blocking tools of frameworks. A tool that hangs keeps neither the run nor the program from ending."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Thread
from typing import ParamSpec, TypeVar

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
