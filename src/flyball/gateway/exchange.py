"""Exchange of one request with the provider: sent, received, counted and handed on."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, cast

import httpx2

from ..errors import FlyballError
from ..request import Reply
from ..wire.bodies import ErrorReply, Json, ReplyDraft
from ..wire.formats import GEMINI
from ..wire.stream import ReadEvent, StreamReader
from .body import MAX_BODY_BYTES, encode_json
from .denial import EventEditor, answer_calls, drop_calls
from .desk import Desk
from .inbound import Inbound
from .last_request import build_made_reply, check_last_reply
from .server_tools import count_server_calls
from .ticket import Ticket
from .wires import drop_usage

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
HOP_HEADERS = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade", "host", "content-length", "accept-encoding", "expect",
    }
)  # fmt: skip
"""Headers of one connection, which are not passed on."""
_CONNECT_S = 30.0
_FRAME_BYTES = 150
"""Bytes of an event that are not content, roughly."""


class UpstreamBroke(Exception):
    """Raised when the provider's reply breaks off after its start, so that the program's must break off too."""


class Exchange:
    """One request to the provider, and its reply to the program."""

    def __init__(
        self, desk: Desk, client: httpx2.AsyncClient, ticket: Ticket, send: Send, final_tools: tuple[str, ...]
    ) -> None:
        self._desk = desk
        self._client = client
        self._ticket = ticket
        self._send = send
        self._final_tools = final_tools
        self._inbound = ticket.inbound
        self._reader = ReplyReader(ticket.inbound)
        self._settled = False
        self._delivered = False
        self.handed_on = False
        """True once a part of the reply was handed on, so that another one cannot replace it."""
        self.follow_up: Inbound | None = None
        """Request that the gateway makes itself, because all calls of the reply were denied."""
        self.must_charge = False
        """True if the gateway cancels the request, so that the provider may bill all of it."""

    async def run(self) -> None:
        """Send the request and hand on the reply."""
        try:
            await self._run()
        finally:
            self._end()

    async def _run(self) -> None:
        request = build_upstream_request(self._client, self._inbound, self._ticket.content)
        try:
            response = await self._client.send(request, stream=True, follow_redirects=False)
        except httpx2.TransportError as error:
            message = f"{self._inbound.route.upstream.name} cannot be reached: {type(error).__name__} {error}".strip()
            self._withdraw(message)
            await self._send_error(502, message)
            return
        try:
            if response.status_code >= 300:
                await self._pass_error(response)
                return
            turn = self._ticket.turn
            assert turn is not None
            turn.confirm()
            if self._ticket.is_last:
                await self._receive_last(response)
            elif is_stream(response) and self._desk.calls.may_deny(self._inbound):
                await self._pass_held_stream(response)
            elif is_stream(response):
                await self._pass_stream(response)
            else:
                await self._pass_whole(response)
        finally:
            with suppress(Exception):
                await response.aclose()

    async def _pass_error(self, response: httpx2.Response) -> None:
        try:
            body = await read_bounded(response)
        except httpx2.TransportError:
            body = b""
        self._withdraw(f"status {response.status_code}")
        await send_whole(self._send, response.status_code, copy_headers(response), body)

    async def _pass_whole(self, response: httpx2.Response) -> None:
        try:
            body = await read_bounded(response)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            self._settle()
            await self._send_error(502, f"the reply of {self._inbound.route.upstream.name} broke off: {error}")
            return
        self._reader.read_whole(body)
        denied = self._settle()
        if self._is_denied_wholly(denied):
            return
        if denied:
            body = encode_json(drop_calls(json.loads(body), denied))
        self.handed_on = True
        await send_whole(self._send, response.status_code, copy_headers(response), body)
        self._delivered = True

    def _is_denied_wholly(self, denied: dict[str, str]) -> bool:
        """Check whether all calls of the reply are denied, and prepare the request that follows."""
        reply = self._reader.build_reply()
        if not denied or reply is None or len(denied) < len(reply.calls):
            return False
        self._delivered = True
        self.follow_up = answer_calls(self._inbound, reply, denied, self._reader.state_id)
        return True

    async def _pass_held_stream(self, response: httpx2.Response) -> None:
        """Read a stream whole before it is handed on, because calls in it may be denied."""
        try:
            body = await read_bounded(response)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            self.handed_on = True
            raise UpstreamBroke(str(error)) from None
        events = [*self._reader.feed(body), *self._reader.close()]
        denied = self._settle()
        if self._is_denied_wholly(denied):
            return
        if denied:
            editor = EventEditor(denied)
            events = [event._replace(raw=editor.edit(event)) for event in events]
            body = b"".join(event.raw for event in events)
        if self._ticket.strips_usage:
            body = b"".join(map(drop_usage, events)) if not denied else body
        self.handed_on = True
        await send_whole(self._send, response.status_code, copy_headers(response), body)
        self._delivered = True

    async def _pass_stream(self, response: httpx2.Response) -> None:
        await self._send(
            {"type": "http.response.start", "status": response.status_code, "headers": copy_headers(response)}
        )
        self.handed_on = True  # an error status can no longer be sent
        try:
            async for chunk in iter_bytes(response):
                events = self._reader.feed(chunk)
                part = b"".join(map(drop_usage, events)) if self._ticket.strips_usage else chunk
                if part:
                    await self._send({"type": "http.response.body", "body": part, "more_body": True})
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise UpstreamBroke(str(error)) from None
        events = self._reader.close()
        self._settle(can_deny=False)
        rest = b"".join(map(drop_usage, events)) if self._ticket.strips_usage else b""
        await self._send({"type": "http.response.body", "body": rest})
        self._delivered = True

    async def _receive_last(self, response: httpx2.Response) -> None:
        """Read the last reply whole before a byte of it is handed on, because it must not have calls."""
        streams = is_stream(response)
        try:
            body = await read_bounded(response)
        except (httpx2.TransportError, httpx2.DecodingError):
            body = b""
        if streams:
            events = [*self._reader.feed(body), *self._reader.close()]
            if self._ticket.strips_usage:
                body = b"".join(map(drop_usage, events))
        else:
            self._reader.read_whole(body)
        reply = self._reader.build_reply()
        self._settle()
        chat = self._ticket.chat
        made = self._desk.reports.make(chat)
        instead = (
            build_made_reply(self._inbound, made, self._final_tools)
            if reply is None
            else check_last_reply(self._inbound, reply, self._final_tools, made)
        )
        self._desk.reports.note(chat, (instead or reply or Reply()).text)
        self.handed_on = True
        if instead is not None:
            await send_made_reply(self._send, self._inbound, instead)
        else:
            await send_whole(self._send, response.status_code, copy_headers(response), body)
        self._delivered = True

    async def _send_error(self, status: int, message: str) -> None:
        self.handed_on = True
        body = self._inbound.wire.build_error(ErrorReply(status, message))
        await send_whole(self._send, status, [(b"content-type", b"application/json")], encode_json(body))

    def _withdraw(self, message: str) -> None:
        self._settled = True
        self._desk.withdraw(self._ticket, message)

    def _settle(self, *, can_deny: bool = True) -> dict[str, str]:
        """Count the reply and its calls. Returns the reasons for denied calls, by id."""
        self._settled = True
        reader = self._reader
        reply = reader.build_reply()
        if reply is None and not reader.heard_bytes:  # it broke off, and the provider may bill all of it
            self._desk.charge(self._ticket)
            return {}
        self._desk.settle(self._ticket, reply, reader.heard_bytes, service_tier=reader.service_tier)
        self._desk.calls.count_at_provider(reader.server_calls)
        self._desk.note_state(self._ticket.chat, self._inbound, reader.state_id)
        return self._desk.calls.judge(self._ticket, reply, can_deny=can_deny)

    def _end(self) -> None:
        """Count what is not counted yet, because the exchange was cancelled or broke off."""
        if not self._settled:
            self._settled = True
            turn = self._ticket.turn
            assert turn is not None
            turn.confirm()
            if self.must_charge or not self._reader.heard_bytes:
                self._desk.charge(self._ticket)
            else:
                self._desk.settle(
                    self._ticket, self._reader.build_partial_reply(), self._reader.heard_bytes, service_tier=None
                )
        self._desk.close(self._ticket, delivered=self._delivered)


class ReplyReader:
    """Reads a reply as it passes, and never fails: what it does not understand is only not counted exactly."""

    def __init__(self, inbound: Inbound) -> None:
        self._parser = inbound.wire.create_parser(inbound.route.upstream.name)
        is_array = inbound.wire is GEMINI and "alt=sse" not in inbound.query
        self._stream = StreamReader(self._parser, is_array=is_array)
        self._is_broken = False
        self.service_tier: str | None = None
        """Service tier that the reply names. None means the usual one."""
        self.heard_bytes = 0
        """Bytes of the reply's content, roughly."""
        self.server_calls = 0
        """Calls that the provider made itself."""

    @property
    def state_id(self) -> str | None:
        """Id of the reply at the provider."""
        return self._parser.id

    def feed(self, chunk: bytes) -> list[ReadEvent]:
        """Return the events that this part of a stream completes."""
        return self._note(self._stream.feed(chunk))

    def close(self) -> list[ReadEvent]:
        """Return what is left at the end of a stream."""
        return self._note(self._stream.close())

    def read_whole(self, body: bytes) -> None:
        """Read a reply that is not streamed."""
        try:
            reply: object = json.loads(body)
            if isinstance(reply, dict):
                self._note_facts(cast("Json", reply))
                self.heard_bytes += len(body)
                self._parser.parse_reply(cast("Json", reply))
        except (ValueError, RecursionError, FlyballError):
            self._is_broken = True

    def build_reply(self) -> Reply | None:
        """Return the reply; None if it is not complete or not understood."""
        is_complete = self._parser.finish is not None or self._parser.usage is not None
        return self.build_partial_reply() if is_complete and not self._is_broken else None

    def build_partial_reply(self) -> Reply | None:
        """Return as much of the reply as was understood."""
        try:
            return self._parser.build_reply()
        except (ValueError, FlyballError):
            return None

    def _note(self, events: list[ReadEvent]) -> list[ReadEvent]:
        for event in events:
            if event.json is not None:
                self.heard_bytes += max(0, len(event.raw) - _FRAME_BYTES)
                self._note_facts(event.json)
        return events

    def _note_facts(self, event: Json) -> None:
        """Note what the parser does not read: service tier, and calls at the provider."""
        self.server_calls = max(self.server_calls, count_server_calls(event))
        for source in (event, event.get("response"), event.get("usage"), event.get("message")):
            if isinstance(source, dict) and isinstance(cast("Json", source).get("service_tier"), str):
                self.service_tier = cast("Json", source)["service_tier"]


