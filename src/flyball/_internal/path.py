"""A dotted path into a value that a tool gave, was given, or has set: what is there, and whether it is what was asked.

A path walks the keys of mappings, the attributes of objects and the indexes of lists; a text on its way is read as
JSON. Nothing here raises: what cannot be read is not there.

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
    """Whether a text is a dotted path: names or indexes with one dot between them."""
    return all(part and part == part.strip() for part in path.split("."))


def has_value(value: object, path: str) -> bool:
    """Whether something stands at a path that is not None, "" or empty; 0 and False are something."""
    try:
        return any(_is_nonempty(found) for found in _iter_matches(value, path))
    except Exception:  # an object that cannot be read is no evidence
        return False


def has_equal_value(value: object, path: str, expected: object) -> bool:
    """Whether what stands at a path is equal, as JSON would be, to a value in JSON types."""
    try:
        return any(_is_equal(expected, found) for found in _iter_matches(value, path))
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
    """What a path may mean: keys with dots in them count as well, so there may be more than one answer."""
    value = _parse_json_text(_unwrap_enum(value))
    if isinstance(value, Mapping):
        table = _with_text_keys(cast("Mapping[object, object]", value))
        if path in table:
            yield table[path]
        for cut in [place for place, letter in enumerate(path) if letter == "."]:
            if path[:cut] in table:
                yield from _iter_matches(table[path[:cut]], path[cut + 1 :])
        return
    first, dot, rest = path.partition(".")
    for below in _iter_children(value, first):
        if dot:
            yield from _iter_matches(below, rest)
        else:
            yield below


def _parse_json_text(value: object) -> object:
    """A text that is JSON as what it says; once, so that a text in a text stays one."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _with_text_keys(table: Mapping[object, object]) -> Mapping[str, object]:
    """A mapping with its keys as JSON would write them."""
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
    below: object = getattr(cast("object", value), name, _MISSING)
    if below is not _MISSING and not callable(below):  # a method is no field, though it has a name
        yield below


def _is_equal(expected: Any, found: object) -> bool:
    found = _unwrap_enum(found)
    if expected is None or isinstance(expected, bool) or found is None or isinstance(found, bool):
        return expected is found
    if isinstance(expected, _Number):
        return isinstance(found, _Number) and expected == found
    if isinstance(expected, str):
        return _is_equal_text(expected, found)
    if isinstance(expected, list):
        return _is_equal_list(cast("list[object]", expected), found)
    table = _to_mapping(found)
    return (
        table is not None
        and expected.keys() == table.keys()
        and all(_is_equal(expected[key], table[key]) for key in table)
    )


def _is_equal_text(expected: str, found: object) -> bool:
    if isinstance(found, datetime | date | time):
        return type(found).fromisoformat(expected) == found  # so that Z and +00:00 are one
    if isinstance(found, bytes):
        return found.decode() == expected
    if isinstance(found, int | float | Collection) or is_dataclass(found):
        return isinstance(found, str) and str.__eq__(found, expected)
    return str(found) == expected  # a path, an address, a UUID: JSON has them as text


def _is_equal_list(expected: list[object], found: object) -> bool:
    if isinstance(found, str | bytes | bytearray) or not isinstance(found, Sequence | AbstractSet):
        return False
    items = list(cast("Collection[object]", found))
    if len(items) != len(expected):
        return False
    if isinstance(found, Sequence):
        return all(_is_equal(one, other) for one, other in zip(expected, items, strict=True))
    for one in expected:
        place = next((place for place, item in enumerate(items) if _is_equal(one, item)), None)
        if place is None:
            return False
        del items[place]
    return True


def _to_mapping(value: object) -> Mapping[str, object] | None:
    """What JSON would write as an object."""
    if isinstance(value, Mapping):
        return _with_text_keys(cast("Mapping[object, object]", value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Collection) or not hasattr(value, "__dict__"):
        return None
    extra: dict[str, object] = getattr(value, "model_extra", None) or {}  # of a pydantic model that allows it
    return {name: below for name, below in vars(value).items() if not name.startswith("_")} | extra
