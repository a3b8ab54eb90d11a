"""Dotted paths into values that tools return, receive or set in the state.

A path follows keys of mappings, attributes of objects and indexes of lists. A string on the path is parsed as JSON.
Nothing here raises: a value that cannot be read counts as missing.

>>> has_value({"comment": {"html_url": "https://…"}}, "comment.html_url"), has_value('{"files": []}', "files")
(True, False)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, cast

_Number = int | float | Decimal
_MISSING = object()


def is_path(path: str) -> bool:
    """Check whether a text is a dotted path.

    Its parts are names or indexes.
    """
    return all(part and part == part.strip() for part in path.split("."))


def has_value(value: object, path: str) -> bool:
    """Check whether a path leads to a value.

    None, "" and empty collections do not count; 0 and False do.
    """
    try:
        return any(_is_nonempty(match) for match in _iter_matches(value, path))
    except Exception:  # an object with broken attributes proves nothing
        return False


def has_equal_value(value: object, path: str, expected: object) -> bool:
    """Check whether the value at a path equals `expected`, compared as JSON."""
    try:
        return any(_is_equal(expected, match) for match in _iter_matches(value, path))
    except Exception:
        return False


def _is_nonempty(value: object) -> bool:
    value = _unwrap_enum(value)
    return value is not None and not (isinstance(value, Collection) and len(cast("Collection[object]", value)) == 0)


def _unwrap_enum(value: object) -> object:
    while isinstance(value, Enum):
        value = value.value
    return value


def _iter_matches(value: object, path: str) -> Iterator[object]:
    """Yield every value the path may mean; keys with dots allow several."""
    value = _parse_json_text(_unwrap_enum(value))
    if isinstance(value, Mapping):
        table = _with_text_keys(cast("Mapping[object, object]", value))
        if path in table:
            yield table[path]
        for dot_index in [index for index, letter in enumerate(path) if letter == "."]:
            if path[:dot_index] in table:
                yield from _iter_matches(table[path[:dot_index]], path[dot_index + 1 :])
        return
    first, dot, rest = path.partition(".")
    for child in _iter_children(value, first):
        if dot:
            yield from _iter_matches(child, rest)
        else:
            yield child


def _parse_json_text(value: object) -> object:
    if not isinstance(value, str):
        return value
    # Parsed once: a JSON string inside JSON text stays a string.
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _with_text_keys(table: Mapping[object, object]) -> Mapping[str, object]:
    if all(type(key) is str for key in table):
        return cast("Mapping[str, object]", table)
    return {str(_unwrap_enum(key)): value for key, value in table.items()}


def _iter_children(value: object, name: str) -> Iterator[object]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray) and name.isascii():
        items = cast("Sequence[object]", value)
        if name.isdigit() and int(name) < len(items):
            yield items[int(name)]
    if name.startswith("_") or value is None or isinstance(value, type | bool | int | float | str | bytes):
        return
    child: object = getattr(cast("object", value), name, _MISSING)
    if child is not _MISSING and not callable(child):  # methods are not fields
        yield child


def _is_equal(expected: Any, value: object) -> bool:
    value = _unwrap_enum(value)
    if expected is None or isinstance(expected, bool) or value is None or isinstance(value, bool):
        return expected is value
    if isinstance(expected, _Number):
        return isinstance(value, _Number) and expected == value
    if isinstance(expected, str):
        return _is_equal_text(expected, value)
    if isinstance(expected, list):
        return _is_equal_list(cast("list[object]", expected), value)
    table = _to_mapping(value)
    return (
        table is not None
        and expected.keys() == table.keys()
        and all(_is_equal(expected[key], table[key]) for key in table)
    )


def _is_equal_text(expected: str, value: object) -> bool:
    if isinstance(value, datetime | date | time):
        return type(value).fromisoformat(expected) == value  # so that Z and +00:00 are equal
    if isinstance(value, bytes):
        return value.decode() == expected
    if isinstance(value, int | float | Collection) or is_dataclass(value):
        return isinstance(value, str) and str.__eq__(value, expected)
    return str(value) == expected  # a file path, an IP address, a UUID: JSON writes them as text


def _is_equal_list(expected: list[object], value: object) -> bool:
    if isinstance(value, str | bytes | bytearray) or not isinstance(value, Sequence | AbstractSet):
        return False
    items = list(cast("Collection[object]", value))
    if len(items) != len(expected):
        return False
    if isinstance(value, Sequence):
        return all(_is_equal(left, right) for left, right in zip(expected, items, strict=True))
    for wanted in expected:
        index = next((index for index, item in enumerate(items) if _is_equal(wanted, item)), None)
        if index is None:
            return False
        del items[index]
    return True


def _to_mapping(value: object) -> Mapping[str, object] | None:
    if isinstance(value, Mapping):
        return _with_text_keys(cast("Mapping[object, object]", value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Collection) or not hasattr(value, "__dict__"):
        return None
    extra: dict[str, object] = getattr(value, "model_extra", None) or {}  # extra fields of a pydantic model
    return {name: child for name, child in vars(value).items() if not name.startswith("_")} | extra
