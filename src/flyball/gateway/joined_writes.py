"""Transport of a connection of the gateway's server, which joins writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

_MAX_BYTES = 64 * 1_024
"""Bytes that are sent at once. The transport below then pauses a reply that its client does not read."""


class JoinedWrites(asyncio.Transport):
    """Transport that sends together what is written during one turn of the event loop.

    A send takes 40 µs, more than all else that is done for a part of a stream. The first two writes go at once, because
    they may be the head of a response and its first bytes.
    """

    def __init__(self, transport: asyncio.Transport, call_soon: Callable[[Callable[[], None]], object]) -> None:
        super().__init__()
        self._transport = transport
        self._call_soon = call_soon
        self._parts: list[bytes] = []
        self._size = 0
        self._has_begun = False
        """Whether something was written since the event loop turned."""
        self._has_sent = False
        """Whether something was sent since then."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data, at the latest when the event loop turns."""
        if not data:
            return
        self._parts.append(bytes(data))
        self._size += len(data)
        is_second = self._has_begun and not self._has_sent
        if not self._has_begun:
            self._has_begun = True
            self._call_soon(self._end_turn)
        if is_second or self._size >= _MAX_BYTES:
            self._has_sent = True
            self._send()

    def close(self) -> None:
        """Send what was written, and close the connection."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._parts.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Check whether the connection is closed or about to be."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Receive nothing until reading resumes."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact about the connection."""
        return self._transport.get_extra_info(name, default)

    def _end_turn(self) -> None:
        self._has_begun = self._has_sent = False
        self._send()

    def _send(self) -> None:
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
