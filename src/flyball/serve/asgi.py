"""ASGI: the words in which a server and an app talk. Every framework has types of its own for them; these are ours."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from ..agent.run import Run

Scope = MutableMapping[str, Any]
"""What is known of a connection."""
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal, or a fault of ours: `code` is for programs, `message` for people."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    async def send(self, send: Send) -> None:
        """Answer with it, as RFC 9457 writes problems."""
        record = {"type": "about:blank", "status": self.status, "code": self.code, "detail": self.message}
        await send_json(send, self.status, "application/problem+json", record, self.headers)


async def send_json(
    send: Send, status: int, content_type: str, record: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> None:
    """Answer with JSON, whole."""
    body = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")
    more = {
        "content-type": content_type,
        "content-length": str(len(body)),
        "cache-control": "no-store",
        **(headers or {}),
    }
    await send({"type": "http.response.start", "status": status, "headers": encode_headers(more)})
    await send({"type": "http.response.body", "body": body})


def encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI wants them."""
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]


CANCELLED_BY_CLIENT = "client"
"""Who has cancelled a run whose client went away."""


class ClientGone(Exception):
    """The client does not take what is sent; nobody outside this room sees it."""


class Client:
    """Sends for as long as the client takes it; knows whether the answer has begun."""

    def __init__(self, send: Send, timeout_s: float) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self.started = False

    async def __call__(self, message: Message) -> None:
        """Send it, as ASGI has it; Gone where it is not taken."""
        self.started = True
        try:
            with anyio.fail_after(self._timeout_s):
                await self._send(message)
        except OSError as error:  # a TimeoutError is one, and so is what servers raise for a broken connection
            raise ClientGone from error


async def cancel_on_disconnect(receive: Receive, run: Run) -> None:
    """End a run whose client goes away."""
    while (await receive())["type"] != "http.disconnect":
        await anyio.lowlevel.checkpoint()
    run.cancel(CANCELLED_BY_CLIENT)
