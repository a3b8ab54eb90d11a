"""Entries: the values in a table that people wrote. Each knows its place, and all mistakes are told together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConfigError, ConfigErrors, SettingError, nearest
from .path import is_path

if TYPE_CHECKING:
    from .toml import Place, TomlDocument

_DEEPEST = 40
_MOST_BITS = 10_000
"""Python refuses to write an int of more than some 4,000 digits."""
_SIMPLE = re.compile(r"[\w-]+")


@dataclass(slots=True)
class TableDocument:
    """What entries are part of: how it is called, where it stands in which file, and what is wrong with it."""

    name: str
    document: TomlDocument | None = None
    file: str = ""
    above: Place = ()
    """The tables of the file that are around it."""
    mistakes: list[ConfigError] = field(default_factory=list[ConfigError])

    def finish(self) -> None:
        """Raise what is wrong, if anything is."""
        if len(self.mistakes) > 1:
            raise ConfigErrors(tuple(self.mistakes))
        if self.mistakes:
            raise self.mistakes[0]


class TableValue:
    """One value, read as what it should be. What it is not is noted, and something harmless given in its place."""

    def __init__(self, page: TableDocument, value: object, place: Place = ()) -> None:
        self.page = page
        self.value = value
        self.place = place

    def wrong(self, expected: str) -> None:
        """Note that the value is not what was expected."""
        page = self.page
        where = page.name + "".join(map(_part, self.place))
        if page.document is None:
            page.mistakes.append(ConfigError(where, self.value, expected))
            return
        line = page.document.line(*page.above, *self.place)
        source = f"{page.file}:{line}" if line else page.file
        page.mistakes.append(SettingError(where, source, self.value, expected))

    def below(self, part: str | int, value: object) -> TableValue:
        """A value in this one."""
        return TableValue(self.page, value, (*self.place, part))

    def table(self, expected: str) -> dict[str, TableValue]:
        """A mapping whose keys are texts."""
        source = self.value
        if not isinstance(source, Mapping):
            self.wrong(expected)
            return {}
        table: dict[str, TableValue] = {}
        for key, value in cast("Mapping[object, object]", source).items():
            if isinstance(key, str):
                table[_bare(key)] = self.below(_bare(key), value)
            else:
                TableValue(self.page, key, self.place).wrong("a key that is a text")
        return table

    def fields(self, known: Mapping[str, object], expected: str) -> dict[str, TableValue]:
        """A mapping with these keys and no other; a key that is left out has the value that is known for it."""
        given = self.table(expected)
        for key, entry in given.items():
            if key not in known:
                meant = nearest(key, known)[:1] or known
                TableValue(self.page, key, entry.place).wrong(f"the key {' or '.join(meant)}")
        return {key: given.get(key) or self.below(key, usual) for key, usual in known.items()}

    def items(self, expected: str) -> list[TableValue]:
        """A list of something."""
        source = self.value
        if isinstance(source, list | tuple):
            return [self.below(index, value) for index, value in enumerate(cast("Iterable[object]", source))]
        self.wrong(f"a list of {expected}")
        return []

    def text(self, expected: str) -> str:
        """A text that says something."""
        if isinstance(self.value, str) and self.value.strip():
            return _bare(self.value)
        self.wrong(expected)
        return ""

    def name(self, expected: str) -> str:
        """A text without space around it."""
        if isinstance(self.value, str) and self.value and self.value == self.value.strip():
            return _bare(self.value)
        self.wrong(expected)
        return ""

    def names(self, several: str, once: str = "each of them once") -> tuple[str, ...]:
        """Names of something, each given once."""
        names: list[str] = []
        for item in self.items(several):
            name = item.name(f"one of the {several}, as a text")
            if name and name in names:
                item.wrong(once)
            names.append(name)
        return tuple(names)

    def path(self) -> str:
        """A dotted path."""
        if isinstance(self.value, str) and is_path(self.value):
            return _bare(self.value)
        self.wrong("a dotted path, such as comment.html_url")
        return ""

    def paths(self) -> tuple[str, ...]:
        """Dotted paths, each given once."""
        paths: list[str] = []
        for item in self.items("dotted paths"):
            path = item.path()
            if path and path in paths:
                item.wrong("each path once")
            paths.append(path)
        return tuple(paths)

    def whole(self, *, least: int) -> int:
        """An int of at least `least`; a bool is no number here."""
        if isinstance(self.value, int) and not isinstance(self.value, bool) and self.value >= least:
            return self.value
        self.wrong(f"an int of at least {least}")
        return least

    def flag(self) -> bool:
        """True or False."""
        if not isinstance(self.value, bool):
            self.wrong("true or false")
        return self.value is True

    def json(self, depth: int = 0) -> Any:
        """A copy in JSON types; enums and dates become what JSON has for them."""
        value = self.value
        while isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, bool | str) or (isinstance(value, float) and math.isfinite(value)):
            return value
        if isinstance(value, int) and value.bit_length() < _MOST_BITS:
            return value
        if isinstance(value, date | time):
            return value.isoformat()
        if isinstance(value, list | tuple) and depth < _DEEPEST:
            return [item.json(depth + 1) for item in self.items("values")]
        if isinstance(value, Mapping) and depth < _DEEPEST:
            return {key: below.json(depth + 1) for key, below in self.table("a table").items()}
        self.wrong("a value that JSON can carry")
        return None


def _bare(text: str) -> str:
    """The text alone, also of a member of an enum."""
    return str.__str__(text)


def _part(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _SIMPLE.fullmatch(part) else f"[{part!r}]"
