"""Reader for tables that users write, such as rules in TOML.

Each value knows its place in the file, and all errors are collected and raised together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import ConfigError, ConfigErrors, SettingError, suggest_names
from .path import is_path

if TYPE_CHECKING:
    from .toml import KeyPath, TomlDocument

Member = TypeVar("Member", bound=StrEnum)
_MAX_DEPTH = 40
_MAX_BITS = 10_000
"""Python refuses to format an int of more than about 4,000 digits."""
_BARE_KEY = re.compile(r"[\w-]+")


@dataclass(slots=True)
class TableDocument:
    """Table with its place in a file and the errors found in it."""

    name: str
    toml: TomlDocument | None = None
    file: str = ""
    parent_keys: KeyPath = ()
    """Path of the table in the file."""
    errors: list[ConfigError] = field(default_factory=list[ConfigError])

    def describe(self, key_path: KeyPath) -> str:
        """Return a value's name for error messages, as in `test[0].context`."""
        return f"{self.name}{''.join(map(_format_key, key_path))}".removeprefix(".") or "the file"

    def locate(self, key_path: KeyPath) -> str:
        """Return the file and line of a value."""
        line = None if self.toml is None else self.toml.line(*self.parent_keys, *key_path)
        return f"{self.file}:{line}" if line else self.file

    def raise_errors(self) -> None:
        """Raise the collected errors, if there are any."""
        if len(self.errors) > 1:
            raise ConfigErrors(tuple(self.errors))
        if self.errors:
            raise self.errors[0]


class TableValue:
    """Value with a reading method per expected type.

    A value of the wrong type adds an error and reads as a harmless default.
    """

    def __init__(self, document: TableDocument, value: object, key_path: KeyPath = ()) -> None:
        self.document = document
        self.value = value
        self.key_path = key_path

    def add_error(self, expected: str) -> None:
        """Add an error that the value is not what was expected."""
        document = self.document
        where = document.describe(self.key_path)
        if document.toml is None:
            document.errors.append(ConfigError(where, self.value, expected))
        else:
            document.errors.append(SettingError(where, document.locate(self.key_path), self.value, expected))

    def child(self, key: str | int, value: object) -> TableValue:
        return TableValue(self.document, value, (*self.key_path, key))

    def table(self, expected: str) -> dict[str, TableValue]:
        """Read a mapping with string keys."""
        source = self.value
        if not isinstance(source, Mapping):
            self.add_error(expected)
            return {}
        table: dict[str, TableValue] = {}
        for key, value in cast("Mapping[object, object]", source).items():
            if isinstance(key, str):
                table[_to_str(key)] = self.child(_to_str(key), value)
            else:
                TableValue(self.document, key, self.key_path).add_error("a string as key")
        return table

    def fields(self, defaults: Mapping[str, object], expected: str) -> dict[str, TableValue]:
        """Read a mapping with these keys only, with defaults for missing ones."""
        entries = self.table(expected)
        check_keys(entries, defaults)
        return {key: entries.get(key) or self.child(key, default) for key, default in defaults.items()}

    def items(self, expected: str) -> list[TableValue]:
        """Read a list."""
        source = self.value
        if isinstance(source, list | tuple):
            return [self.child(index, value) for index, value in enumerate(cast("Iterable[object]", source))]
        self.add_error(f"a list of {expected}")
        return []

    def text(self, expected: str = "a non-empty string") -> str:
        """Read a text that is not blank."""
        if isinstance(self.value, str) and self.value.strip():
            return _to_str(self.value)
        self.add_error(expected)
        return ""

    def optional_text(self) -> str | None:
        """Read a text that is not blank, or None if it is missing."""
        return None if self.value is None else self.text() or None

    def member(self, enum_type: type[Member]) -> Member | None:
        """Read the name of an enum member."""
        names = list(enum_type)
        if isinstance(self.value, str) and self.value in names:
            return enum_type(self.value)
        near = suggest_names(self.value, names) if isinstance(self.value, str) else []
        self.add_error(" or ".join(near) or f"one of {', '.join(names)}")
        return None

    def name(self, expected: str) -> str:
        """Read a text without surrounding space."""
        if isinstance(self.value, str) and self.value and self.value == self.value.strip():
            return _to_str(self.value)
        self.add_error(expected)
        return ""

    def names(self, expected: str, expected_once: str = "each of them once") -> tuple[str, ...]:
        """Read a list of distinct names."""
        names: list[str] = []
        for item in self.items(expected):
            name = item.name("a non-empty string without surrounding spaces")
            if name and name in names:
                item.add_error(expected_once)
            names.append(name)
        return tuple(names)

    def path(self) -> str:
        """Read a dotted path."""
        if isinstance(self.value, str) and is_path(self.value):
            return _to_str(self.value)
        self.add_error("a dotted path, such as comment.html_url")
        return ""

    def paths(self) -> tuple[str, ...]:
        """Read a list of distinct dotted paths."""
        paths: list[str] = []
        for item in self.items("dotted paths"):
            path = item.path()
            if path and path in paths:
                item.add_error("each path once")
            paths.append(path)
        return tuple(paths)

    def integer(self, *, min_value: int, max_value: int | None = None) -> int:
        """Read an int within bounds; a bool is refused."""
        value = self.value
        if isinstance(value, int) and not isinstance(value, bool) and min_value <= value <= (max_value or value):
            return value
        self.add_error(
            f"a whole number from {min_value} to {max_value:,}" if max_value else f"an int of at least {min_value}"
        )
        return min_value

    def flag(self) -> bool:
        """Read a bool."""
        if not isinstance(self.value, bool):
            self.add_error("true or false")
        return self.value is True

    def json(self, depth: int = 0) -> Any:
        """Return a copy in JSON types; enums and dates are converted."""
        value = self.value
        while isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, bool | str) or (isinstance(value, float) and math.isfinite(value)):
            return value
        if isinstance(value, int) and value.bit_length() < _MAX_BITS:
            return value
        if isinstance(value, date | time):
            return value.isoformat()
        if isinstance(value, list | tuple) and depth < _MAX_DEPTH:
            return [item.json(depth + 1) for item in self.items("values")]
        if isinstance(value, Mapping) and depth < _MAX_DEPTH:
            return {key: child.json(depth + 1) for key, child in self.table("a table").items()}
        self.add_error("a value that JSON can represent")
        return None


def check_keys(entries: Mapping[str, TableValue], known: Iterable[str]) -> None:
    """Add an error for each unknown key of a table."""
    names = tuple(known)
    for key, entry in entries.items():
        if key not in names:
            near = suggest_names(key, names) or names
            TableValue(entry.document, key, entry.key_path).add_error(f"the key {' or '.join(near)}")


def _to_str(text: str) -> str:
    return str.__str__(text)  # the plain text, also of a StrEnum member


def _format_key(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _BARE_KEY.fullmatch(part) else f"[{part!r}]"
