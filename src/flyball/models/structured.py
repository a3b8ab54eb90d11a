"""JSON schemas that a provider can hold a model to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

Schema = Mapping[str, Any]

_DEPTH = 50
_INNER = ("properties", "$defs", "definitions")
_LISTS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf", "prefixItems": None}
"""Keys with a list of schemas, and what they become: no provider enforces that only one fits, or the order of items."""
_ENFORCED = frozenset({"$ref", "const", "description", "enum", "required", "title", "type"})
_FORMATS = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"})
_DEMANDS_NOTHING = frozenset({"$comment", "$schema", "additionalProperties", "default", "discriminator", "examples"})


def is_strict(schema: Schema) -> bool:
    """Whether OpenAI enforces it: an object, of which every object is closed and needs all its properties."""
    return schema.get("type") == "object" and all(
        part.get("additionalProperties") is False and set(part.get("properties", {})) <= set(part.get("required", ()))
        for part in _objects(schema)
    )


def closed(schema: Schema) -> dict[str, Any] | None:
    """The same as providers enforce it; None where an object must stay open, like any dict.

    All its objects are closed, and what else no provider enforces is told in the description instead.
    """
    if any(not part.get("properties") or _is_open(part) for part in _objects(schema)):
        return None
    return _closed(schema)


def wanted(schema: Schema) -> str:
    """The words that ask for an answer of this form, where nobody can enforce it."""
    return f"Answer with nothing but JSON that fits this schema: {json.dumps(schema, ensure_ascii=False)}"


def _is_open(part: Schema) -> bool:
    return part.get("additionalProperties", False) is not False or "patternProperties" in part


def _objects(schema: Schema, depth: int = _DEPTH) -> list[Schema]:
    """The schemas in it that are of objects."""
    if not depth:
        return [{}]
    found = [schema] if schema.get("type") == "object" or "properties" in schema else []
    return [*found, *(one for part in _parts(schema) for one in _objects(part, depth - 1))]


def _parts(schema: Schema) -> list[Schema]:
    parts: list[object] = [schema.get("items")]
    for key in _INNER:
        inner = schema.get(key)
        parts += list(cast("Mapping[str, object]", inner).values()) if isinstance(inner, Mapping) else []
    for key in _LISTS:
        inner = schema.get(key)
        parts += cast("list[object]", inner) if isinstance(inner, list) else []
    return [cast("Schema", part) for part in parts if isinstance(part, Mapping)]


def _closed(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    kept: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for key, inner in cast("Schema", value).items():
        if key in _INNER:
            kept[key] = {name: _closed(part) for name, part in inner.items()}
        elif name := _LISTS.get(key):
            kept[name] = [_closed(part) for part in inner]
        elif key == "items":
            kept[key] = _closed(inner)
        elif key in _ENFORCED or (key == "format" and inner in _FORMATS) or (key == "minItems" and inner in (0, 1)):
            kept[key] = inner
        elif key not in _DEMANDS_NOTHING:
            told[key] = inner
    if "$ref" in kept:  # it stands alone, beside what it may refer to
        return {key: inner for key, inner in kept.items() if key in ("$ref", "$defs", "definitions")}
    if "properties" in kept:
        kept["additionalProperties"] = False
    if told:
        kept["description"] = " ".join(filter(None, (kept.get("description"), f"It must fit {json.dumps(told)}.")))
    return kept


_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_ID = 40


def call_id(id: str) -> str:
    """The id of a call; of a long one the end, because ids often begin alike."""
    return _ODD.sub("_", id)[-_LONGEST_ID:]


def tool_name(name: str) -> str:
    """The name of a tool that was called, also where there is none of that name."""
    return _ODD.sub("_", name) or "_"