def open_upstream_client(verify: ssl.SSLContext | bool = True, proxy: str | None = None) -> httpx2.AsyncClient:
    """Return a client for requests to providers. Deadlines are those of the run, so only connecting has a timeout."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    timeout = httpx2.Timeout(None, connect=_CONNECT_S)
    return httpx2.AsyncClient(limits=limits, timeout=timeout, follow_redirects=False, verify=verify, proxy=proxy)


def build_upstream_request(client: httpx2.AsyncClient, inbound: Inbound, content: bytes) -> httpx2.Request:
    """Return the request to the provider: the program's headers, with the real key."""
    return client.build_request(
        "POST",
        f"{inbound.route.upstream.url}{inbound.route.path}{inbound.query}",
        content=content,
        headers=select_headers(inbound.headers, inbound.keys),
    )


def select_headers(headers: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, str]:
    """Return the headers to send to the provider."""
    kept = {
        name: value
        for name, value in headers.items()
        if name not in HOP_HEADERS and name != "content-encoding" and not name.startswith("x-flyball-")
    }
    return {**kept, **keys, "accept-encoding": "identity"}


def copy_headers(response: httpx2.Response) -> list[tuple[bytes, bytes]]:
    """Return the headers of the provider's reply for the program."""
    dropped = HOP_HEADERS | {"content-encoding"}  # an encoded body is decoded
    return [
        (name.lower(), value) for name, value in response.headers.raw if name.lower().decode("latin-1") not in dropped
    ]


