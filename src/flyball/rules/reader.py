"""Tables of a rule file whose values may be conditions and templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .._internal.table import TableValue, check_keys
from ..errors import ConfigError, ConfigErrors, SettingError
from .template import Template
from .vocabulary import Vocabulary


class RuleTable:
    """Table of a rule file.

    A wrong value adds an error, and is replaced by a harmless one, so that one pass finds all errors.
    """

    def __init__(self, source: TableValue, expected: str, vocabulary: Vocabulary, *, required: bool = False) -> None:
        self.source = source
        self.entries = {} if source.value is None and not required else source.table(expected)
        self.vocabulary = vocabulary
        """Names that expressions may use."""

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def get(self, key: str, default: object = None) -> TableValue:
        """Return the value of a key, or a default."""
        return self.entries.get(key) or self.source.child(key, default)

    def check_keys(self, known: Iterable[str]) -> None:
        """Add an error for each unknown key."""
        check_keys(self.entries, known)

    def template(self, key: str) -> Any:
        """Compile a required template. None if it is wrong."""
        text = self.get(key).text()
        return self.compile(key, lambda where: Template(text, self.vocabulary, where)) if text else None

    def template_or_constant(self, key: str) -> Template | None:
        """Compile a value that may be a template. None if it is missing.

        Numbers and bools become constants.
        """
        entry = self.get(key)
        value = entry.value
        if value is None:
            return None
        if not isinstance(value, bool | int | float | str):
            entry.add_error("a string, a number, true or false")
            return None
        text = value if isinstance(value, str) else f"{{{{ {value!r} }}}}"
        return self.compile(key, lambda where: Template(text, self.vocabulary, where))

    def compile(self, key: str, make: Callable[[str], Any]) -> Any:
        """Compile a condition or template. None if it is wrong."""
        document, key_path = self.source.document, (*self.source.key_path, key)
        try:
            return make(document.describe(key_path))
        except ConfigErrors as group:
            errors = group.errors
        except ConfigError as error:
            errors = (error,)
        source = document.locate(key_path)
        document.errors += [SettingError(error.where, source, error.found, error.expected) for error in errors]
        return None
