"""Partial records of runs that have not ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from .._internal.json_reader import JsonReader
from .._internal.jsonable import to_jsonable
from ..budget.snapshot import BudgetSnapshot
from ..message import Message, MessageType, Role
from ..outcome import BaseOutcome
from ..request import Reply
from ..unit import NANO, Unit

if TYPE_CHECKING:
    from ..store import Row

_BUDGETS = {"turns": "steps", "tool_calls": "tool_calls", "tokens": "tokens", "usd": "usd"}
"""Budgets of a partial record, and their names in the first event."""


def build_partial_record(
    events: Sequence[Mapping[str, Any]], messages: Sequence[Message], metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Build a record from the events and messages of a run, and the metadata of its start.

    Call arguments come from the events, because those hide sensitive values and the messages do not.
    """
    if metadata and is_program_start(metadata):
        return build_partial_record(events, messages) | _build_program_facts(events) | {"metadata": dict(metadata)}
    readers = [JsonReader(event) for event in events]
    arguments = {
        event.text("call_id"): event.get("arguments") for event in readers if event.text("event") == "tool_started"
    }
    ended = {event.text("call_id"): event for event in readers if event.text("event") == "tool_ended"}
    replies = [event for event in readers if event.text("event") == "model_replied"]
    requests = [event for event in readers if event.text("event") == "model_requested"]
    usage = {
        "input": sum(reply.integer("input_tokens") for reply in replies),
        "output": sum(reply.integer("output_tokens") for reply in replies),
    }
    turns = max((event.integer("turn") for event in readers), default=0)
    used = {"turns": turns, "tool_calls": len(ended), "tokens": sum(usage.values())}
    return {
        "events": list(events),
        "events_dropped": 0,
        "messages": [_message_to_dict(message, arguments) for message in messages],
        "tool_execution_results": [
            _outcome_to_dict(message, ended) for message in messages if message.type is MessageType.TOOL_RESULT
        ],
        "text": next((message.content for message in reversed(messages) if _is_reply_text(message)), ""),
        "turns": turns,
        "requests": len(requests),
        "usage": usage,
        "unpriced": sorted({request.text("model") for request in requests} - {""}),
        "seconds": max((event.number("at") for event in readers), default=0.0),
        "flags": [event.text("flag") for event in readers if event.text("event") == "budget_refused"],
        "budgets": _build_budgets(next((event.nested("limits") for event in readers), JsonReader({})), used),
    }


def is_program_start(metadata: Mapping[str, Any]) -> bool:
    """Check whether a run is that of a program under a gateway, by the metadata of its start."""
    return "exec_command" in metadata


