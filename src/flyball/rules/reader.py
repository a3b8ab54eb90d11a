"""Reading the tables of a rule file: each value is checked, and what is wrong is noted with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar, cast

from .._internal.toml import TomlDocument
from ..errors import ConfigError, ConfigErrors, SettingError, suggest_names
from .template import Template
from .vocabulary import build_vocabulary

Member = TypeVar("Member", bound=StrEnum)
Place = tuple[str | int, ...]


class RuleReader:
    """Reads values of one document. What is wrong is noted, and something harmless given, so that all is found."""

    def __init__(self, document: TomlDocument, source: str) -> None:
        self.document = document
        self.source = source
        self.errors: list[ConfigError] = []
        self.vocabulary = build_vocabulary()
        """What expressions may use."""

    def add_error(self, place: Place, found: object, expected: str) -> None:
        """Note a mistake."""
        line = self.document.line(*place)
        source = self.source if line is None else f"{self.source}:{line}"
        self.errors.append(SettingError(_format_place(place) or "the file", source, found, expected))

    def read_table(self, name: str, *, required: bool = False) -> dict[str, Any]:
        """A table of the file; an empty one where there is none."""
        found = self.document.data.get(name)
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
        if found is not None or required:
            self.add_error((name,), found, f"a table [{name}]")
        return {}

    def check_keys(self, place: Place, table: Mapping[str, Any], keys: Iterable[str]) -> None:
        """Note keys that nobody reads."""
        names = tuple(keys)
        for key in table:
            if key not in names:
                near = suggest_names(key, names) or names
                self.add_error((*place, key), key, f"the key {' or '.join(near)}")

    def read_text(self, place: Place, table: Mapping[str, Any], *, required: bool = False) -> str | None:
        """A text that says something; None where there is none."""
        value = table.get(str(place[-1]))
        if value is None and not required:
            return None
        if isinstance(value, str) and value.strip():
            return value
        self.add_error(place, value, "a text that is not empty")
        return None

    def read_int(self, place: Place, table: Mapping[str, Any], default: int, min_value: int, max_value: int) -> int:
        """A whole number within bounds."""
        value = table.get(str(place[-1]), default)
        if isinstance(value, int) and not isinstance(value, bool) and min_value <= value <= max_value:
            return value
        self.add_error(place, value, f"a whole number from {min_value} to {max_value:,}")
        return default

    def read_bool(self, place: Place, table: Mapping[str, Any], default: bool) -> bool:
        """True or false."""
        value = table.get(str(place[-1]), default)
        if isinstance(value, bool):
            return value
        self.add_error(place, value, "true or false")
        return default

    def read_member(self, place: Place, table: Mapping[str, Any], kind: type[Member], default: Member | None) -> Any:
        """The member of a closed set that is named; the default where none is, and a mistake where there is none."""
        value = table.get(str(place[-1]), default)
        if isinstance(value, str) and value in list(kind):
            return kind(value)
        near = suggest_names(value, list(kind)) if isinstance(value, str) else []
        self.add_error(place, value, f"one of {', '.join(near or kind)}")
        return default

    def read_template(self, key: str, table: Mapping[str, Any], *, required: bool = True) -> Any:
        """A template of the action."""
        text = self.read_text(("action", key), table, required=required)
        if text is None:
            return None
        return self.compile_value(("action", key), lambda where: Template(text, self.vocabulary, where))

    def read_value(self, key: str, table: Mapping[str, Any], parent: Place = ("action",)) -> Template | None:
        """A value that may be a template; a number, true or false stands for itself."""
        given = table.get(key)
        if given is None:
            return None
        if not isinstance(given, bool | int | float | str):
            self.add_error((*parent, key), given, "a text, a number, true or false")
            return None
        text = given if isinstance(given, str) else f"{{{{ {given!r} }}}}"
        return self.compile_value((*parent, key), lambda where: Template(text, self.vocabulary, where))

    def compile_value(self, place: Place, make: Callable[[str], Any]) -> Any:
        """A condition or template; each of its mistakes has the line of its key, and its own column."""
        try:
            return make(_format_place(place))
        except ConfigErrors as found:
            for error in found.errors:
                self._add_error_at(place, error)
        except ConfigError as error:
            self._add_error_at(place, error)
        return None

    def _add_error_at(self, place: Place, error: ConfigError) -> None:
        line = self.document.line(*place)
        source = self.source if line is None else f"{self.source}:{line}"
        self.errors.append(SettingError(error.where, source, error.found, error.expected))


def _format_place(place: Place) -> str:
    """As one would write it: `test[0].context`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
