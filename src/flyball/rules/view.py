"""Frozen views of data for conditions and templates. A dot is a look-up, never an attribute.

Every value that a view returns has one of Python's built-in types, never a subclass: none, a bool, an int of at most 64
bits, a float, a text, a list of these, or a read-only `Table` of these. So no operation on such a value can run code
that came with the data. Any other value is refused when an expression reads it. One odd field does not affect the
others.

>>> view = View({"context": {"turn": {"number": 3}, "history": Lazy(lambda: {"tools": ("search", "read")})}})
>>> view["context.turn.number"], view["context.history.tools"]
(3, ['search', 'read'])
>>> view["context.turn.cost"]
Traceback (most recent call last):
flyball.rules.view.NoField: context.turn has no field 'cost'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType, NoneType
from typing import Any, cast

from ..errors import RuleError, quote_value

MAX_INT = 2**63 - 1
"""Largest int in data and results. Its negative is the smallest."""
MAX_ITEMS = 100_000
"""Maximum items of a list, nested lists included, and maximum items or characters of a result."""
_LONGEST_NAME = 1_000
"""Maximum characters of a part's name, which each of its items repeats."""
MAX_DEPTH = 40
"""Maximum nesting of lists and tables."""

_SCALAR_TYPES = frozenset({NoneType, bool, float, str})
_MAPPING_TYPES, _SEQUENCE_TYPES = (dict, MappingProxyType), (list, tuple)


class NoField(RuleError):
    """Raised for a field that does not exist."""


class View(dict[str, object]):
    """Plain values by their dotted names, read on first use.

    Compiled expressions use `view["a.b.c"]`: one dict look-up for a whole name. A missing field raises NoField, and a
    value of a forbidden type raises RuleError. As a dict, a view holds the values that were read so far.
    """

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, object]) -> None:
        super().__init__()
        self._data = Table(data, "")

    def __missing__(self, name: str) -> object:
        owner, dot, field = name.rpartition(".")
        self[name] = value = get_field(self[owner], field) if dot else self._data[name]
        return value

    def get(self, name: str, default: object = None) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return `view[name]`, or the default if that raises RuleError."""
        try:
            return self[name]
        except RuleError:
            return default


class Lazy:
    """A part of the data that is computed on first use, once.

    Only functions wrapped like this are called, never a function that happens to be in the data. If `compute` raises,
    every read of the part raises RuleError, and `compute` is not called again.
    """

    __slots__ = ("compute",)

    def __init__(self, compute: Callable[[], object]) -> None:
        self.compute = compute


class Table:
    """A read-only mapping of frozen values."""

    __slots__ = ("_frozen", "_name", "_parts")

    def __init__(self, parts: Mapping[str, object], name: str) -> None:
        self._name = name
        self._parts = {key if type(key) is str else _check_key(key, name): part for key, part in parts.items()}
        self._frozen: dict[str, object] = {}

    def __getitem__(self, key: object) -> object:
        if type(key) is not str or key not in self._parts:
            raise NoField(f"{self._name or 'the data'} has no field {_quote_key(key)}")
        if key not in self._frozen:
            name = (f"{self._name}.{key}" if self._name else key)[:_LONGEST_NAME]
            part = self._parts[key]
            if type(part) is Lazy:
                part = self._parts[key] = _compute(part, name)
            self._frozen[key] = freeze(part, name)
        return self._frozen[key]

    def __contains__(self, key: object) -> bool:
        return type(key) is str and key in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __eq__(self, other: object) -> bool:
        return type(other) is Table and (self is other or to_plain(self) == to_plain(other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def get_field(value: object, name: str) -> object:
    """Return a field of a table. Raises NoField."""
    if type(value) is Table:
        return value[name]
    raise NoField(f"{describe_type(value)} has no field {_quote_key(name)}")


def freeze(value: Any, name: str) -> object:
    """Convert a value to the types that expressions can use.

    Only the exact type counts, so no code of the value's class runs. Raises RuleError, with the dotted name of the
    value, for any other type.
    """
    if _is_scalar(value):
        return value
    kind = cast("type[object]", type(value))
    if kind is Table:
        return value
    if kind in _MAPPING_TYPES:
        return Table(value, name)
    if kind in _SEQUENCE_TYPES:
        return _ListFreezer(name).freeze(value, name, 1)
    if issubclass(kind, StrEnum):
        return str.__str__(value)
    if kind is _FailedPart:
        raise RuleError(value.reason)
    description = "a number of more than 64 bits" if kind is int else f"a {kind.__name__}"
    raise RuleError(f"{name} is {description}, which an expression cannot use")


def _is_scalar(value: Any) -> bool:
    return type(value) in _SCALAR_TYPES or (type(value) is int and -MAX_INT <= value <= MAX_INT)


def to_plain(value: object, max_size: int = MAX_ITEMS) -> Any:
    """Copy a frozen value into dicts and lists. Raises RuleError if it is too large.

    `max_size` limits the items and characters in all.
    """
    return _Copier(describe_type(value), max_size).copy(value, 0)


def describe_type(value: object) -> str:
    """Describe the type of a value for the author of a rule."""
    return _TYPE_NAMES.get(type(value)) or f"a {type(value).__name__}"


_TYPE_NAMES: dict[type, str] = {
    NoneType: "none",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    Table: "a table",
}


def _quote_key(key: object) -> str:
    return repr(key[:100]) if isinstance(key, str) else f"that is {describe_type(key)}"


class _FailedPart:
    """Placeholder for a part that could not be computed."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _compute(part: Lazy, name: str) -> object:
    try:
        return part.compute()
    except Exception as error:
        return _FailedPart(f"{name} could not be computed: {quote_value(error)}")


def _check_key(key: object, name: str) -> str:
    if issubclass(type(key), StrEnum):
        return str.__str__(cast("str", key))
    raise RuleError(f"{name or 'the data'} has a key of type {type(key).__name__}; keys must be strings")


class _ListFreezer:
    """Freezer of nested lists, with one limit for all items."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.remaining = MAX_ITEMS

    def freeze(self, values: Any, name: str, level: int) -> list[object]:
        self.remaining -= len(values)
        if self.remaining < 0 or level > MAX_DEPTH:
            raise RuleError(f"{self.name} is a list of more than {MAX_ITEMS:,} items or {MAX_DEPTH} levels")
        return [
            value if _is_scalar(value) else self.freeze_item(value, f"{name}[{index}]", level)
            for index, value in enumerate(values)
        ]

    def freeze_item(self, value: object, name: str, level: int) -> object:
        return self.freeze(value, name, level + 1) if type(value) in _SEQUENCE_TYPES else freeze(value, name)


class _Copier:
    """Copier that counts as it copies, so that a large value is never built."""

    def __init__(self, what: str, max_size: int) -> None:
        self.what = what
        self.max_size = self.remaining = max_size

    def copy(self, value: object, depth: int) -> object:
        kind = type(value)
        self.remaining -= len(cast("str", value)) if kind is str else 1
        if self.remaining < 0 or depth > MAX_DEPTH:
            raise RuleError(f"{self.what} of more than {self.max_size:,} characters and items, or {MAX_DEPTH} levels")
        if type(value) is Table:
            self.remaining -= sum(map(len, value))
            return {key: self.copy(value[key], depth + 1) for key in value}
        if kind is list:
            return [self.copy(item, depth + 1) for item in cast("list[object]", value)]
        return value
