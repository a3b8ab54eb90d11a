"""JSON schemas, call ids and tool names in the form that providers accept."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

Schema = Mapping[str, Any]
_MAX_DEPTH = 50
_SCHEMA_TABLE_KEYS = ("properties", "$defs", "definitions")
_SCHEMA_LIST_KEYS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf", "prefixItems": None}
"""Keys with a list of schemas, and their replacement.

No provider enforces that only one schema matches, or the order of items.
"""
_ENFORCED_KEYS = frozenset({"$ref", "const", "description", "enum", "required", "title", "type"})
_ENFORCED_FORMATS = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"})
_IGNORED_KEYS = frozenset({"$comment", "$schema", "additionalProperties", "default", "discriminator", "examples"})
_INVALID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_ID_LENGTH = 40


def is_strict_schema(schema: Schema) -> bool:
    """Check whether OpenAI enforces the schema.

    It must be an object, and every object in it must be closed and require all its properties.
    """
    return schema.get("type") == "object" and all(
        part.get("additionalProperties") is False and _requires_all(part) for part in _find_objects(schema)
    )


def close_schema(schema: Schema) -> dict[str, Any] | None:
    """Return the schema in a form that providers enforce, or None.

    All its objects are closed, and the rest that no provider enforces moves to the description. None means that an
    object must stay open, like any dict.
    """
    if any(map(_is_open, _find_objects(schema))):
        return None
    return _close_part(schema)


def describe_schema(schema: Schema) -> str:
    """Return a prompt that asks for an answer of this form."""
    return f"Answer with nothing but JSON that fits this schema: {json.dumps(schema, ensure_ascii=False)}"


def sanitize_call_id(value: str) -> str:
    """Return a call id of valid characters.

    Of a long id it keeps the end, because ids often begin alike.
    """
    return _INVALID_CHARACTERS.sub("_", value)[-_MAX_ID_LENGTH:]


def sanitize_tool_name(name: str) -> str:
    """Return a tool name of valid characters, even if no tool has that name."""
    return _INVALID_CHARACTERS.sub("_", name) or "_"


def _requires_all(part: Schema) -> bool:
    required = part.get("required")
    return isinstance(required, list) and all(name in required for name in part.get("properties", ()))


def _is_open(part: Schema) -> bool:
    is_described = isinstance(part.get("properties"), Mapping) and part["properties"]
    return not is_described or part.get("additionalProperties", False) is not False or "patternProperties" in part


def _find_objects(schema: Schema, depth: int = _MAX_DEPTH) -> list[Schema]:
    """Return all schemas of objects in a schema."""
    if not depth:
        return [{}]
    objects = [schema] if schema.get("type") == "object" or "properties" in schema else []
    return [*objects, *(inner for part in _list_subschemas(schema) for inner in _find_objects(part, depth - 1))]


def _list_subschemas(schema: Schema) -> list[Schema]:
    parts: list[object] = [schema.get("items")]
    for key in _SCHEMA_TABLE_KEYS:
        inner = schema.get(key)
        parts += list(cast("Mapping[str, object]", inner).values()) if isinstance(inner, Mapping) else []
    for key in _SCHEMA_LIST_KEYS:
        inner = schema.get(key)
        parts += cast("list[object]", inner) if isinstance(inner, list) else []
    return [cast("Schema", part) for part in parts if isinstance(part, Mapping)]


def _close_part(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    kept: dict[str, Any] = {}
    unenforced: dict[str, Any] = {}
    for key, inner in cast("Schema", value).items():
        if key in _SCHEMA_TABLE_KEYS and isinstance(inner, Mapping):
            kept[key] = {name: _close_part(part) for name, part in cast("Schema", inner).items()}
        elif isinstance(inner, list) and (name := _SCHEMA_LIST_KEYS.get(key)):
            kept[name] = [_close_part(part) for part in cast("list[object]", inner)]
        elif key == "items":
            kept[key] = _close_part(inner)
        elif (
            key in _ENFORCED_KEYS
            or (key == "format" and isinstance(inner, str) and inner in _ENFORCED_FORMATS)
            or (key == "minItems" and inner in (0, 1))
        ):
            kept[key] = inner
        elif key not in _IGNORED_KEYS:
            unenforced[key] = inner
    if "$ref" in kept:  # providers accept no other keys beside it, except definitions
        return {key: inner for key, inner in kept.items() if key in ("$ref", "$defs", "definitions")}
    if "properties" in kept:
        kept["additionalProperties"] = False
    if unenforced:
        described = kept.get("description")
        demand = f"It must fit {json.dumps(unenforced)}."
        kept["description"] = f"{described} {demand}" if described else demand
    return kept