def is_stream(response: httpx2.Response) -> bool:
    """Check whether a reply is a stream of events."""
    return response.headers.get("content-type", "").startswith("text/event-stream")


def iter_bytes(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the body as it comes, decoded if the provider encoded it in spite of our wish."""
    return response.aiter_bytes() if "content-encoding" in response.headers else response.aiter_raw()


async def read_bounded(response: httpx2.Response) -> bytes:
    """Return the whole body. Raises DecodingError if it is too long."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in iter_bytes(response):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise httpx2.DecodingError(f"it has more than {MAX_BODY_BYTES:,} bytes")
    return b"".join(chunks)


async def send_whole(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    """Send a complete response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def send_made_reply(send: Send, inbound: Inbound, reply: Reply) -> None:
    """Send a synthetic reply in the wire of the request, as a stream if it asks for one."""
    request = inbound.request
    draft = ReplyDraft(reply, id="flyball", model=request.model or "flyball", includes_usage=request.includes_usage)
    if not request.stream:
        headers = [(b"content-type", b"application/json")]
        await send_whole(send, 200, headers, encode_json(inbound.wire.write_reply(draft)))
        return
    body = b"".join(event.encode() for event in inbound.wire.iter_events(draft))
    await send_whole(send, 200, [(b"content-type", b"text/event-stream; charset=utf-8")], body)
