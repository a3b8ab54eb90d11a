"""A dotted path into a value that a tool gave, was given, or has set: what is there, and whether it is what was asked.

A path walks the keys of mappings, the attributes of objects and the indexes of lists; a text on its way is read as
JSON. Nothing here raises: what cannot be read is not there.

>>> is_there({"comment": {"html_url": "https://…"}}, "comment.html_url"), is_there('{"files": []}', "files")
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
_NOTHING = object()


def is_path(path: str) -> bool:
    """Whether a text is a dotted path: names or indexes with one dot between them."""
    return all(part and part == part.strip() for part in path.split("."))


def is_there(value: object, path: str) -> bool:
    """Whether something stands at a path that is not None, "" or empty; 0 and False are something."""
    try:
        return any(_says_something(found) for found in _at(value, path))
    except Exception:  # an object that cannot be read is no evidence
        return False


def is_at(value: object, path: str, wanted: object) -> bool:
    """Whether what stands at a path is equal, as JSON would be, to a value in JSON types."""
    try:
        return any(_same(wanted, found) for found in _at(value, path))
    except Exception:
        return False


def _says_something(value: object) -> bool:
    value = _plain(value)
    return value is not None and not (isinstance(value, Collection) and len(cast("Collection[object]", value)) == 0)


def _plain(value: object) -> object:
    while isinstance(value, Enum):
        value = value.value
    return value


def _at(value: object, path: str) -> Iterator[object]:
    """What a path may mean: keys with dots in them count as well, so there may be more than one answer."""
    value = _opened(_plain(value))
    if isinstance(value, Mapping):
        table = _texts(cast("Mapping[object, object]", value))
        if path in table:
            yield table[path]
        for cut in [place for place, letter in enumerate(path) if letter == "."]:
            if path[:cut] in table:
                yield from _at(table[path[:cut]], path[cut + 1 :])
        return
    first, dot, rest = path.partition(".")
    for below in _step(value, first):
        if dot:
            yield from _at(below, rest)
        else:
            yield below


def _opened(value: object) -> object:
    """A text that is JSON as what it says; once, so that a text in a text stays one."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _texts(table: Mapping[object, object]) -> Mapping[str, object]:
    """A mapping with its keys as JSON would write them."""
    if all(type(key) is str for key in table):
        return cast("Mapping[str, object]", table)
    return {str(_plain(key)): value for key, value in table.items()}


def _step(value: object, name: str) -> Iterator[object]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray) and name.isascii():
        items = cast("Sequence[object]", value)
        if name.isdigit() and int(name) < len(items):
            yield items[int(name)]
    if name.startswith("_") or value is None or isinstance(value, type | bool | int | float | str | bytes):
        return
    below: object = getattr(cast("object", value), name, _NOTHING)
    if below is not _NOTHING and not callable(below):  # a method is no field, though it has a name
        yield below


def _same(wanted: Any, found: object) -> bool:
    found = _plain(found)
    if wanted is None or isinstance(wanted, bool) or found is None or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, _Number):
        return isinstance(found, _Number) and wanted == found
    if isinstance(wanted, str):
        return _same_text(wanted, found)
    if isinstance(wanted, list):
        return _same_list(cast("list[object]", wanted), found)
    table = _table(found)
    return table is not None and wanted.keys() == table.keys() and all(_same(wanted[key], table[key]) for key in table)


def _same_text(wanted: str, found: object) -> bool:
    if isinstance(found, datetime | date | time):
        return type(found).fromisoformat(wanted) == found  # so that Z and +00:00 are one
    if isinstance(found, bytes):
        return found.decode() == wanted
    if isinstance(found, int | float | Collection) or is_dataclass(found):
        return isinstance(found, str) and str.__eq__(found, wanted)
    return str(found) == wanted  # a path, an address, a UUID: JSON has them as text


def _same_list(wanted: list[object], found: object) -> bool:
    if isinstance(found, str | bytes | bytearray) or not isinstance(found, Sequence | AbstractSet):
        return False
    items = list(cast("Collection[object]", found))
    if len(items) != len(wanted):
        return False
    if isinstance(found, Sequence):
        return all(_same(one, other) for one, other in zip(wanted, items, strict=True))
    for one in wanted:
        place = next((place for place, item in enumerate(items) if _same(one, item)), None)
        if place is None:
            return False
        del items[place]
    return True


def _table(value: object) -> Mapping[str, object] | None:
    """What JSON would write as an object."""
    if isinstance(value, Mapping):
        return _texts(cast("Mapping[object, object]", value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Collection) or not hasattr(value, "__dict__"):
        return None
    extra: dict[str, object] = getattr(value, "model_extra", None) or {}  # of a pydantic model that allows it
    return {name: below for name, below in vars(value).items() if not name.startswith("_")} | extra
