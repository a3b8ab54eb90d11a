"""Body that is sent to the provider: the program's own, or one with what the limits change."""

from __future__ import annotations

from dataclasses import replace

from ..budget.run_budget import TurnBudget
from ..wire.bodies import Json, WireRequest
from ..wire.formats import GEMINI
from .body import encode_json
from .door import Access
from .inbound import Inbound, limit_thinking
from .last_request import ask_for_one_reply, build_last_request
from .needs import Needs
from .server_tools import MAX_PAID_USES, drop_tools, find_kinds, limit_server_tools
from .ticket import Ticket


class ContentWriter:
    """Writes the bodies of the requests to the provider."""

    def __init__(self, envelope: TurnBudget, final_tools: tuple[str, ...], needs: Needs) -> None:
        self._calls = envelope.budgets["tool_calls"]
        self._final_tools = final_tools
        self._needs = needs
        self.hints: list[str] = []
        """Sentences for the user about the program's requests."""

    def write(self, ticket: Ticket, stop_sentence: str) -> None:
        """Set the body to send: the same bytes if nothing changes."""
        inbound = ticket.inbound
        changed, dropped = self._change(ticket, stop_sentence), self._find_dropped(ticket)
        ceiling = self._find_max_server_calls(inbound)
        if (changed is inbound.request and not dropped and ceiling is None) or inbound.route.access is Access.COUNTED:
            ticket.content = inbound.raw
            return
        body: Json = dict(inbound.wire.write_request(changed))
        if changed.max_output_tokens is not None:
            limit_thinking(body, changed.max_output_tokens)
        if ticket.is_last:
            body = ask_for_one_reply(body)
        if dropped:
            body = drop_tools(body, inbound.wire, dropped)
        if ceiling is not None and body.get("tools"):
            limit_server_tools(body, inbound.wire, *ceiling)
        ticket.content, ticket.strips_usage = encode_json(body), _adds_usage(inbound.request)

    def _find_dropped(self, ticket: Ticket) -> set[str]:
        """Return the kinds of tools at the provider that are not offered to the model."""
        inbound = ticket.inbound
        dropped = self._needs.find_unpriced_tools(inbound)
        for kind in sorted(dropped):
            self._hint(
                f"{kind} of the provider was not offered to the model, because its fee is not known and money is "
                "limited (--unpriced tokens_only offers it)"
            )
        if ticket.is_last and inbound.wire is GEMINI:  # its choice of tools is about functions only
            dropped |= find_kinds(inbound.body, inbound.wire)
        return dropped

    def _find_max_server_calls(self, inbound: Inbound) -> tuple[int, int] | None:
        """Return the maximum of calls at the provider for the run, and for this request. None means no limit."""
        if not find_kinds(inbound.body, inbound.wire):
            return None
        calls = self._calls
        ceilings = [] if calls.ceiling is None else [(calls.ceiling, calls.ceiling - calls.used)]
        if self._needs.find_fee(inbound):
            ceilings.append((MAX_PAID_USES, MAX_PAID_USES))
        return None if not ceilings else (min(row[0] for row in ceilings), min(row[1] for row in ceilings))

    def _hint(self, sentence: str) -> None:
        if sentence not in self.hints:
            self.hints.append(sentence)

    def _change(self, ticket: Ticket, stop_sentence: str) -> WireRequest:
        inbound, turn = ticket.inbound, ticket.turn
        assert turn is not None
        request, cap = inbound.request, turn.max_output_tokens
        if cap is not None and not ticket.is_last:
            cap //= inbound.choice_count
        changed = replace(request, includes_usage=True) if _adds_usage(request) else request
        if request.previous_id in ticket.chat.own_ids:
            changed = replace(changed, previous_id=ticket.chat.own_ids[request.previous_id])
        is_lowered = cap is not None and request.max_output_tokens is not None and cap < request.max_output_tokens
        if cap is not None and (is_lowered or (self._needs.is_limited and request.max_output_tokens is None)):
            changed = replace(changed, max_output_tokens=max(cap, inbound.wire.min_output_tokens))
        if ticket.is_last:
            changed, hint = build_last_request(inbound, changed, self._final_tools, stop_sentence)
            if hint:
                self._hint(hint)
        elif turn.messages_to_add and ticket.side is None:
            changed = replace(changed, notices=(*changed.notices, *turn.messages_to_add))
        return changed


def _adds_usage(request: WireRequest) -> bool:
    return request.stream and not request.includes_usage
