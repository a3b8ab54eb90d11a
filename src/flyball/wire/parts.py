"""Builders and checks of messages that all readers share."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, cast

from ..message import EXPECTED_TEXT, OPENAI, Message, MessageType, Role, is_nonempty_text, require

Json = dict[str, Any]

TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
"""Types of parts that are texts."""
WHOLE = "whole"
"""Type of a part that is a provider's whole message, which the reader did not understand."""


def build_message(
    kind: MessageType,
    role: Role,
    content: str,
    payload: Json | None = None,
    extra: Json | None = None,
    is_only_part: bool = False,
) -> Message:
    """Build a message without id or time.

    `is_only_part` marks a text that came alone in a list.
    """
    metadata = {"wire": {"part": extra or {}}} if extra or is_only_part else None
    return Message("", 0, 0.0, kind, role, content, payload, metadata)


def mark_shape(messages: list[Message], shape: str | None, extra: Json) -> list[Message]:
    """Add the provider message's other keys and shape to the metadata."""
    if extra:
        messages[0].metadata = {"wire": (messages[0].metadata or {"wire": {}})["wire"] | {"message": extra}}
        shape = shape or OPENAI  # Anthropic's messages have no other keys
    for message in messages:
        if message.metadata and shape:
            message.metadata["wire"]["shape"] = shape
    return messages


def collect_extra(data: Json, known: AbstractSet[str], optional: AbstractSet[str] = frozenset()) -> Json:
    """Return keys that the message cannot restore: unknown ones, and empty optional ones."""
    return {key: value for key, value in data.items() if key not in known or (key in optional and not value)}


def require_text(index: int, where: str, data: Json, key: str) -> str:
    """Return the text of a key, or raise MessageError."""
    value = data.get(key)
    require(is_nonempty_text(value), index, f"{where}.{key}" if where else key, value, EXPECTED_TEXT)
    return cast("str", value)


def require_part(index: int, where: str, value: object) -> Json:
    """Return a part that has a type, or raise MessageError."""
    require(isinstance(value, dict), index, where, value, "a dict with a type")
    part = cast("Json", value)
    kind, text = require_text(index, where, part, "type"), part.get("text")
    require(kind != "text" or isinstance(text, str), index, f"{where}.text", text, "a string")
    return part


def join_texts(parts: list[Json]) -> str:
    """Join the text parts of a result, one line each."""
    return "\n".join(str(part.get("text", "")) for part in parts if part["type"] in TEXT_TYPES)
