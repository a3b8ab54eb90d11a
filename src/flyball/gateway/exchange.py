"""Exchange of one request with the provider: sent, received, counted and handed on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

import httpx2

from ..request import Reply
from ..wire.stream import ReadEvent
from .body import encode_json
from .call_filter import CallFilter, CallHolder
from .delivery import Delivery, UpstreamBroke
from .denial import answer_calls
from .desk import Desk
from .door import Access
from .inbound import Inbound
from .last_request import build_made_reply, check_last_reply
from .reply_reader import ReplyReader
from .ticket import Ticket
from .upstream import build_upstream_request, copy_headers, is_stream, iter_bytes, read_bounded
from .wires import drop_usage

_UNCLEAR = "the reply of {name} cannot be read, so its tool calls cannot be checked against the limits and rules"


class Exchange:
    """One request to the provider, and its reply to the program."""

    def __init__(
        self,
        desk: Desk,
        client: httpx2.AsyncClient,
        ticket: Ticket,
        delivery: Delivery,
        final_tools: tuple[str, ...],
    ) -> None:
        self._desk = desk
        self._client = client
        self._ticket = ticket
        self._delivery = delivery
        self._final_tools = final_tools
        self._inbound = ticket.inbound
        self._reader = ReplyReader(ticket.inbound)
        self._settled = False
        self._delivered = False
        self._may_deny = desk.calls.may_deny and ticket.inbound.route.access is Access.GOVERNED
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
        self._desk.plan.note_reply(response.headers)
        try:
            if response.status_code >= 300:
                await self._pass_error(response)
                return
            turn = self._ticket.turn
            assert turn is not None
            turn.confirm()
            if self._ticket.is_last:
                await self._receive_last(response)
            elif is_stream(response, self._inbound):
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
        await self._delivery.send_whole(response.status_code, copy_headers(response), body)

    async def _pass_whole(self, response: httpx2.Response) -> None:
        name = self._inbound.route.upstream.name
        try:
            body = await read_bounded(response)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            self._settle()
            await self._send_error(502, f"the reply of {name} broke off: {error}")
            return
        self._reader.read_whole(body)
        denied = self._settle()
        if self._may_deny and not self._reader.is_clear:
            await self._send_error(502, _UNCLEAR.format(name=name))
            return
        if self._is_denied_wholly(denied):
            return
        if denied:
            body = encode_json(CallFilter(self._inbound.wire, denied).edit_reply(json.loads(body)))
        self.handed_on = True
        await self._delivery.send_whole(response.status_code, copy_headers(response), body)
        self._delivered = True

    def _is_denied_wholly(self, denied: dict[int, str]) -> bool:
        """Check whether all calls of the reply are denied, and prepare the request that follows."""
        reply = self._reader.build_reply() if denied else None
        if reply is None or len(denied) < len(reply.calls):
            return False
        self._delivered = True
        self.follow_up = answer_calls(self._inbound, reply, denied, self._reader.state_id, self._reader.call_kinds)
        return True

    async def _pass_stream(self, response: httpx2.Response) -> None:
        """Hand a stream on as it comes. From its first call on it is held back while calls may be denied."""
        delivery, may_deny, holder = self._delivery, self._may_deny, CallHolder(self._inbound.wire)
        is_edited = may_deny or self._ticket.strips_usage or delivery.is_joined
        await delivery.start(response.status_code, copy_headers(response))
        try:
            async for chunk in iter_bytes(response):
                events = self._reader.feed(chunk)
                if not is_edited:
                    self.handed_on = True
                    await delivery.pass_bytes(chunk)
                else:
                    events = holder.take(events) if may_deny else events
                    self.handed_on = self.handed_on or bool(events)
                    await delivery.pass_events(self._prepare(events))
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise UpstreamBroke(str(error)) from None
        events = self._reader.close()
        events = holder.take(events) if may_deny else events
        denied = self._settle(can_deny=may_deny)
        if holder.has_call and not self._reader.is_clear:
            raise UpstreamBroke(_UNCLEAR.format(name=self._inbound.route.upstream.name))
        if is_edited:
            await delivery.pass_events(self._prepare(events))
        if self._is_denied_wholly(denied):
            return
        self.handed_on = True
        if not is_edited:
            await delivery.end_bytes()
        else:
            held = holder.held
            if denied:
                call_filter = CallFilter(self._inbound.wire, denied)
                held = [edited for event in held if (edited := call_filter.edit_event(event)) is not None]
            await delivery.pass_events(self._prepare(held))
            await delivery.end()
        self._delivered = True

    def _prepare(self, events: list[ReadEvent]) -> Iterable[ReadEvent]:
        """Return the events without a usage that the program did not ask for."""
        if not self._ticket.strips_usage:
            return events
        return [kept for event in events if (kept := drop_usage(event)) is not None]

    async def _receive_last(self, response: httpx2.Response) -> None:
        """Read the last reply whole before a byte of it is handed on, because it must not have calls."""
        streams, events = is_stream(response, self._inbound), list[ReadEvent]()
        try:
            body = await read_bounded(response)
        except (httpx2.TransportError, httpx2.DecodingError):
            body = b""
        if streams:
            events = [*self._reader.feed(body), *self._reader.close()]
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
            await self._delivery.send_made_reply(instead)
            self._desk.note_state(chat, self._inbound, self._reader.state_id, self._delivery.own_id)
        elif streams:
            await self._delivery.send_events(response.status_code, copy_headers(response), self._prepare(events))
        else:
            await self._delivery.send_whole(response.status_code, copy_headers(response), body)
        self._delivered = True

    async def _send_error(self, status: int, message: str) -> None:
        self.handed_on = True
        await self._delivery.send_error(status, message)

    def _withdraw(self, message: str) -> None:
        self._settled = True
        self._desk.withdraw(self._ticket, message)

    def _settle(self, *, can_deny: bool = True) -> dict[int, str]:
        """Count the reply and its calls. Returns the reasons for denied calls, by their places."""
        self._settled = True
        reader = self._reader
        reply = reader.build_reply()
        if reply is None and not reader.heard_bytes:  # it broke off, and the provider may bill all of it
            self._desk.charge(self._ticket)
            return {}
        self._desk.settle(self._ticket, reply, reader)
        self._desk.calls.count_at_provider(reader.server_calls.total)
        self._desk.note_state(self._ticket.chat, self._inbound, reader.state_id, self._delivery.own_id)
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
                self._desk.settle(self._ticket, self._reader.build_partial_reply(), self._reader)
        self._desk.close(self._ticket, delivered=self._delivered)
