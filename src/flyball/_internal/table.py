"""Entries: the values in a table that people wrote. Each knows its place, and all mistakes are told together."""

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
"""Python refuses to write an int of more than some 4,000 digits."""
_BARE_KEY = re.compile(r"[\w-]+")


@dataclass(slots=True)
class TableDocument:
    """What entries are part of: how it is called, where it stands in which file, and what is wrong with it."""

    name: str
    toml: TomlDocument | None = None
    file: str = ""
    parent_keys: KeyPath = ()
    """The tables of the file that are around it."""
    errors: list[ConfigError] = field(default_factory=list[ConfigError])

    def raise_errors(self) -> None:
        """Raise what is wrong, if anything is."""
        if len(self.errors) > 1:
            raise ConfigErrors(tuple(self.errors))
        if self.errors:
            raise self.errors[0]


class TableValue:
    """One value, read as what it should be. What it is not is noted, and something harmless given in its place."""

    def __init__(self, document: TableDocument, value: object, key_path: KeyPath = ()) -> None:
        self.document = document
        self.value = value
        self.key_path = key_path

    def add_error(self, expected: str) -> None:
        """Note that the value is not what was expected."""
        page = self.document
        where = page.name + "".join(map(_format_key, self.key_path))
        if page.toml is None:
            page.errors.append(ConfigError(where, self.value, expected))
            return
        line = page.toml.line(*page.parent_keys, *self.key_path)
        source = f"{page.file}:{line}" if line else page.file
        page.errors.append(SettingError(where, source, self.value, expected))

    def child(self, key: str | int, value: object) -> TableValue:
        """A value in this one."""
        return TableValue(self.document, value, (*self.key_path, key))

    def table(self, expected: str) -> dict[str, TableValue]:
        """A mapping whose keys are texts."""
        source = self.value
        if not isinstance(source, Mapping):
            self.add_error(expected)
            return {}
        table: dict[str, TableValue] = {}
        for key, value in cast("Mapping[object, object]", source).items():
            if isinstance(key, str):
                table[_to_str(key)] = self.child(_to_str(key), value)
            else:
                TableValue(self.document, key, self.key_path).add_error("a key that is a text")
        return table

    def fields(self, defaults: Mapping[str, object], expected: str) -> dict[str, TableValue]:
        """A mapping with these keys and no other; a key that is left out has the value that is known for it."""
        given = self.table(expected)
        for key, entry in given.items():
            if key not in defaults:
                meant = suggest_names(key, defaults)[:1] or defaults
                TableValue(self.document, key, entry.key_path).add_error(f"the key {' or '.join(meant)}")
        return {key: given.get(key) or self.child(key, usual) for key, usual in defaults.items()}

    def items(self, expected: str) -> list[TableValue]:
        """A list of something."""
        source = self.value
        if isinstance(source, list | tuple):
            return [self.child(index, value) for index, value in enumerate(cast("Iterable[object]", source))]
        self.add_error(f"a list of {expected}")
        return []

    def text(self, expected: str) -> str:
        """A text that says something."""
        if isinstance(self.value, str) and self.value.strip():
            return _to_str(self.value)
        self.add_error(expected)
        return ""

    def name(self, expected: str) -> str:
        """A text without space around it."""
        if isinstance(self.value, str) and self.value and self.value == self.value.strip():
            return _to_str(self.value)
        self.add_error(expected)
        return ""

    def names(self, expected: str, expected_once: str = "each of them once") -> tuple[str, ...]:
        """Names of something, each given once."""
        names: list[str] = []
        for item in self.items(expected):
            name = item.name(f"one of the {expected}, as a text")
            if name and name in names:
                item.add_error(expected_once)
            names.append(name)
        return tuple(names)

    def path(self) -> str:
        """A dotted path."""
        if isinstance(self.value, str) and is_path(self.value):
            return _to_str(self.value)
        self.add_error("a dotted path, such as comment.html_url")
        return ""

    def paths(self) -> tuple[str, ...]:
        """Dotted paths, each given once."""
        paths: list[str] = []
        for item in self.items("dotted paths"):
            path = item.path()
            if path and path in paths:
                item.add_error("each path once")
            paths.append(path)
        return tuple(paths)

    def integer(self, *, min_value: int) -> int:
        """An int of at least `least`; a bool is no number here."""
        if isinstance(self.value, int) and not isinstance(self.value, bool) and self.value >= min_value:
            return self.value
        self.add_error(f"an int of at least {min_value}")
        return min_value

    def flag(self) -> bool:
        """True or False."""
        if not isinstance(self.value, bool):
            self.add_error("true or false")
        return self.value is True

    def json(self, depth: int = 0) -> Any:
        """A copy in JSON types; enums and dates become what JSON has for them."""
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
            return {key: below.json(depth + 1) for key, below in self.table("a table").items()}
        self.add_error("a value that JSON can carry")
        return None


def _to_str(text: str) -> str:
    """The text alone, also of a member of an enum."""
    return str.__str__(text)


def _format_key(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _BARE_KEY.fullmatch(part) else f"[{part!r}]"
