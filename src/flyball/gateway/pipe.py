"""Pipe between a caller, on any thread or event loop, and the app that answers its request on another one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar

import anyio

from .._internal.workers import get_call_soon

T = TypeVar("T")
Message = MutableMapping[str, Any]

_MAX_BUFFERED_BYTES = 256 * 1_024
"""Bytes of a response that wait for the caller before the app waits too."""


class PipeBroken(Exception):
    """Raised to the caller when the response breaks off."""


class Pipe:
    """One request and its response. The app has `receive` and `send`, the caller everything else."""

    def __init__(self, scope: Message, body: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self.scope = scope
        self._body: bytes | None = body
        self._loop = loop
        self._pid = os.getpid()
        self._left = asyncio.Event()
        self._room = asyncio.Event()
        self._lock = threading.Lock()
        self._messages: deque[Message] = deque()
        self._buffered = 0
        self._has_left = False
        self._has_ended = False
        self._error = ""
        self._wake: Callable[[], object] = _do_nothing
        """Function that wakes the waiting caller."""
        self.is_complete = False
        """Whether the caller has the whole response."""

    async def receive(self) -> Message:
        """Return the request, and later that the caller has left."""
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Hand on a part of the response. Wait while the caller has many parts to read."""
        with self._lock:
            if self._has_left:
                return
            self._messages.append(message)
            self._buffered += len(message.get("body", b""))
            is_full = self._buffered > _MAX_BUFFERED_BYTES and message.get("more_body", False)
            if is_full:
                self._room.clear()
        self._notify()
        if is_full:
            await self._room.wait()

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Answer the request without the app."""
        self._messages.append({"type": "http.response.start", "status": status, "headers": headers})
        self._messages.append({"type": "http.response.body", "body": body})
        self._buffered += len(body)
        self._has_ended = True

    def end(self, error: str = "") -> None:
        """Note that the app has ended, with an error if the response is not complete."""
        with self._lock:
            self._has_ended, self._error = True, error
        self._notify()

    def leave(self) -> None:
        """Tell the app that the caller wants no more of the response."""
        if self._is_forked:
            return
        with self._lock:
            if self._has_left or self._has_ended or self.is_complete:
                return
            self._has_left = True
            self._messages.clear()
        self._call_soon(self._left.set)
        self._call_soon(self._room.set)

    def read(self, seconds: float | None) -> Message:
        """Return the next part of the response. Raises TimeoutError after `seconds`, or PipeBroken."""
        return self._wait(self._take, seconds)

    async def aread(self, seconds: float | None) -> Message:
        """Return the next part of the response without blocking the event loop."""
        return await self._await(self._take, seconds)

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the app has ended."""
        with suppress(TimeoutError, PipeBroken):
            self._wait(self._find_end, seconds)

    async def await_end(self, seconds: float) -> None:
        """Wait until the app has ended, without blocking the event loop."""
        with suppress(TimeoutError, PipeBroken):
            await self._await(self._find_end, seconds)

    def _wait(self, find: Callable[[Callable[[], object]], T | None], seconds: float | None) -> T:
        self._check_process()
        found_more = threading.Event()
        while (found := find(found_more.set)) is None:
            if not found_more.wait(seconds):
                raise TimeoutError
            found_more.clear()
        return found

    async def _await(self, find: Callable[[Callable[[], object]], T | None], seconds: float | None) -> T:
        self._check_process()
        call_soon = get_call_soon()
        while True:
            found_more = anyio.Event()
            found = find(lambda event=found_more: call_soon(event.set))
            if found is not None:
                return found
            with anyio.move_on_after(seconds):
                await found_more.wait()
            if not found_more.is_set():
                raise TimeoutError

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def _check_process(self) -> None:
        """Raise PipeBroken in a process that was forked meanwhile: the app runs in the other one."""
        if self._is_forked:
            raise PipeBroken("the response belongs to the process that this one was forked from")

    def _take(self, wake: Callable[[], object]) -> Message | None:
        """Return the next part, or None if `wake` will be called for it."""
        with self._lock:
            if not self._messages:
                if self._has_ended or self._has_left:
                    raise PipeBroken(self._error or "the response was closed")
                self._wake = wake
                return None
            message = self._messages.popleft()
            was_full = self._buffered > _MAX_BUFFERED_BYTES
            self._buffered -= len(message.get("body", b""))
            has_room = was_full and self._buffered <= _MAX_BUFFERED_BYTES
            self.is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        if has_room:
            self._call_soon(self._room.set)
        return message

    def _find_end(self, wake: Callable[[], object]) -> bool | None:
        with self._lock:
            self._wake = wake
            return True if self._has_ended else None

    def _notify(self) -> None:
        with self._lock:
            wake, self._wake = self._wake, _do_nothing
        with suppress(RuntimeError):  # the caller's event loop is closed
            wake()

    def _call_soon(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the app's event loop is closed
            self._loop.call_soon_threadsafe(function)


def _do_nothing() -> None:
    pass
