"""What is left of a run that has not ended: in the form of a record, as far as the store has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from .._internal.jsonable import to_jsonable
from ..budget.snapshot import BudgetSnapshot
from ..message import Message, MessageType, Role
from ..outcome import BaseOutcome
from ..request import Reply
from ..unit import Unit
from .record import JsonReader

if TYPE_CHECKING:
    from ..store import Row

_BUDGETS = {"turns": "steps", "tool_calls": "tool_calls", "tokens": "tokens", "usd": "usd"}
"""The budgets that are told, and what the first event calls them."""


def build_partial_record(events: Sequence[Mapping[str, Any]], messages: Sequence[Message]) -> dict[str, Any]:
    """What its events and messages tell, under the keys of a record.

    What a call was made with is shown as its events have it: they hide what is sensitive, the messages do not.
    """
    told = [JsonReader(event) for event in events]
    given = {one.text("call_id"): one.get("arguments") for one in told if one.text("event") == "tool_started"}
    ended = {one.text("call_id"): one for one in told if one.text("event") == "tool_ended"}
    replies = [one for one in told if one.text("event") == "model_replied"]
    requests = [one for one in told if one.text("event") == "model_requested"]
    usage = {
        "input": sum(one.integer("input_tokens") for one in replies),
        "output": sum(one.integer("output_tokens") for one in replies),
    }
    turns = max((one.integer("turn") for one in told), default=0)
    used = {"turns": turns, "tool_calls": len(ended), "tokens": sum(usage.values())}
    return {
        "events": list(events),
        "events_dropped": 0,
        "messages": [_message_to_dict(message, given) for message in messages],
        "tool_execution_results": [
            _outcome_to_dict(message, ended) for message in messages if message.type is MessageType.TOOL_RESULT
        ],
        "text": next((one.content for one in reversed(messages) if _is_reply_text(one)), ""),
        "turns": turns,
        "requests": len(requests),
        "usage": usage,
        "unpriced": sorted({one.text("model") for one in requests} - {""}),
        "seconds": max((one.number("at") for one in told), default=0.0),
        "flags": [one.text("flag") for one in told if one.text("event") == "budget_refused"],
        "budgets": _build_budgets(next((one.nested("limits") for one in told), JsonReader({})), used),
    }


def _is_reply_text(message: Message) -> bool:
    return message.role is Role.ASSISTANT and message.type is MessageType.TEXT and bool(message.content.strip())


def _message_to_dict(message: Message, arguments: Mapping[str, object]) -> dict[str, Any]:
    payload = None if message.payload is None else {str(key): to_jsonable(one) for key, one in message.payload.items()}
    if message.type is MessageType.TOOL_CALL and payload is not None:
        payload["arguments"] = arguments.get(str(payload.get("call_id")))
    return {
        "id": message.id,
        "type": message.type.value,
        "role": message.role.value,
        "content": message.content,
        "payload": payload,
    }


def _outcome_to_dict(message: Message, ended_calls: Mapping[str, JsonReader]) -> dict[str, Any]:
    call_id = str((message.payload or {}).get("call_id"))
    status = ended_calls.get(call_id, JsonReader({})).text("status")
    return {"call_id": call_id, "status": status, "text": message.content}


def _build_budgets(limits: JsonReader, used: Mapping[str, int]) -> dict[str, Any]:
    """What was used of what it began with; money is not among its events."""
    shown: dict[str, Any] = {}
    for name, key in _BUDGETS.items():
        ceiling = limits.get(f"{key}_max")
        if name in used and isinstance(ceiling, int) and not isinstance(ceiling, bool):
            shown[name] = BudgetSnapshot(name, ceiling, used[name], unit=Unit.COUNT).to_dict()
    return shown


_Parts = tuple[MessageType, Role, str, dict[str, Any] | None]


def read_unstored_messages(
    rows: Sequence[Row], events: Sequence[Mapping[str, Any]], stored: Sequence[Message]
) -> list[Message]:
    """The messages behind those that are kept of a run."""
    calls = _collect_call_ids(stored, MessageType.TOOL_CALL)
    news = [told for event in events if (told := JsonReader(event)).text("call_id") not in calls]
    started = {told.text("call_id"): told for told in news if told.text("event") == "tool_started"}
    answered = _collect_call_ids(stored, MessageType.TOOL_RESULT)
    outcomes = [
        one for one in _collect_outcomes(rows) if one.call_id not in answered and one.call_id in calls | set(started)
    ]
    parts = [
        *_iter_last_text(rows, stored, bool(started)),
        *map(_build_call_parts, started.values()),
        *map(_build_result_parts, outcomes),
    ]
    return [Message(stored[0].run if stored else "", len(stored) + n, 0.0, *one) for n, one in enumerate(parts)]


def _collect_call_ids(messages: Sequence[Message], kind: MessageType) -> set[str]:
    return {str((one.payload or {}).get("call_id")) for one in messages if one.type is kind}


def _iter_last_text(rows: Sequence[Row], stored: Sequence[Message], has_calls: bool) -> Iterator[_Parts]:
    """What the model said last, where that is not kept."""
    said = [one.content for one in stored if one.role is Role.ASSISTANT and one.type is MessageType.TEXT]
    reply = next((one for one in reversed(list(_iter_values(rows))) if isinstance(one, Reply)), None)
    if reply is not None and reply.text and (has_calls or reply.text not in said[-1:]):
        yield MessageType.TEXT, Role.ASSISTANT, reply.text, None


def _build_call_parts(started: JsonReader) -> _Parts:
    payload = {
        "call_id": started.text("call_id"),
        "name": started.text("tool"),
        "arguments": started.get("arguments"),
    }
    return MessageType.TOOL_CALL, Role.ASSISTANT, "", payload


def _build_result_parts(outcome: BaseOutcome) -> _Parts:
    payload = {"call_id": outcome.call_id, "name": outcome.tool, "is_error": not outcome.ok}
    return MessageType.TOOL_RESULT, Role.TOOL, outcome.text, payload


def _collect_outcomes(rows: Sequence[Row]) -> list[BaseOutcome]:
    """What calls came to, each once: it is told when it is there, and again when all of its batch have ended."""
    return list({one.call_id: one for one in _iter_values(rows) if isinstance(one, BaseOutcome)}.values())


def _iter_values(rows: Sequence[Row]) -> Iterator[object]:
    """The replies and outcomes that a journal has, in order."""
    from ..runtime.history import JOURNAL_CODEC
    from ..store import Kind

    for row in rows:
        if row.kind is Kind.OUTCOME:
            _, outcome = JOURNAL_CODEC.loads(row.data)
            yield outcome
        elif row.kind is Kind.ANSWER:
            value: object = JOURNAL_CODEC.loads(row.data).value
            yield from cast("list[object]", value) if isinstance(value, list | tuple) else [value]
