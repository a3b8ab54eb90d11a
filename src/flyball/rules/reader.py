"""Reader of the tables in a rule file. It checks each value and collects errors with their lines."""

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
    """Reads the values of one document.

    A wrong value is added to `errors` and replaced by a harmless one, so that one pass finds all errors.
    """

    def __init__(self, document: TomlDocument, source: str) -> None:
        self.document = document
        self.source = source
        self.errors: list[ConfigError] = []
        self.vocabulary = build_vocabulary()
        """Names that expressions may use."""

    def add_error(self, place: Place, found: object, expected: str) -> None:
        """Add an error for a place in the document."""
        line = self.document.line(*place)
        source = self.source if line is None else f"{self.source}:{line}"
        self.errors.append(SettingError(_format_place(place) or "the file", source, found, expected))

    def read_table(self, name: str, *, required: bool = False) -> dict[str, Any]:
        """Return a table of the file. Empty if it is missing."""
        table = self.document.data.get(name)
        if isinstance(table, dict):
            return cast("dict[str, Any]", table)
        if table is not None or required:
            self.add_error((name,), table, f"a table [{name}]")
        return {}

    def check_keys(self, place: Place, table: Mapping[str, Any], keys: Iterable[str]) -> None:
        """Add an error for each unknown key."""
        names = tuple(keys)
        for key in table:
            if key not in names:
                near = suggest_names(key, names) or names
                self.add_error((*place, key), key, f"the key {' or '.join(near)}")

    def read_text(self, place: Place, table: Mapping[str, Any], *, required: bool = False) -> str | None:
        """Return a text that is not blank. None if it is missing."""
        value = table.get(str(place[-1]))
        if value is None and not required:
            return None
        if isinstance(value, str) and value.strip():
            return value
        self.add_error(place, value, "a non-empty string")
        return None

    def read_int(self, place: Place, table: Mapping[str, Any], default: int, min_value: int, max_value: int) -> int:
        """Return an int within bounds, or the default."""
        value = table.get(str(place[-1]), default)
        if isinstance(value, int) and not isinstance(value, bool) and min_value <= value <= max_value:
            return value
        self.add_error(place, value, f"a whole number from {min_value} to {max_value:,}")
        return default

    def read_bool(self, place: Place, table: Mapping[str, Any], default: bool) -> bool:
        """Return a bool, or the default."""
        value = table.get(str(place[-1]), default)
        if isinstance(value, bool):
            return value
        self.add_error(place, value, "true or false")
        return default

    def read_member(self, place: Place, table: Mapping[str, Any], kind: type[Member], default: Member | None) -> Any:
        """Return the named member of an enum, or the default.

        A missing key is an error if the default is None.
        """
        value = table.get(str(place[-1]), default)
        if isinstance(value, str) and value in list(kind):
            return kind(value)
        near = suggest_names(value, list(kind)) if isinstance(value, str) else []
        self.add_error(place, value, " or ".join(near) or f"one of {', '.join(kind)}")
        return default

    def read_template(self, key: str, table: Mapping[str, Any], *, required: bool = True) -> Any:
        """Compile a template of the action. None if it is missing."""
        text = self.read_text(("action", key), table, required=required)
        if text is None:
            return None
        return self.compile_value(("action", key), lambda where: Template(text, self.vocabulary, where))

    def read_value(self, key: str, table: Mapping[str, Any], parent: Place = ("action",)) -> Template | None:
        """Compile a value that may be a template.

        Numbers and bools become constants.
        """
        value = table.get(key)
        if value is None:
            return None
        if not isinstance(value, bool | int | float | str):
            self.add_error((*parent, key), value, "a string, a number, true or false")
            return None
        text = value if isinstance(value, str) else f"{{{{ {value!r} }}}}"
        return self.compile_value((*parent, key), lambda where: Template(text, self.vocabulary, where))

    def compile_value(self, place: Place, make: Callable[[str], Any]) -> Any:
        """Compile a condition or template.

        Its errors get the line of the key.
        """
        try:
            return make(_format_place(place))
        except ConfigErrors as group:
            for error in group.errors:
                self._add_error_at(place, error)
        except ConfigError as error:
            self._add_error_at(place, error)
        return None

    def _add_error_at(self, place: Place, error: ConfigError) -> None:
        line = self.document.line(*place)
        source = self.source if line is None else f"{self.source}:{line}"
        self.errors.append(SettingError(error.where, source, error.found, error.expected))


def _format_place(place: Place) -> str:
    """Format a place as in `test[0].context`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
