"""Reading the tables of a rule file: each value is checked, and what is wrong is noted with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar, cast

from .._internal.toml import TomlDocument
from ..errors import ConfigError, ConfigErrors, SettingError, nearest
from .template import Template
from .vocabulary import vocabulary

Member = TypeVar("Member", bound=StrEnum)
Place = tuple[str | int, ...]


class RuleReader:
    """Reads values of one document. What is wrong is noted, and something harmless given, so that all is found."""

    def __init__(self, document: TomlDocument, source: str) -> None:
        self.document = document
        self.source = source
        self.mistakes: list[ConfigError] = []
        self.words = vocabulary()
        """What expressions may use."""

    def wrong(self, place: Place, found: object, expected: str) -> None:
        """Note a mistake."""
        line = self.document.line(*place)
        source = self.source if line is None else f"{self.source}:{line}"
        self.mistakes.append(SettingError(_dotted(place) or "the file", source, found, expected))

    def table(self, name: str, *, required: bool = False) -> dict[str, Any]:
        """A table of the file; an empty one where there is none."""
        found = self.document.data.get(name)
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
        if found is not None or required:
            self.wrong((name,), found, f"a table [{name}]")
        return {}

    def known(self, place: Place, table: Mapping[str, Any], keys: Iterable[str]) -> None:
        """Note keys that nobody reads."""
        names = tuple(keys)
        for key in table:
            if key not in names:
                near = nearest(key, names) or names
                self.wrong((*place, key), key, f"the key {' or '.join(near)}")

    def text(self, place: Place, table: Mapping[str, Any], *, required: bool = False) -> str | None:
        """A text that says something; None where there is none."""
        value = table.get(str(place[-1]))
        if value is None and not required:
            return None
        if isinstance(value, str) and value.strip():
            return value
        self.wrong(place, value, "a text that is not empty")
        return None

    def whole(self, place: Place, table: Mapping[str, Any], default: int, least: int, most: int) -> int:
        """A whole number within bounds."""
        value = table.get(str(place[-1]), default)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.wrong(place, value, f"a whole number from {least} to {most:,}")
        return default

    def flag(self, place: Place, table: Mapping[str, Any], default: bool) -> bool:
        """True or false."""
        value = table.get(str(place[-1]), default)
        if isinstance(value, bool):
            return value
        self.wrong(place, value, "true or false")
        return default

    def member(self, place: Place, table: Mapping[str, Any], kind: type[Member], default: Member | None) -> Any:
        """The member of a closed set that is named; the default where none is, and a mistake where there is none."""
        value = table.get(str(place[-1]), default)
        if isinstance(value, str) and value in list(kind):
            return kind(value)
        near = nearest(value, list(kind)) if isinstance(value, str) else []
        self.wrong(place, value, f"one of {', '.join(near or kind)}")
        return default

    def template(self, key: str, table: Mapping[str, Any], *, required: bool = True) -> Any:
        """A template of the action."""
        text = self.text(("action", key), table, required=required)
        if text is None:
            return None
        return self.compiled(("action", key), lambda where: Template(text, self.words, where))

    def value(self, key: str, table: Mapping[str, Any], above: Place = ("action",)) -> Template | None:
        """A value that may be a template; a number, true or false stands for itself."""
        given = table.get(key)
        if given is None:
            return None
        if not isinstance(given, bool | int | float | str):
            self.wrong((*above, key), given, "a text, a number, true or false")
            return None
        text = given if isinstance(given, str) else f"{{{{ {given!r} }}}}"
        return self.compiled((*above, key), lambda where: Template(text, self.words, where))

    def compiled(self, place: Place, make: Callable[[str], Any]) -> Any:
        """A condition or template; each of its mistakes has the line of its key, and its own column."""
        try:
            return make(_dotted(place))
        except ConfigErrors as found:
            for error in found.errors:
                self._wrong_at(place, error)
        except ConfigError as error:
            self._wrong_at(place, error)
        return None

    def _wrong_at(self, place: Place, error: ConfigError) -> None:
        line = self.document.line(*place)
        source = self.source if line is None else f"{self.source}:{line}"
        self.mistakes.append(SettingError(error.where, source, error.found, error.expected))


def _dotted(place: Place) -> str:
    """As one would write it: `test[0].context`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
