"""Tool calls of the program: claimed from the replies, and ended by the results in later requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from ..event import ToolEnded, ToolStarted
from ..governor.governed_run import GovernedRun
from ..outcome import Status
from ..request import Reply
from .conversations import Chat, OpenCall
from .gateway_options import EngineOptions
from .inbound import Inbound
from .last_request import find_final_tool
from .ticket import Ticket


class ProgramCalls:
    """Claims the tool calls of a program, and denies those that a limit or a rule forbids."""

    def __init__(self, run: GovernedRun, options: EngineOptions) -> None:
        self._run = run
        self._options = options
        self._budget = run.envelope.budgets["tool_calls"]

    def may_deny(self, inbound: Inbound) -> bool:
        """Check whether a call of the reply may be denied, so that it must be read before it is handed on."""
        is_limited = self._budget.ceiling is not None or self._options.limits.calls
        return not self._options.observe and bool(inbound.request.tools and (is_limited or self._run.active_rules))

    def judge(self, ticket: Ticket, reply: Reply | None, *, can_deny: bool) -> dict[str, str]:
        """Claim the calls of a reply. Returns the reasons for the denied ones, by id.

        Without `can_deny`, the program has seen the calls already.
        """
        denied: dict[str, str] = {}
        if ticket.turn is None or not ticket.turn.counts or ticket.is_last or reply is None:
            return denied
        final = find_final_tool(ticket.inbound.request.tools, self._options.final_tools)
        for call in reply.calls:
            if final is not None and call.name == final["name"]:
                continue  # the program's answer
            arguments = call.arguments if isinstance(call.arguments, Mapping) else _parse(call.arguments)
            if ticket.turn.claim_tool(call.name, arguments) or not can_deny or self._options.observe:
                ticket.chat.open_calls[call.id] = OpenCall(call.name, self._run.now())
                self._run.tell_about(ticket.turn, ToolStarted, call.id, call.name, arguments)
                continue
            denied[call.id] = reason = ticket.turn.denied or "the limit of tool calls is reached"
            self._run.tell_about(ticket.turn, ToolEnded, call.id, call.name, Status.DENIED.value, reason, 0.0)
            if ticket.turn.denied is None:
                self._run.record_refusal(self._run.envelope.refuse("tool_calls"))
        return denied

    def has_none_left(self) -> bool:
        """Check whether the tool calls are used up, so that the next reply could only have calls that are refused."""
        budget = self._budget
        if budget.ceiling is None or budget.used < budget.ceiling or not budget.ceiling:
            return False
        self._run.record_refusal(self._run.envelope.refuse("tool_calls"))
        return True

    def count_at_provider(self, count: int) -> None:
        """Count calls that the provider made itself."""
        if count:
            self._budget.increment(count)

    def end(self, inbound: Inbound, chat: Chat) -> None:
        """Record the calls whose results came with a request."""
        for call_id in inbound.iter_call_ids() if chat.open_calls else ():
            call = chat.open_calls.pop(call_id, None)
            if call is not None:
                self._end(call_id, call, Status.DONE.value, None)
            if not chat.open_calls:
                return

    def cancel(self, chat: Chat, reason: str) -> None:
        """Record that the open calls of a conversation get no result."""
        for call_id, call in chat.open_calls.items():
            self._end(call_id, call, Status.CANCELLED.value, reason)
        chat.open_calls.clear()

    def _end(self, call_id: str, call: OpenCall, status: str, reason: str | None) -> None:
        seconds = self._run.now() - call.started_at
        self._run.tell(ToolEnded, call_id, call.tool, status, reason, seconds)


def _parse(arguments: object) -> dict[str, Any]:
    """Return the arguments of a call for rules; {} if the model wrote no valid JSON object."""
    try:
        value: object = json.loads(arguments) if isinstance(arguments, str) else {}
    except (ValueError, RecursionError):
        value = {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
