"""Tables of a rule file whose values may be conditions and templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .._internal.table import TableValue, check_keys
from ..errors import ConfigError, ConfigErrors, SettingError
from .template import Template, TemplateTree
from .view import MAX_DEPTH
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

    def pick_key(self, key: str, alias: str) -> str:
        """Return the one of two keys for the same value that is present. Adds an error if both are."""
        if key in self and alias in self:
            self.get(alias).add_error(f"no such key, because {key} is given")
        return alias if alias in self and key not in self else key

    def check_keys(self, known: Iterable[str]) -> None:
        """Add an error for each unknown key."""
        check_keys(self.entries, known)

    def template(self, key: str) -> Any:
        """Compile a required template. None if it is wrong."""
        text = self.get(key).text()
        return self.compile(key, lambda where: Template(text, self.vocabulary, where)) if text else None

    def tree(self, key: str) -> TemplateTree | None:
        """Compile a value whose texts may be templates. None if it is missing or wrong.

        Numbers and bools become constants. A table or a list may contain further values.
        """
        entry = self.get(key)
        return None if entry.value is None else self._compile_tree(entry, 0)

    def _compile_tree(self, entry: TableValue, level: int) -> TemplateTree | None:
        value = entry.value
        if level > MAX_DEPTH:
            entry.add_error(f"at most {MAX_DEPTH} levels")
            return None
        if isinstance(value, dict):
            tables = {name: self._compile_tree(inner, level + 1) for name, inner in entry.table("a table").items()}
            return TemplateTree({name: tree for name, tree in tables.items() if tree is not None})
        if isinstance(value, list):
            trees = [self._compile_tree(inner, level + 1) for inner in entry.items("values")]
            return TemplateTree([tree for tree in trees if tree is not None])
        if not isinstance(value, bool | int | float | str):
            entry.add_error("a string, a number, true, false, or a table or list of these")
            return None
        text = value if isinstance(value, str) else f"{{{{ {value!r} }}}}"
        template = self._compile_at(entry.key_path, lambda where: Template(text, self.vocabulary, where))
        return None if template is None else TemplateTree(template)

    def compile(self, key: str, make: Callable[[str], Any]) -> Any:
        """Compile a condition or template. None if it is wrong."""
        return self._compile_at((*self.source.key_path, key), make)

    def _compile_at(self, key_path: tuple[Any, ...], make: Callable[[str], Any]) -> Any:
        document = self.source.document
        try:
            return make(document.describe(key_path))
        except ConfigErrors as group:
            errors = group.errors
        except ConfigError as error:
            errors = (error,)
        source = document.locate(key_path)
        document.errors += [SettingError(error.where, source, error.found, error.expected) for error in errors]
        return None
