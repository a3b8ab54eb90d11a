"""Dotted paths: a value inside a value, and whether it is the one that was wanted, both as JSON would have it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from typing import Any, Final, cast

from .errors import ConfigError

_MISSING: Final = object()
_DEEPEST = 40


def is_path(path: str) -> bool:
    """Whether a text is a dotted path: names or indexes with one dot between them."""
    return all(name and name == name.strip() for name in path.split("."))


def is_at(value: object, path: str, wanted: object) -> bool:
    """Whether a path leads to what was wanted, a `plain` value. It never raises: what cannot be read is not there.

    The path goes through keys, attributes and list indexes, and a text on its way is read as JSON. What stands at its
    end is compared as JSON would be: 1 is 1.0 but not true, an enum is its value.

    >>> is_at({"comments": [{"by": "ann"}]}, "comments.0.by", "ann")
    True
    """
    try:
        for name in path.split("."):
            value = _step(value, name)
        return value is not _MISSING and _same(value, wanted)
    except Exception:  # a text that is no JSON, an attribute that cannot be read
        return False


def plain(where: str, value: object, depth: int = 0) -> Any:
    """A copy of a value that somebody wants, in JSON types; a ConfigError names what JSON has no word for."""
    value = _scalar(value)
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if depth < _DEEPEST and isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return [plain(f"{where}[{index}]", item, depth + 1) for index, item in enumerate(items)]
    if depth < _DEEPEST and isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        if odd := [key for key in table if not isinstance(key, str)]:
            raise ConfigError(where, odd[0], "a key that is a text")
        return {str(key): plain(f"{where}.{key}", item, depth + 1) for key, item in table.items()}
    raise ConfigError(where, value, "a text, a finite number, true, false, none, or a list or table of these")


def _step(value: object, name: str) -> object:
    if value is _MISSING:
        return _MISSING
    value = _scalar(value)
    if isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value)[name] if name in value else _MISSING
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return items[int(name)] if name.isdecimal() and int(name) < len(items) else _MISSING
    inner = _MISSING if name.startswith("_") else getattr(value, name, _MISSING)
    return _MISSING if callable(inner) else inner


def _same(found: object, wanted: object) -> bool:
    found = _scalar(found)
    if isinstance(wanted, bool) or wanted is None:
        return found is wanted
    if isinstance(wanted, int | float):
        return isinstance(found, int | float) and not isinstance(found, bool) and found == wanted
    if isinstance(wanted, list):
        items = cast("list[object]", wanted)
        if not isinstance(found, list | tuple):
            return False
        others = cast("Sequence[object]", found)
        return len(others) == len(items) and all(map(_same, others, items))
    if isinstance(wanted, dict):
        table, other = cast("dict[str, object]", wanted), _table(found)
        return other is not None and other.keys() == table.keys() and all(_same(other[k], table[k]) for k in table)
    if found is None or isinstance(found, bool | int | float | list | tuple | Mapping):
        return False
    return str(found) == wanted


def _scalar(value: object) -> object:
    """An enum as its value, and a date as its text."""
    while isinstance(value, Enum):
        value = value.value
    return value.isoformat() if isinstance(value, date) else value


def _table(value: object) -> Mapping[str, object] | None:
    """The keys and values of a mapping, a dataclass or a pydantic model; None of anything else."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    names = getattr(type(value), "model_fields", None)
    if names is None:
        return None
    return {name: getattr(value, name) for name in names} | (getattr(value, "model_extra", None) or {})
