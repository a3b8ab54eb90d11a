"""Any value as JSON can carry it: what results, events and exports are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from typing import Any, cast

_DEEPEST = 40


def jsonable(value: object, depth: int = 0) -> Any:
    """`value` in JSON types; what JSON has no word for becomes its text. It never raises.

    >>> jsonable({"at": float("inf"), 3: (1, {2})})
    {'at': None, '3': [1, [2]]}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return jsonable(value.value, depth + 1)
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is no text
    if isinstance(value, int | float):
        return value if isinstance(value, int) or math.isfinite(value) else None
    if depth >= _DEEPEST:
        return _text(value)
    return _structure(value, depth + 1)


def _structure(value: object, depth: int) -> Any:
    try:
        found = _opened(value)
        if isinstance(found, dict):
            pairs = cast("dict[object, object]", found).items()
            return {jsonable(_key(key)): jsonable(item, depth) for key, item in pairs}
        if isinstance(found, list):
            return [jsonable(item, depth) for item in cast("list[object]", found)]
    except Exception:  # an object that cannot be read is shown by its text, like one we do not know
        found = None
    return found if isinstance(found, str) else _text(value)


def _opened(value: object) -> object:
    """What is inside a value: a dict, a list, a text, or None where we do not know."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, list | tuple | set | frozenset):
        return list(cast("Iterable[object]", value))
    return value.isoformat() if isinstance(value, date) else None


def _key(key: object) -> str:
    return key if isinstance(key, str) else _text(key)


def _text(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:
        text = f"<{type(value).__name__} that cannot be shown>"
    return jsonable(text)
