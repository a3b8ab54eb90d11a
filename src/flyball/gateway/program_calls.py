"""Tool calls of the program: claimed from the replies, and ended by the results in later requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from ..event import ToolEnded, ToolStarted
from ..governor.governed_run import GovernedRun
from ..message import Message
from ..outcome import Failure, Outcome, Status, Success
from ..request import Reply
from ..tools.returned import reports_failure
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

    @property
    def may_deny(self) -> bool:
        """Whether a call may be denied, so that a reply must be read before its calls are handed on."""
        is_limited = self._budget.ceiling is not None or bool(self._options.limits.calls)
        return not self._options.observe and (is_limited or self._run.active_rules is not None)

    def judge(self, ticket: Ticket, reply: Reply | None, *, can_deny: bool) -> dict[int, str]:
        """Claim the calls of a reply. Returns the reasons for the denied ones, by their places in the reply.

        Without `can_deny`, the program has seen the calls already.
        """
        denied: dict[int, str] = {}
        if ticket.turn is None or ticket.is_last or reply is None:
            return denied
        self._show_rules(reply)
        final = find_final_tool(ticket.inbound.request.tools, self._options.final_tools)
        for place, call in enumerate(reply.calls):
            if final is not None and call.name == final["name"]:
                continue  # the program's answer
            arguments = call.arguments if isinstance(call.arguments, Mapping) else _parse(call.arguments)
            call_id = call.id or f"call-{ticket.turn.number}-{place}"
            if ticket.turn.claim_tool(call.name, arguments) or not can_deny or self._options.observe:
                ticket.chat.open_calls[call_id] = OpenCall(call.name, self._run.now(), has_id=bool(call.id))
                self._run.tell_about(ticket.turn, ToolStarted, call_id, call.name, arguments)
                continue
            denied[place] = reason = ticket.turn.denied or "the limit of tool calls is reached"
            self._run.tell_about(ticket.turn, ToolEnded, call_id, call.name, Status.DENIED.value, reason, 0.0)
            if ticket.turn.denied is None:
                self._run.record_refusal(self._run.envelope.refuse("tool_calls"))
        return denied

    def show_request(self, inbound: Inbound) -> None:
        """Let the rules see the messages of a request."""
        if self._run.active_rules is not None:
            self._run.active_rules.progress.messages = inbound.request.messages

    def _show_rules(self, reply: Reply) -> None:
        if self._run.active_rules is not None:
            progress = self._run.active_rules.progress
            progress.text, progress.calls = reply.text, reply.calls

    def has_none_left(self) -> bool:
        """Check whether the tool calls are used up, so that the next reply could only have calls that are refused.

        A program that may make none can still be answered, until its model asks for one.
        """
        budget = self._budget
        if budget.ceiling is None or budget.used < budget.ceiling:
            return False
        if not budget.ceiling and budget.to_response_flag() not in self._run.envelope.flags:
            return False
        self._run.record_refusal(self._run.envelope.refuse("tool_calls"))
        return True

    def count_at_provider(self, count: int) -> None:
        """Count calls that the provider made itself."""
        if count:
            self._budget.increment(count)

    def end(self, inbound: Inbound, chat: Chat) -> None:
        """Record the calls whose results came with a request, and consult the rules about them."""
        if not chat.open_calls:
            return
        found: list[Outcome] = []
        for message, is_new in inbound.iter_results():
            call_id = _find_call(message, chat, is_new=is_new)
            if call_id is not None:
                found.append(self._read_outcome(call_id, chat.open_calls.pop(call_id), message))
            if not chat.open_calls:
                break
        for outcome in reversed(found):  # the oldest first
            self._run.tell(ToolEnded, outcome.call_id, outcome.tool, outcome.status.value, None, outcome.seconds)
            if self._run.active_rules is not None:
                self._run.active_rules.record_outcome(outcome)
        for call_id in inbound.iter_call_ids() if chat.open_calls else ():
            call = chat.open_calls.pop(call_id, None)
            if call is not None:
                self._cancel(call_id, call, "the program continued without a result")

    def cancel(self, chat: Chat, reason: str) -> None:
        """Record that the open calls of a conversation get no result."""
        for call_id, call in chat.open_calls.items():
            self._cancel(call_id, call, reason)
        chat.open_calls.clear()

    def _cancel(self, call_id: str, call: OpenCall, reason: str) -> None:
        seconds = self._run.now() - call.started_at
        self._run.tell(ToolEnded, call_id, call.tool, Status.CANCELLED.value, reason, seconds)

    def _read_outcome(self, call_id: str, call: OpenCall, message: Message) -> Outcome:
        seconds, text = self._run.now() - call.started_at, message.content
        value = _parse_value(text)
        if (message.payload or {}).get("is_error") or reports_failure(value):
            return Failure(call_id=call_id, tool=call.tool, seconds=seconds, kind="UnsuccessfulResult", error=text)
        return Success.create(call_id, call.tool, seconds, text, value)


def _find_call(message: Message, chat: Chat, *, is_new: bool) -> str | None:
    """Return the id of the open call that a result is for. Gemini's may have none, so its name and order count."""
    payload = message.payload or {}
    call_id, name = str(payload.get("call_id")), payload.get("name")
    if call_id in chat.open_calls:
        return call_id
    if not is_new or name is None:
        return None
    unnamed = [key for key, call in chat.open_calls.items() if not call.has_id and call.tool == name]
    return unnamed[-1] if unnamed else None  # results come newest first


def _parse_value(text: str) -> object:
    """Return the value of a result that is a JSON object, or the text."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _parse(arguments: object) -> dict[str, Any]:
    """Return the arguments of a call for rules; {} if the model wrote no valid JSON object."""
    try:
        value: object = json.loads(arguments) if isinstance(arguments, str) else {}
    except (ValueError, RecursionError):
        value = {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