def _build_program_facts(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Build the parts of a partial record that only a program under a gateway has: its spend and its conversations."""
    readers = [JsonReader(event) for event in events]
    settled = [event for event in readers if event.text("event") == "settled"]
    costs: dict[str, float] = {}
    for event in settled:
        if event.get("usd") is not None:
            costs[event.text("model")] = costs.get(event.text("model"), 0.0) + event.number("usd")
    turns, limits = _count_turns(settled), next((event.nested("limits") for event in readers), JsonReader({}))
    calls = sum(event.text("event") == "tool_started" for event in readers)
    used = {"turns": turns, "tool_calls": calls, "tokens": sum(event.integer("tokens") for event in settled)}
    budgets = _build_budgets(limits, used)
    ceiling = limits.get("usd_max")
    if isinstance(ceiling, int):
        spent = round(sum(costs.values()) * NANO)
        budgets["usd"] = BudgetSnapshot("usd", ceiling, spent, unit=Unit.USD).to_dict()
    names = list(dict.fromkeys(event.text("conversation") for event in settled))
    return {
        "turns": turns,
        "cost_usd": costs,
        "unpriced": sorted({event.text("model") for event in settled if event.get("usd") is None}),
        "budgets": budgets,
        "state": {"conversations": [_build_conversation(name, settled) for name in names]},
    }


def count_open_requests(events: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of requests in the events that have no answer."""
    kinds = [JsonReader(event).text("event") for event in events]
    return kinds.count("model_requested") - kinds.count("model_replied")


def _count_turns(settled: Sequence[JsonReader]) -> int:
    return sum(event.text("purpose") == "turn" for event in settled)


def _build_conversation(name: str, settled: Sequence[JsonReader]) -> dict[str, Any]:
    own = [event for event in settled if event.text("conversation") == name]
    return {
        "name": name,
        "model": own[-1].text("model"),
        "turns": _count_turns(own),
        "requests": len(own),
        "input_tokens": sum(event.integer("tokens") for event in own),
        "output_tokens": 0,
        "cost_usd": sum(event.number("usd") for event in own),
        "reported": any(event.text("purpose") == "grace" for event in own),
    }


def _is_reply_text(message: Message) -> bool:
    return message.role is Role.ASSISTANT and message.type is MessageType.TEXT and bool(message.content.strip())


def _message_to_dict(message: Message, arguments: Mapping[str, object]) -> dict[str, Any]:
    payload = (
        None if message.payload is None else {str(key): to_jsonable(value) for key, value in message.payload.items()}
    )
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
    """Build the usage of each budget; events do not carry money."""
    budgets: dict[str, Any] = {}
    for name, key in _BUDGETS.items():
        ceiling = limits.get(f"{key}_max")
        if name in used and isinstance(ceiling, int) and not isinstance(ceiling, bool):
            budgets[name] = BudgetSnapshot(name, ceiling, used[name], unit=Unit.COUNT).to_dict()
    return budgets


_Parts = tuple[MessageType, Role, str, dict[str, Any] | None]


def read_unstored_messages(
    rows: Sequence[Row], events: Sequence[Mapping[str, Any]], stored: Sequence[Message]
) -> list[Message]:
    """Return messages in the journal that the transcript lacks."""
    calls = _collect_call_ids(stored, MessageType.TOOL_CALL)
    new_events = [reader for event in events if (reader := JsonReader(event)).text("call_id") not in calls]
    started = {event.text("call_id"): event for event in new_events if event.text("event") == "tool_started"}
    answered = _collect_call_ids(stored, MessageType.TOOL_RESULT)
    outcomes = [
        outcome
        for outcome in _collect_outcomes(rows)
        if outcome.call_id not in answered and outcome.call_id in calls | set(started)
    ]
    parts = [
        *_iter_last_text(rows, stored, bool(started)),
        *map(_build_call_parts, started.values()),
        *map(_build_result_parts, outcomes),
    ]
    return [Message(stored[0].run if stored else "", len(stored) + n, 0.0, *fields) for n, fields in enumerate(parts)]


def _collect_call_ids(messages: Sequence[Message], kind: MessageType) -> set[str]:
    return {str((message.payload or {}).get("call_id")) for message in messages if message.type is kind}


def _iter_last_text(rows: Sequence[Row], stored: Sequence[Message], has_calls: bool) -> Iterator[_Parts]:
    """Yield the model's last text if the transcript lacks it."""
    texts = [
        message.content for message in stored if message.role is Role.ASSISTANT and message.type is MessageType.TEXT
    ]
    reply = next((value for value in reversed(list(_iter_values(rows))) if isinstance(value, Reply)), None)
    if reply is not None and reply.text and (has_calls or reply.text not in texts[-1:]):
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
    """Return each call's outcome once.

    The journal has it twice: when the call ended, and with its batch.
    """
    return list({value.call_id: value for value in _iter_values(rows) if isinstance(value, BaseOutcome)}.values())


def _iter_values(rows: Sequence[Row]) -> Iterator[object]:
    """Yield the replies and outcomes in a journal, in order."""
    from ..runtime.history import JOURNAL_CODEC
    from ..store import Kind

    for row in rows:
        if row.kind is Kind.OUTCOME:
            _, outcome = JOURNAL_CODEC.loads(row.data)
            yield outcome
        elif row.kind is Kind.ANSWER:
            value: object = JOURNAL_CODEC.loads(row.data).value
            yield from cast("list[object]", value) if isinstance(value, list | tuple) else [value]
