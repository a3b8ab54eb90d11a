"""The texts in which stores keep messages, events and records: plain JSON, for anybody to read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ..errors import MessageError
from ..jsonable import jsonable
from ..message import Message

_write = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


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
    try:
        return _write(message.to_dict())
    except (MessageError, TypeError, ValueError):
        tamed = replace(message, payload=jsonable(message.payload), metadata=jsonable(message.metadata))
        return _write(tamed.to_dict())


def to_message(text: str) -> Message:
    """Read what `to_line` wrote."""
    return Message.from_dict(json.loads(text))


def clean(text: str) -> str:
    """A text without halves of surrogate pairs, which no database takes."""
    return text.encode("utf-8", "replace").decode("utf-8")
