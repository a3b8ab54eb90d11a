"""Settings: what the people who run a program fill in where its code left something open.

One chain, first match wins: the environment, then the nearest `flyball.toml` (or `[tool.flyball]` in a pyproject.toml)
from the working directory upwards. Every value remembers where it came from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .errors import ConfigError, SettingError

if TYPE_CHECKING:
    from .toml import TomlDocument

PREFIX = "FLYBALL_"
CONFIG = "FLYBALL_CONFIG"
"""The variable that names the settings file, instead of looking for one."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value as it was found, and where."""

    key: str
    value: object
    source: str

    def error(self, expected: str) -> SettingError:
        """The error to raise when this value cannot be used."""
        return SettingError(self.key, self.source, self.value, expected)


class Settings:
    """Values by dotted key (`delegation.max_iterations`), read once.

    `Settings.load()` reads the environment and the nearest file. `Settings({...})` is just that mapping, nested or with
    dotted keys:

    >>> Settings({"max_turns": 40}).find("max_turns")
    Setting(key='max_turns', value=40, source='settings given in code')
    """

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._values = _nested(values or {})
        self._environ: Mapping[str, str] = {}
        self._file: _File | None = None

    @classmethod
    def load(cls, directory: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the environment and the settings file that governs `directory` (the working directory)."""
        environ = os.environ if environ is None else environ
        file = _find_file(directory or Path.cwd(), environ.get(CONFIG))
        settings = cls(file.values if file else {})
        settings._environ = {name: text for name, text in environ.items() if name.startswith(PREFIX) and name != CONFIG}
        settings._file = file
        return settings

    def find(self, key: str) -> Setting | None:
        """The value for a dotted key and where it came from, or None where nobody gave one."""
        variable = PREFIX + key.upper().replace(".", "__")
        if variable in self._environ:
            return Setting(key, self._environ[variable], f"environment variable {variable}")
        names = key.split(".")
        value: object = self._values
        for depth, name in enumerate(names):
            if not isinstance(value, Mapping):
                table = tuple(names[:depth])
                raise SettingError(".".join(table), self._source(table), value, "a table")
            table_values = cast(Mapping[str, object], value)
            if name not in table_values:
                return None
            value = table_values[name]
        return Setting(key, value, self._source(tuple(names)))

    def __iter__(self) -> Iterator[Setting]:
        """Every value that was given, the environment's first; for finding those that nobody reads."""
        for variable, text in self._environ.items():
            key = variable.removeprefix(PREFIX).lower().replace("__", ".")
            yield Setting(key, text, f"environment variable {variable}")
        for names, value in _leaves(self._values):
            yield Setting(".".join(names), value, self._source(names))

    def _source(self, names: tuple[str, ...]) -> str:
        return self._file.source(names) if self._file else "settings given in code"


@dataclass(frozen=True, slots=True)
class _File:
    """A settings file: its document, how to call it, and the table in it that is ours."""

    document: TomlDocument
    label: str
    table: tuple[str, ...]

    @property
    def values(self) -> Mapping[str, object] | None:
        """Our table, or None where the file has none."""
        values: Mapping[str, object] = self.document.data
        for depth, name in enumerate(self.table, 1):
            if name not in values:
                return None
            below = values[name]
            if not isinstance(below, Mapping):
                raise SettingError(".".join(self.table[:depth]), self.source(()), below, "a table")
            values = cast("Mapping[str, object]", below)
        return values

    def source(self, names: tuple[str, ...]) -> str:
        line = self.document.line(*self.table, *names)
        return f"{self.label}:{line}" if line else self.label


def _find_file(directory: Path, named: str | None) -> _File | None:
    if named is not None:
        return _read(Path(named), directory)
    for folder in (directory, *directory.resolve().parents):
        for name in ("flyball.toml", "pyproject.toml"):
            if _is_there(folder / name):
                file = _read(folder / name, directory)
                if file.values is not None:
                    return file
    return None


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:  # a folder this account may not look into holds no settings for it
        return False


def _read(path: Path, directory: Path) -> _File:
    from .toml import TomlDocument  # and with it tomllib: only where there is a file to read

    label = path.name if path.parent == directory else str(path)
    table = ("tool", "flyball") if path.name == "pyproject.toml" else ()
    return _File(TomlDocument.read(path), label, table)


def _nested(values: Mapping[str, object]) -> dict[str, object]:
    """The same values with dotted keys opened into tables."""
    tree: dict[str, object] = {}
    for key, value in values.items():
        *tables, last = key.split(".")
        node = tree
        for name in tables:
            below = node.setdefault(name, {})
            if not isinstance(below, dict):
                raise ConfigError(f"settings, {key}", below, f"a table at {name!r}")
            node = cast("dict[str, object]", below)
        node[last] = _nested(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else value
    return tree


def _leaves(values: Mapping[str, object], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(cast("Mapping[str, object]", value), (*above, name))
        else:
            yield (*above, name), value
