"""JSON schemas that a provider can hold a model to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_DEPTH = 50
_INNER = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether every object in it is closed and needs all its properties, which OpenAI wants of a schema it enforces."""
    return all(
        part.get("additionalProperties") is False and set(part.get("properties", {})) <= set(part.get("required", ()))
        for part in _objects(schema)
    )


def closed(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The same with all its objects closed, which Anthropic wants; None where one must stay open, like any dict."""
    if any(not part.get("properties") or _is_open(part) for part in _objects(schema)):
        return None
    return _closed(schema, _DEPTH)


def _is_open(part: Mapping[str, Any]) -> bool:
    return part.get("additionalProperties", False) is not False or "patternProperties" in part


def _objects(schema: Mapping[str, Any], depth: int = _DEPTH) -> list[Mapping[str, Any]]:
    """The schemas in it that are of objects."""
    if not depth:
        return [{}]
    found = [schema] if schema.get("type") == "object" or "properties" in schema else []
    return [*found, *(one for part in _parts(schema) for one in _objects(part, depth - 1))]


def _parts(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts: list[object] = [schema.get("items")]
    for key in _INNER:
        inner = schema.get(key)
        parts += list(cast("Mapping[str, object]", inner).values()) if isinstance(inner, Mapping) else []
    for key in _LISTS:
        inner = schema.get(key)
        parts += cast("list[object]", inner) if isinstance(inner, list) else []
    return [cast("Mapping[str, Any]", part) for part in parts if isinstance(part, Mapping)]


def _closed(value: Any, depth: int) -> Any:
    if isinstance(value, list) and depth:
        return [_closed(one, depth - 1) for one in cast("list[Any]", value)]
    if not isinstance(value, dict) or not depth:
        return cast("Any", value)
    fields = cast("dict[str, Any]", value)
    copy = {key: _closed(one, depth - 1) for key, one in fields.items()}
    is_object = fields.get("type") == "object" and isinstance(fields.get("properties"), Mapping)
    return {**copy, "additionalProperties": False} if is_object else copy
