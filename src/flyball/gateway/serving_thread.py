"""Thread with an event loop of its own, for as long as something is served on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

from ..errors import UsageError

_WAIT_S = 30.0
"""Seconds to wait for the start, and for the end."""


class ServingThread:
    """Daemon thread that enters an async context manager, and leaves it when it is stopped."""

    def __init__(self, name: str, serve: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._serve = serve
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Event loop of the thread, after `start`."""
        assert self._loop is not None
        return self._loop

    @property
    def is_current(self) -> bool:
        """Whether this code runs on the thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread, and wait until it serves. Raises what the start raises."""
        self._thread.start()
        if not self._started.wait(_WAIT_S):
            raise UsageError("the gateway did not start")
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop serving, and wait for the end of the thread. On the thread itself, only stop."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop ended by an error
                self._loop.call_soon_threadsafe(self._stopped.set)
        if not self.is_current:
            self._thread.join(_WAIT_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._serve():
            self._started.set()
            await self._stopped.wait()
