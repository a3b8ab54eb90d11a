"""The JSON Schema of events, made from the events themselves; `python -m flyball.schema` prints it."""

from __future__ import annotations

import json
import typing
from typing import Any

from .event import Event, kinds, own_fields

_HEADER: dict[str, Any] = {
    "seq": {"type": "integer", "minimum": 0},
    "time": {"type": "string", "format": "date-time"},
    "at": {"type": "number", "minimum": 0},
    "turn": {"type": "integer", "minimum": 0},
    "run_id": {"type": "string"},
    "parent_run_id": {"type": ["string", "null"]},
    "session_id": {"type": ["string", "null"]},
    "metadata": {"type": ["object", "null"]},
}
_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def event_schema() -> dict[str, Any]:
    """One shape for each kind of event."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Flyball event",
        "oneOf": [_shape(kind) for _, kind in sorted(kinds().items())],
    }


def _shape(kind: type[Event]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    own = {field.name: _type(hints[field.name]) for field in own_fields(kind)}
    properties = {"event": {"const": kind.kind}, **_HEADER, **own}
    return {
        "title": kind.kind,
        "description": (kind.__doc__ or "").strip(),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _type(hint: Any) -> dict[str, Any]:
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _type(arguments[0])}
    if type(None) in arguments:
        inner = [_type(argument)["type"] for argument in arguments]
        return {"type": inner}
    return {"type": "object"}


if __name__ == "__main__":
    print(json.dumps(event_schema(), indent=2))  # noqa: T201
