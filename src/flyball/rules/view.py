"""What conditions and templates can see: a frozen view, in which a dot is a look-up and never an attribute.

All that leaves a view is of one of Python's own types, and of no class derived from them: none, a bool, an int of at
most 64 bits, a float, a text, a list of these, or a `Table` of these, which can only be read. So nothing that is done
with such a value can run code that came with the data. What is none of these is refused when it is looked at, and not
sooner: one odd field makes its neighbours no less readable.

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
"""The largest int, and its negative the smallest, wherever one comes from."""
MAX_ITEMS = 100_000
"""Items of a list that is looked at (with those of lists in it), items and characters of what an expression makes."""
_LONGEST_NAME = 1_000
"""Characters of the name of a part, which each of its items repeats."""
MAX_DEPTH = 40
"""Lists and tables in each other."""

_SCALAR_TYPES = frozenset({NoneType, bool, float, str})
_MAPPING_TYPES, _SEQUENCE_TYPES = (dict, MappingProxyType), (list, tuple)


class NoField(RuleError):
    """What is looked for is not there, and all else is well."""


class View(dict[str, object]):
    """Plain values by their dotted names: each is read from the data when it is first asked for, and then kept.

    One is asked by `view["a.b.c"]`, which is also how the code of an expression does it: one look-up for a whole name.
    A RuleError tells what is not there. As a dict it holds what was asked for so far.
    """

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, object]) -> None:
        super().__init__()
        self._data = Table(data, "")

    def __missing__(self, name: str) -> object:
        owner, dot, field = name.rpartition(".")
        self[name] = found = get_field(self[owner], field) if dot else self._data[name]
        return found

    def get(self, name: str, default: object = None) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As `view[name]`, or the default for what is not there."""
        try:
            return self[name]
        except RuleError:
            return default


class Lazy:
    """A part of the data that is computed when it is first looked at, and then kept.

    Only what is marked in this way is called: a function that happens to be in somebody's data is not. `compute` may
    raise; whoever looks at the part is then told so, also later, and it is not called again.
    """

    __slots__ = ("compute",)

    def __init__(self, compute: Callable[[], object]) -> None:
        self.compute = compute


class Table:
    """A mapping that can only be read."""

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
    """What stands behind a dot."""
    if type(value) is Table:
        return value[name]
    raise NoField(f"{describe_type(value)} has no field {_quote_key(name)}")


def freeze(value: Any, name: str) -> object:
    """A value as it leaves a view; a RuleError tells why it cannot, by its dotted name.

    It looks at nothing but the type itself: what a class says of itself, or does, is not asked.
    """
    if _is_scalar(value):
        return value
    own = cast("type[object]", type(value))
    if own is Table:
        return value
    if own in _MAPPING_TYPES:
        return Table(value, name)
    if own in _SEQUENCE_TYPES:
        return _ListFreezer(name).freeze(value, name, 1)
    if issubclass(own, StrEnum):
        return str.__str__(value)
    if own is _FailedPart:
        raise RuleError(value.reason)
    what = "a number of more than 64 bits" if own is int else f"a {own.__name__}"
    raise RuleError(f"{name} is {what}, which no expression can use")


def _is_scalar(value: Any) -> bool:
    return type(value) in _SCALAR_TYPES or (type(value) is int and -MAX_INT <= value <= MAX_INT)


def to_plain(value: object, max_size: int = MAX_ITEMS) -> Any:
    """A copy of a value that left a view, in dicts and lists of no more than so many items and characters in all."""
    return _Copier(describe_type(value), max_size).copy(value, 0)


def describe_type(value: object) -> str:
    """What a value is, in the words of a rule's author."""
    return _TYPE_NAMES.get(type(value)) or f"a {type(value).__name__}"


_TYPE_NAMES: dict[type, str] = {
    NoneType: "none",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    Table: "a table",
}


def _quote_key(key: object) -> str:
    return repr(key[:100]) if isinstance(key, str) else f"that is {describe_type(key)}"


class _FailedPart:
    """What is kept of a part that could not be computed."""

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
    raise RuleError(f"{name or 'the data'} is a table with a key that is a {type(key).__name__}, and no text")


class _ListFreezer:
    """A list and the lists in it, which have a bound together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.remaining = MAX_ITEMS

    def freeze(self, values: Any, name: str, level: int) -> list[object]:
        self.remaining -= len(values)
        if self.remaining < 0 or level > MAX_DEPTH:
            raise RuleError(f"{self.name} is a list of more than {MAX_ITEMS:,} items or {MAX_DEPTH} levels")
        return [
            value if _is_scalar(value) else self.freeze_item(value, f"{name}[{place}]", level)
            for place, value in enumerate(values)
        ]

    def freeze_item(self, value: object, name: str, level: int) -> object:
        return self.freeze(value, name, level + 1) if type(value) in _SEQUENCE_TYPES else freeze(value, name)


class _Copier:
    """Counts while it copies, so that what is too large is never built."""

    def __init__(self, what: str, max_size: int) -> None:
        self.what = what
        self.max_size = self.remaining = max_size

    def copy(self, value: object, depth: int) -> object:
        own = type(value)
        self.remaining -= len(cast("str", value)) if own is str else 1
        if self.remaining < 0 or depth > MAX_DEPTH:
            raise RuleError(f"{self.what} of more than {self.max_size:,} characters and items, or {MAX_DEPTH} levels")
        if type(value) is Table:
            self.remaining -= sum(map(len, value))
            return {key: self.copy(value[key], depth + 1) for key in value}
        if own is list:
            return [self.copy(item, depth + 1) for item in cast("list[object]", value)]
        return value
