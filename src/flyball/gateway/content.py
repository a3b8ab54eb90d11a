"""Body that is sent to the provider: the program's own, or one with what the limits change."""

from __future__ import annotations

from dataclasses import replace

from ..budget.run_budget import TurnBudget
from ..wire.bodies import Json, WireRequest
from .body import encode_json
from .door import Access
from .inbound import limit_thinking
from .last_request import build_last_request
from .server_tools import has_server_tools, limit_server_tools
from .ticket import Ticket


class ContentWriter:
    """Writes the bodies of the requests to the provider."""

    def __init__(self, envelope: TurnBudget, final_tools: tuple[str, ...], *, caps_replies: bool) -> None:
        self._calls = envelope.budgets["tool_calls"]
        self._final_tools = final_tools
        self._caps_replies = caps_replies
        self.hints: list[str] = []
        """Sentences for the user about the program's requests."""

    def write(self, ticket: Ticket, stop_sentence: str) -> None:
        """Set the body to send: the same bytes if nothing changes."""
        inbound = ticket.inbound
        changed = self._change(ticket, stop_sentence)
        limits_tools = self._calls.ceiling is not None and has_server_tools(inbound.body)
        if (changed is inbound.request and not limits_tools) or inbound.route.access is Access.COUNTED:
            ticket.content = inbound.raw
            return
        body: Json = dict(inbound.wire.write_request(changed))
        if changed.max_output_tokens is not None:
            limit_thinking(body, changed.max_output_tokens)
        if self._calls.ceiling is not None and limits_tools:
            limit_server_tools(body, inbound.wire, self._calls.ceiling, self._calls.ceiling - self._calls.used)
        ticket.content, ticket.strips_usage = encode_json(body), _adds_usage(inbound.request)

    def _change(self, ticket: Ticket, stop_sentence: str) -> WireRequest:
        inbound, turn = ticket.inbound, ticket.turn
        assert turn is not None
        request, cap = inbound.request, turn.max_output_tokens
        changed = replace(request, includes_usage=True) if _adds_usage(request) else request
        joined = ticket.chat.joined_ids.get(request.previous_id or "")
        if joined is not None:
            changed = replace(changed, previous_id=joined)
        is_lowered = cap is not None and request.max_output_tokens is not None and cap < request.max_output_tokens
        if cap is not None and (is_lowered or (self._caps_replies and request.max_output_tokens is None)):
            changed = replace(changed, max_output_tokens=max(cap, inbound.wire.min_output_tokens))
        if ticket.is_last:
            changed, hint = build_last_request(inbound, changed, self._final_tools, stop_sentence)
            if hint and hint not in self.hints:
                self.hints.append(hint)
        elif turn.messages_to_add and ticket.side is None:
            changed = replace(changed, notices=(*changed.notices, *turn.messages_to_add))
        return changed


def _adds_usage(request: WireRequest) -> bool:
    return request.stream and not request.includes_usage
