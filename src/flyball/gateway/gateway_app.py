"""ASGI app of the gateway: lets requests in and answers them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol

import httpx2

from ..wire.bodies import ErrorReply
from ..wire.wire import Wire
from .body import ClientLeft, Refused, decode_body, encode_json, parse_body, read_body
from .delivery import Delivery, Send, UpstreamBroke, send_whole
from .desk import Desk
from .door import Access, Route
from .exchange import Exchange
from .gateway_options import EngineOptions
from .inbound import Inbound, check_features
from .last_request import build_made_reply
from .ticket import Ticket
from .upstream import copy_headers, iter_bytes, select_headers
from .wires import guess_wire

log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Entrance(Protocol):
    """Check of requests before anything of them is read: the door of the gateway, or the addresses of providers."""

    def check(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[Route, dict[str, str]]:
        """Return where a request leads, and the key headers to send. Raises `Refused`."""
        ...


class GatewayApp:
    """App that stands between a program and its providers."""

    def __init__(self, options: EngineOptions, desk: Desk, entrance: Entrance, client: httpx2.AsyncClient) -> None:
        self._options = options
        self._desk = desk
        self._entrance = entrance
        self._client = client

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        wire: Wire | None = None
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            route, keys = self._entrance.check(scope, headers)
            wire = route.wire if route.access is Access.GOVERNED else None
            raw = await read_body(receive)
            query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
            inbound = self._read(scope["method"], route, headers, keys, query, raw)
            if inbound is None:
                await self._pass_unread(
                    scope["method"], route, query, select_headers(headers, keys), headers, raw, send
                )
            else:
                await self._govern(inbound, receive, send)
        except Refused as refusal:
            await self._send_refusal(refusal, wire or guess_wire(scope["raw_path"].decode("latin-1")), send)
        except (ClientLeft, UpstreamBroke, asyncio.CancelledError):
            raise ConnectionAbortedError from None  # the server closes the connection without a proper end
        except Exception:
            log.exception("unexpected exception in the gateway; please report this")
            raise

    def _read(
        self, method: str, route: Route, headers: Mapping[str, str], keys: Mapping[str, str], query: str, sent: bytes
    ) -> Inbound | None:
        """Return a request to govern, or None for one that passes unread. Raises `Refused`, unless it observes."""
        if route.access is Access.FREE:
            return None
        try:
            if route.access is Access.UNKNOWN:
                raise Refused(403, "path_refused", f"flyball does not govern {method} {route.path}, so it is refused")
            return self._parse(route, headers, keys, query, decode_body(sent, headers.get("content-encoding", "")))
        except Refused as refusal:
            if self._desk.observer is None:
                raise
            self._desk.observer.note(f"a request would have been refused, and its cost is not known: {refusal.message}")
            return None

    def _parse(
        self, route: Route, headers: Mapping[str, str], keys: Mapping[str, str], query: str, raw: bytes
    ) -> Inbound:
        body = parse_body(raw)
        if self._desk.observer is None:
            check_features(body)
        request = route.wire.parse_request(body, route.path)
        if not request.model:
            raise Refused(400, "model_missing", "the request names no model, so the gateway does not forward it")
        inbound = Inbound(route, headers, raw, body, request, query, keys)
        if self._desk.calls.may_deny and inbound.choice_count > 1:
            raise Refused(
                400, "choices_refused", "tool calls are limited, so a request may ask for one reply only: leave out n"
            )
        return inbound

    async def _govern(self, inbound: Inbound, receive: Receive, send: Send) -> None:
        left, delivery = asyncio.ensure_future(_wait_for_disconnect(receive)), Delivery(send, inbound)
        try:
            ticket = await self._desk.admit(inbound)
            if left.done():
                self._desk.abandon(ticket)
                raise ClientLeft
            while ticket is not None:
                ticket = await self._answer(ticket, left, delivery)
        except Refused as refusal:
            if delivery.is_started:
                raise UpstreamBroke(refusal.message) from None
            raise
        finally:
            left.cancel()

    async def _answer(self, ticket: Ticket, left: asyncio.Future[None], delivery: Delivery) -> Ticket | None:
        """Answer a request. Returns the last request that it becomes when the time for work is over, or None."""
        desk, inbound = self._desk, ticket.inbound
        if ticket.turn is None:
            try:
                await delivery.send_made_reply(build_made_reply(inbound, ticket.made_text, self._options.final_tools))
                desk.note_state(ticket.chat, inbound, None, delivery.own_id)
            finally:
                desk.close(ticket, delivered=True)
            return None
        exchange = Exchange(desk, self._client, ticket, delivery, self._options.final_tools)
        task = asyncio.ensure_future(exchange.run())
        try:
            while not task.done():
                is_final = ticket.is_last or exchange.handed_on or not ticket.turn.counts
                seconds = desk.time.report_s if is_final else desk.time.work_s
                await asyncio.wait({task, left}, timeout=_bound(seconds), return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    break
                if left.done():
                    await _cancel(task)
                    raise ClientLeft
                if (desk.time.report_s if is_final else desk.time.work_s) > 0:
                    continue  # the reserve or the deadline has moved
                if not is_final and exchange.handed_on:
                    continue
                exchange.must_charge = True
                await _cancel(task)
                desk.end_by_time()
                if exchange.handed_on:
                    raise ClientLeft
                if ticket.is_last or not ticket.turn.counts:
                    return desk.reports.make_last_reply(ticket)
                return await desk.end_conversation(inbound, ticket.chat)
        finally:
            if not task.done():  # this request itself was cancelled
                await _cancel(task)
        task.result()
        if exchange.follow_up is not None:
            delivery.begin_reply()
            return await desk.ask_again(exchange.follow_up, ticket.chat)
        return None

    async def _pass_unread(
        self,
        method: str,
        route: Route,
        query: str,
        sent_headers: dict[str, str],
        headers: Mapping[str, str],
        raw: bytes,
        send: Send,
    ) -> None:
        if "content-encoding" in headers:
            sent_headers["content-encoding"] = headers["content-encoding"]
        request = self._client.build_request(
            method, f"{route.upstream.url}{route.path}{query}", content=raw, headers=sent_headers
        )
        try:
            response = await self._client.send(request, stream=True, follow_redirects=False)
        except httpx2.TransportError as error:
            raise Refused(502, "upstream_unreachable", f"{route.upstream.name} cannot be reached: {error}") from None
        try:
            start = {"type": "http.response.start", "status": response.status_code, "headers": copy_headers(response)}
            await send(start)
            async for chunk in iter_bytes(response):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body"})
        except httpx2.TransportError as error:
            raise UpstreamBroke(str(error)) from None
        finally:
            await response.aclose()

    async def _send_refusal(self, refusal: Refused, wire: Wire, send: Send) -> None:
        body = wire.build_error(ErrorReply(refusal.status, f"flyball: {refusal.message}", refusal.code))
        headers = [(b"content-type", b"application/json"), (b"x-should-retry", b"false")]
        await send_whole(send, refusal.status, headers, encode_json(body))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # seen


def _bound(seconds: float) -> float | None:
    return None if seconds == float("inf") else max(0.0, seconds)
