"""Values that fit a JSON schema, for answers that Flyball writes in place of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from .bodies import get_dict, list_dicts


def fit_schema(schema: Mapping[str, Any], text: str, depth: int = 5) -> Any:
    """Return a small value that fits a JSON schema, with the text where a string is wanted.

    >>> fit_schema({"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}, "over")
    {'a': 'over', 'n': 0}
    """
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        choices = list_dicts(schema.get(key))
        if choices and depth:
            return fit_schema(choices[0], text, depth - 1)
    kind: Any = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = next(iter(cast("list[Any]", kind)), None)
    match str(kind).lower():  # Gemini writes them in capitals
        case "object":
            properties = get_dict(schema, "properties")
            return {
                name: fit_schema(get_dict(properties, name), text, depth - 1) if depth else None for name in properties
            }
        case "array":
            items = get_dict(schema, "items")
            return [fit_schema(items, text, depth - 1)] if schema.get("minItems") and depth else []
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return text
