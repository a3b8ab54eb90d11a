"""Delivery of replies to the program: whole, or as one stream that may have parts of several replies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from secrets import token_hex
from typing import Any

from ..request import Reply
from ..wire.bodies import ErrorReply, Json, ReplyDraft, get_text
from ..wire.stream import ReadEvent
from .body import encode_json
from .continuation import Continuation
from .inbound import Inbound

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
_JSON: Headers = [(b"content-type", b"application/json")]
_EVENTS: Headers = [(b"content-type", b"text/event-stream; charset=utf-8")]


class UpstreamBroke(Exception):
    """Raised when a reply breaks off after its start, so that the program's must break off too."""


class Delivery:
    """Reply to one request of the program."""

    def __init__(self, send: Send, inbound: Inbound) -> None:
        self._send = send
        self._inbound = inbound
        self._continuation = Continuation(inbound.wire)
        self._items = 0
        """Items written to an array of events."""
        self._made_id: str | None = None
        self.is_started = False
        """True once a stream has begun, so that no status can be sent any more."""

    @property
    def is_joined(self) -> bool:
        """Whether the events that come stand behind those of another reply."""
        return self._continuation.is_joined

    @property
    def own_id(self) -> str | None:
        """Id that the program knows a joined stream, or a synthetic reply, by. None for any other reply."""
        return self._continuation.id if self._continuation.is_joined else self._made_id

    def begin_reply(self) -> None:
        """Append the next reply to the one that the program has so far."""
        if self.is_started:
            self._continuation.begin_reply()

    async def start(self, status: int, headers: Headers) -> None:
        """Begin a stream, unless it has begun."""
        if not self.is_started:
            self.is_started = True
            await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def pass_bytes(self, part: bytes) -> None:
        """Send a part of a stream as it came."""
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def pass_events(self, events: Iterable[ReadEvent]) -> None:
        """Send events, behind those of the earlier replies."""
        part = b"".join(map(self._write, events))
        if part:
            await self.pass_bytes(part)

    async def end(self) -> None:
        """End the stream."""
        rest = b""
        if self._inbound.is_array:
            rest = b"]" if self._items else b"[]"
        await self.end_bytes(rest)

    async def end_bytes(self, rest: bytes = b"") -> None:
        """End a stream whose bytes passed as they came."""
        await self._send({"type": "http.response.body", "body": rest})

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a complete response. Raises UpstreamBroke if a stream has begun."""
        if self.is_started:
            raise UpstreamBroke(f"the stream cannot be continued: status {status}")
        await send_whole(self._send, status, headers, body)

    async def send_error(self, status: int, message: str) -> None:
        """Send an error in the format of the provider."""
        body = self._inbound.wire.build_error(ErrorReply(status, message))
        await self.send_whole(status, _JSON, encode_json(body))

    async def send_events(self, status: int, headers: Headers, events: Iterable[ReadEvent]) -> None:
        """Send all events of a reply, and end the stream."""
        if self.is_started:
            await self.pass_events(events)
            await self.end()
            return
        body = b"".join(map(self._write, events))
        if self._inbound.is_array:
            body += b"]" if self._items else b"[]"
        await send_whole(self._send, status, headers, body)

    async def send_made_reply(self, reply: Reply) -> None:
        """Send a synthetic reply in the wire of the request, as a stream if it asks for one."""
        request, wire = self._inbound.request, self._inbound.wire
        draft = ReplyDraft(
            reply,
            id=f"flyball_{token_hex(8)}",
            model=request.model or "flyball",
            includes_usage=request.includes_usage,
        )
        self._made_id = get_text(wire.write_reply(draft), "id")
        if not request.stream:
            await self.send_whole(200, _JSON, encode_json(wire.write_reply(draft)))
            return
        events = [
            ReadEvent(event.encode(), event.data if isinstance(event.data, dict) else None, event.name or "")
            for event in wire.iter_events(draft)
        ]
        await self.send_events(200, _JSON if self._inbound.is_array else _EVENTS, events)

    def _write(self, event: ReadEvent) -> bytes:
        joined = self._continuation.join(event) if self._continuation.is_joined else event
        if joined is None:
            return b""
        self._continuation.note(joined)
        if self._inbound.is_array:
            return self._write_item(joined.json)
        return joined.raw or _write_event(joined.name, joined.json)

    def _write_item(self, data: Json | None) -> bytes:
        if data is None:  # brackets, which are written anew
            return b""
        self._items += 1
        return (b"[" if self._items == 1 else b",\r\n") + encode_json(data)


def _write_event(name: str, data: Json | None) -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + encode_json(data) + b"\n\n"


async def send_whole(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a complete response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
