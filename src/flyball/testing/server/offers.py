"""Tools and schemas that a request offers, in any of the formats, and values that fit them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ...wire.bodies import Json, get_dict, get_dicts

_ITEM_KEYS = ("messages", "input", "contents")


@dataclass(frozen=True, slots=True)
class Offer:
    """Function that the model may call."""

    name: str
    schema: Json
    is_free_text: bool = False
    """Whether its arguments are a text instead of JSON (Responses API)."""


def list_offers(body: Json) -> list[Offer]:
    """Return the functions that a request offers. The Responses API knows tools in its input, too."""
    found = list(_iter_offers(get_dicts(body, "tools")))
    for item in get_dicts(body, "input"):
        if item.get("type") == "additional_tools":
            found += _iter_offers(get_dicts(item, "tools"))
    return found


def _iter_offers(tools: list[Json]) -> Iterator[Offer]:
    for item in tools:
        if item.get("type") == "namespace":
            yield from _iter_offers(get_dicts(item, "tools"))
            continue
        for tool in get_dicts(item, "functionDeclarations") or [get_dict(item, "function") or item]:
            if tool.get("name"):
                keys = ("parameters", "input_schema", "parametersJsonSchema")
                schema = next((get_dict(tool, key) for key in keys if tool.get(key)), Json())
                is_free_text = tool.get("type") == "custom" and "input_schema" not in tool  # Anthropic's
                yield Offer(str(tool["name"]), schema, is_free_text)


def count_items(body: Json) -> int:
    """Return the number of messages of a request."""
    return next((len(get_dicts(body, key)) for key in _ITEM_KEYS if key in body), 0)


def fill(schema: Mapping[str, Any], number: int = 1) -> Any:
    """Return a value that fits a schema. Its texts contain the number, because programs detect repetitions.

    >>> fill({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}, 3)
    {'path': 'go on 3'}
    """
    choices: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    if choices:
        return choices[0]
    for key in ("anyOf", "oneOf", "allOf"):
        if get_dicts(schema, key):
            return fill(get_dicts(schema, key)[0], number)
    kinds: Any = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(
        next((each for each in cast("list[Any]", kinds) if each != "null"), None) if isinstance(kinds, list) else kinds
    ).lower()
    if kind == "object":
        return _fill_object(schema, number)
    if kind == "array":
        return [fill(get_dict(schema, "items"), number)] if schema.get("minItems") else []
    plain: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": False, "null": None}
    return plain.get(kind, f"go on {number}")


def _fill_object(schema: Mapping[str, Any], number: int) -> Json:
    properties, required = get_dict(schema, "properties"), schema.get("required")
    names = cast("list[str]", required) if isinstance(required, list) else list(properties)[:1]
    return {name: fill(get_dict(properties, name), number) for name in names}
