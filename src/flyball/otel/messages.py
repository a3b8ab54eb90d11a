"""Messages in the JSON form that the GenAI semantic conventions give them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from .._internal.jsonable import to_jsonable
from .._internal.text import redact_arguments
from ..message import Message, MessageType
from ..record import messages_to_record
from ..request import Reply

Sensitive = Mapping[str, frozenset[str]]
"""Parameters to hide, by tool."""


def write_input(messages: Iterable[Message], sensitive: Sensitive) -> str:
    """Return the messages of a request. Images and other large parts are left out."""
    rows = messages_to_record(messages, sensitive)
    batches = groupby(rows, itemgetter("role"))
    return _to_text([{"role": role, "parts": [_build_part(row) for row in batch]} for role, batch in batches])


def write_output(reply: Reply, sensitive: Sensitive) -> str:
    """Return the message of a reply."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": reply.text}] if reply.text else []
    parts += [
        {
            "type": "tool_call",
            "id": call.id,
            "name": call.name,
            "arguments": _read_arguments(call.arguments, sensitive.get(call.name)),
        }
        for call in reply.calls
    ]
    return _to_text([{"role": "assistant", "parts": parts, "finish_reason": str(reply.finish)}])


def write_instructions(text: str) -> str:
    """Return the instructions of a request."""
    return _to_text([{"type": "text", "content": text}])


def _build_part(row: Mapping[str, Any]) -> dict[str, Any]:
    payload: Mapping[str, Any] = row.get("payload") or {}
    match row["type"]:
        case MessageType.TOOL_CALL:
            arguments = _read_arguments(payload.get("arguments"), None)
            return {
                "type": "tool_call", "id": payload.get("call_id"), "name": payload.get("name"), "arguments": arguments
            }  # fmt: skip
        case MessageType.TOOL_RESULT:
            return {"type": "tool_call_response", "id": payload.get("call_id"), "response": row["content"]}
        case MessageType.MULTIMODAL_PART:
            return {"type": "multimodal_part", "content": row["content"]}
        case _:
            return {"type": "text", "content": row["content"]}


def _read_arguments(arguments: Any, sensitive: frozenset[str] | None) -> Any:
    """Return arguments as an object, or as the model wrote them. What cannot be read is hidden if it may be secret."""
    try:
        values = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return "***" if sensitive else arguments
    if not sensitive:
        return values
    return redact_arguments(cast("dict[str, Any]", values), sensitive) if isinstance(values, dict) else "***"


def _to_text(value: object) -> str:
    return json.dumps(to_jsonable(value), ensure_ascii=False)
