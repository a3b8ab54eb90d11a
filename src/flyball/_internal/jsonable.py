"""Conversion of arbitrary values to JSON types.

`to_jsonable` accepts anything and never raises, for results, events and exports. `parse_json_value` is strict, for
values that a caller passes.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

from ..errors import ConfigError

_MAX_DEPTH = 40
_MAX_VALUES = 200_000
_MAX_BITS = 10_000
"""Python refuses to format, and other programs to parse, an int of more than about 4,000 digits."""
_MAX_PLAIN_INT = 1 << 63

_IMMUTABLE_TYPES = frozenset({str, int, float, bool, type(None)})


_UNCHANGED_TYPES = frozenset({bool, type(None)})


def _build_encoder(*, sort_keys: bool) -> Callable[[object], str]:
    """Return what json.dumps does. That would build an encoder each time, which takes as long as a short text."""
    make_encoder: Any = getattr(json.encoder, "c_make_encoder", None)
    if make_encoder is None:
        return json.JSONEncoder(sort_keys=sort_keys, default=str).encode
    # No dict to find cycles: a cycle exceeds the recursion limit.
    encode = make_encoder(None, str, json.encoder.encode_basestring_ascii, None, ": ", ", ", sort_keys, False, True)

    def encode_json(value: object) -> str:
        return "".join(encode(value, 0))

    return encode_json


_ENCODERS = {sort_keys: _build_encoder(sort_keys=sort_keys) for sort_keys in (False, True)}


def to_jsonable(value: object) -> Any:
    """Convert a value to JSON types; never raises and always ends.

    A value that JSON cannot represent becomes its repr.

    >>> to_jsonable({"at": float("inf"), 3: (1, {2})})
    {'at': None, '3': [1, [2]]}
    """
    return value if _is_unchanged(value) else _JsonWriter().write(value, 0)


def _is_unchanged(value: Any) -> bool:
    """Check for the types that most values have, and that need no conversion."""
    kind = cast("type[Any]", type(value))
    if kind is str:
        return value.isascii()
    if kind is int:
        return -_MAX_PLAIN_INT < value < _MAX_PLAIN_INT
    return kind in _UNCHANGED_TYPES or (kind is float and math.isfinite(value))


def to_json_text(value: object, *, sort_keys: bool = False) -> str:
    """Return a value as JSON text; never raises.

    Objects of a model or a tool may contain themselves, or have a text that raises.
    """
    try:
        return _ENCODERS[sort_keys](value)
    except Exception:
        return json.dumps(to_jsonable(value), sort_keys=sort_keys)


class _JsonWriter:
    """Single pass over a value.

    Cycles, deep nesting and surplus values become "…".
    """

    def __init__(self) -> None:
        self.path: set[int] = set()
        self.remaining_values = _MAX_VALUES

    def write(self, value: object, depth: int) -> Any:
        self.remaining_values -= 1
        if _is_unchanged(value):
            return value
        if isinstance(value, Enum):
            return self.write(value.value, depth)
        if isinstance(value, str):
            if str.isascii(value):
                return str.__str__(value)
            return str.encode(value, "utf-8", "replace").decode("utf-8")  # a lone surrogate is not valid text
        if isinstance(value, int):
            return int(value) if value.bit_length() < _MAX_BITS else _safe_repr(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else None
        if depth >= _MAX_DEPTH or self.remaining_values < 0 or id(value) in self.path:
            return "…"
        self.path.add(id(value))
        try:
            return self.write_structure(value, depth + 1)
        except Exception:  # an object with broken attributes is shown by its repr, like one of an unknown type
            return _safe_repr(value)
        finally:
            self.path.discard(id(value))

    def write_structure(self, value: object, depth: int) -> Any:
        kind = type(value)
        if kind is list or kind is tuple:
            return [self.write(item, depth) for item in cast("Iterable[object]", value)]
        if kind is dict or isinstance(value, Mapping):
            return self.write_table(cast("Mapping[object, object]", value).items(), depth)
        if is_dataclass(value) and not isinstance(value, type):
            return self.write_table([(name, getattr(value, name)) for name in _list_fields(kind)], depth)
        model_fields = getattr(type(value), "model_fields", None)
        if isinstance(model_fields, Mapping):  # a pydantic model, recognized without importing pydantic
            return self.write_table(
                [(name, getattr(value, name)) for name in cast("Mapping[str, object]", model_fields)], depth
            )
        if isinstance(value, list | tuple | set | frozenset):
            return [self.write(item, depth) for item in cast("Iterable[object]", value)]
        if isinstance(value, date | time):
            return value.isoformat()
        return self.write(str(value), depth) if isinstance(value, Decimal | PurePath | UUID) else _safe_repr(value)

    def write_table(self, pairs: Iterable[tuple[object, object]], depth: int) -> dict[str, Any]:
        table: dict[str, Any] = {}
        duplicates: dict[str, int] = {}
        for key, item in pairs:
            if type(key) is str and key.isascii():
                name = base_name = key
            else:
                name = base_name = self.write(key, depth) if isinstance(key, str) else _safe_repr(key)
            while name in table:  # 1 and "1" are two keys in Python, and every lone surrogate becomes "?"
                duplicates[base_name] = number = duplicates.get(base_name, 0) + 1
                name = f"{base_name}'" if number == 1 else f"{base_name}'{number}"
            if item is None or type(item) is bool:  # a call for each would take longer
                self.remaining_values -= 1
                table[name] = item
            else:
                table[name] = self.write(item, depth)
        return table


@cache
def _list_fields(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of a dataclass's fields, which `fields` takes as long to list as to convert."""
    return tuple(field.name for field in fields(kind))


def _safe_repr(value: object) -> str:
    try:
        return repr(value).encode("utf-8", "replace").decode("utf-8")
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"


def copy_arguments(values: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that later changes to their lists and tables do not reach.

    A value that cannot be copied is converted to JSON types.
    """
    if _IMMUTABLE_TYPES.issuperset(map(type, values.values())):
        return values
    return {name: _copy_value(value) for name, value in values.items()}


def _copy_value(value: object) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:
        return to_jsonable(value)


def parse_json_value(where: str, value: object) -> Any:
    """Return a deep copy in JSON types.

    Raises ConfigError with the path of a value that JSON cannot represent.
    """
    return _copy_json(where, value, 0)


def _copy_json(where: str | Way, value: object, depth: int) -> Any:
    value = _to_scalar(value)
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return [_copy_json((where, index), item, depth + 1) for index, item in enumerate(items)]
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        if odd := [key for key in table if not isinstance(key, str)]:
            raise ConfigError(place(where), odd[0], "a string as key")
        return {str(key): _copy_json((where, str(key)), item, depth + 1) for key, item in table.items()}
    raise ConfigError(place(where), value, "a string, a finite number, true, false, none, or a list or table of these")


def _to_scalar(value: object) -> object:
    while isinstance(value, Enum):
        value = value.value
    return value.isoformat() if isinstance(value, date) else value


Way = tuple["str | Way", str | int]
"""Path to a value: the path of its parent, and one step. Errors format it with `place`; keys may be long."""


def place(path: str | Way) -> str:
    """Format a path, such as `payload.rows[3]`."""
    steps: list[str] = []
    while not isinstance(path, str):
        path, step = path
        steps.append(f".{step}" if isinstance(step, str) else f"[{step}]")
    suffix = "".join(reversed(steps))
    return f"{path}{suffix}" if path else suffix.removeprefix(".")
