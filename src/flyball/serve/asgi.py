"""ASGI types and responses, and the client connection of a request."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from ..agent.run import Run

Scope = MutableMapping[str, Any]
"""Connection data that the server passes to the app."""
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
CANCELLED_BY_CLIENT = "client"
"""`stopped_by` of a run whose client disconnected."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Error response: `code` is for programs, `message` for people."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    async def send(self, send: Send) -> None:
        """Send it as `application/problem+json` (RFC 9457)."""
        record = {"type": "about:blank", "status": self.status, "code": self.code, "detail": self.message}
        await send_json(send, self.status, "application/problem+json", record, self.headers)


async def send_json(
    send: Send, status: int, content_type: str, record: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> None:
    """Send a complete JSON response."""
    body = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")
    all_headers = {
        "content-type": content_type,
        "content-length": str(len(body)),
        "cache-control": "no-store",
        **(headers or {}),
    }
    await send({"type": "http.response.start", "status": status, "headers": encode_headers(all_headers)})
    await send({"type": "http.response.body", "body": body})


def encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Encode headers as ASGI expects them."""
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]


class ClientGone(Exception):
    """Raised when the client no longer accepts data; never leaves this package."""


class Client:
    """Wrapper of ASGI's `send` with a time limit per message."""

    def __init__(self, send: Send, timeout_s: float) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self.started = False
        """True once the response has started."""

    async def __call__(self, message: Message) -> None:
        """Send one ASGI message; raise `ClientGone` if the client does not accept it."""
        self.started = True
        try:
            with anyio.fail_after(self._timeout_s):
                await self._send(message)
        except OSError as error:  # includes TimeoutError and the broken-connection errors of servers
            raise ClientGone from error


async def cancel_on_disconnect(receive: Receive, run: Run) -> None:
    """Cancel the run when its client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        await anyio.lowlevel.checkpoint()
    run.cancel(CANCELLED_BY_CLIENT)
