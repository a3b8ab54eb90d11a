"""Reader for tables that users write, such as rules in TOML.

Each value knows its place in the file, and all errors are collected and raised together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConfigError, ConfigErrors, SettingError, suggest_names
from .path import is_path

if TYPE_CHECKING:
    from .toml import KeyPath, TomlDocument

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
        where = document.name + "".join(map(_format_key, self.key_path))
        if document.toml is None:
            document.errors.append(ConfigError(where, self.value, expected))
            return
        line = document.toml.line(*document.parent_keys, *self.key_path)
        source = f"{document.file}:{line}" if line else document.file
        document.errors.append(SettingError(where, source, self.value, expected))

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
        for key, entry in entries.items():
            if key not in defaults:
                names = suggest_names(key, defaults)[:1] or defaults
                TableValue(self.document, key, entry.key_path).add_error(f"the key {' or '.join(names)}")
        return {key: entries.get(key) or self.child(key, default) for key, default in defaults.items()}

    def items(self, expected: str) -> list[TableValue]:
        """Read a list."""
        source = self.value
        if isinstance(source, list | tuple):
            return [self.child(index, value) for index, value in enumerate(cast("Iterable[object]", source))]
        self.add_error(f"a list of {expected}")
        return []

    def text(self, expected: str) -> str:
        """Read a text that is not blank."""
        if isinstance(self.value, str) and self.value.strip():
            return _to_str(self.value)
        self.add_error(expected)
        return ""

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

    def integer(self, *, min_value: int) -> int:
        """Read an int of at least `min_value`; a bool is refused."""
        if isinstance(self.value, int) and not isinstance(self.value, bool) and self.value >= min_value:
            return self.value
        self.add_error(f"an int of at least {min_value}")
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


def _to_str(text: str) -> str:
    return str.__str__(text)  # the plain text, also of a StrEnum member


def _format_key(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _BARE_KEY.fullmatch(part) else f"[{part!r}]"
