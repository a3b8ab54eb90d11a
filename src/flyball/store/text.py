"""The texts in which stores keep messages, events and records: plain JSON, for anybody to read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from .._internal.jsonable import jsonable
from ..message import Message, MessageType, Role

_write = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def to_rows(events: Sequence[Mapping[str, Any]]) -> str:
    """Events, which are in JSON types already, as JSON; in a third of the time."""
    try:
        return to_json(events).decode()
    except (PydanticSerializationError, ValueError):
        return to_text(events)


def to_text(value: object) -> str:
    """`value` as JSON; what JSON has no word for becomes its text, as `jsonable` has it."""
    try:
        return _write(value)
    except (TypeError, ValueError, RecursionError):
        return _write(jsonable(value))


def to_value(text: str) -> Any:
    """Read what `to_text` wrote."""
    return json.loads(text)


def to_line(message: Message) -> str:
    """A message as JSON; one that somebody filled with what is no JSON must not lose the whole step."""
    row: dict[str, Any] = {
        "run": message.run,
        "n": message.n,
        "created_at": message.created_at,
        "type": message.type,
        "role": message.role,
        "content": message.content,
    }
    for key in ("payload", "metadata", "group"):
        value = getattr(message, key)
        if value is not None:
            row[key] = value
    return to_text(row)


def to_message(text: str) -> Message:
    """Read what `to_line` wrote."""
    row = json.loads(text)
    row["type"], row["role"] = MessageType(row["type"]), Role(row["role"])
    return Message(**row)


def clean(text: str) -> str:
    """A text without halves of surrogate pairs, which no database takes."""
    return text.encode("utf-8", "replace").decode("utf-8")
