"""Settings that operators provide where the code leaves a value open.

The first source that has a value wins: the environment, then the nearest `flyball.toml` (or `[tool.flyball]` in a
pyproject.toml) in the working directory or above it. Each value remembers its source.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from .errors import ConfigError, SettingError, UsageError, quote_value

if TYPE_CHECKING:
    from pathlib import Path

    from ._internal.toml import TomlDocument

PREFIX = "FLYBALL_"
CONFIG = "FLYBALL_CONFIG"
"""Environment variable with the path of the settings file. Without it, the nearest file is used."""


_USER_KEYED_TABLES = (("prices",), ("by_model",))
"""Table whose keys are the user's own names, and may contain dots."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Value with its key and source."""

    key: str
    value: object
    source: str
    is_from_project: bool = field(default=False, repr=False, compare=False)
    """True if the value is from a file that was found in the working directory or above it."""

    def error(self, expected: str) -> SettingError:
        """Return the error to raise when this value is invalid."""
        return SettingError(self.key, self.source, self.value, expected)


class Settings:
    """Values by dotted key (`delegation.max_iterations`), read once.

    `Settings.load()` reads the environment and the nearest file. `Settings({...})` takes a mapping, nested or with
    dotted keys:

    >>> Settings({"max_turns": 40}).find("max_turns")
    Setting(key='max_turns', value=40, source='settings given in code')
    """

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._values: Mapping[str, object] = _expand_dotted_keys({} if values is None else values)
        self._environ: Mapping[str, str] = {}
        self._file: _File | None = None
        self._mode: str | None = None

    @classmethod
    def load(cls, directory: Path | str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the environment and the settings file for `directory`.

        `directory` defaults to the working directory, `environ` to `os.environ`.
        """
        environ = os.environ if environ is None else environ
        settings = cls()
        settings._file = _find_file(directory, environ.get(CONFIG))
        settings._values = settings._file.values or {} if settings._file else {}
        settings._environ = {name: text for name, text in environ.items() if name.startswith(PREFIX) and name != CONFIG}
        if _loading.check is not None and settings.project_file is not None:
            _loading.check(settings)
        return settings

    @property
    def project_file(self) -> ProjectFile | None:
        """File that was found in the working directory or above it. None if there is none, or if a path named it."""
        return None if self._file is None else self._file.project

    def without_file(self) -> Settings:
        """Return the settings of the environment only."""
        settings = Settings()
        settings._environ, settings._mode = self._environ, self._mode
        return settings

    def for_mode(self, mode: str) -> Settings:
        """Return the same settings, in which `[mode.<mode>]` takes precedence.

        >>> settings = Settings({"max_turns": 40, "mode.pipeline.max_turns": 10})
        >>> settings.for_mode("pipeline").find("max_turns").value, settings.for_mode("chat").find("max_turns").value
        (10, 40)
        """
        settings = Settings()
        settings._values, settings._environ, settings._file = self._values, self._environ, self._file
        settings._mode = mode
        return settings

    def find(self, key: str) -> Setting | None:
        """Return the value for a dotted key with its source, or None."""
        return next(self.every(key), None)

    def every(self, key: str) -> Iterator[Setting]:
        """Yield the value of each source that has the key, highest precedence first."""
        if self._mode is not None and not key.startswith("clamp."):  # a clamp holds in every mode
            yield from self._iter_sources(f"mode.{self._mode}.{key}")
        yield from self._iter_sources(key)

    def at(self, *names: str) -> Setting | None:
        """Return the value at a path of names, or None.

        The names may contain dots, as those of models do. The environment is not read.

        >>> Settings({"prices": {"gpt-5.5": {"input": 2}}}).at("prices", "gpt-5.5", "input").value
        2
        """
        value: object = self._values
        for depth, name in enumerate(names):
            table = self._require_table(value, names[:depth])
            if name not in table:
                return None
            value = table[name]
        return self._build_setting(_format_key(names), names, value)

    def _require_table(self, value: object, names: tuple[str, ...]) -> Mapping[str, object]:
        if not isinstance(value, Mapping):
            raise SettingError(_format_key(names), self._source(names), value, "a table")
        return cast("Mapping[str, object]", value)

    def _iter_sources(self, key: str) -> Iterator[Setting]:
        variable = variable_for(key)
        if variable in self._environ:
            yield Setting(key, self._environ[variable], f"environment variable {variable}")
        names = tuple(key.split("."))
        table = self._values
        for depth, name in enumerate(names, 1):
            if name not in table:
                return
            value = table[name]
            if depth == len(names):
                yield self._build_setting(key, names, value)
            else:
                table = self._require_table(value, names[:depth])

    def __iter__(self) -> Iterator[Setting]:
        """Yield every value, those of the environment first.

        Used to find settings that no code reads.
        """
        for variable, text in self._environ.items():
            key = variable.removeprefix(PREFIX).lower().replace("__", ".")
            if variable_for(key) != variable:  # no lookup uses this spelling
                key = variable
            yield Setting(key, text, f"environment variable {variable}")
        tables: list[tuple[tuple[str, ...], Mapping[str, object]]] = [((), self._values)]
        while tables:
            above, table = tables.pop(0)
            for name, value in table.items():
                names = (*above, name)
                if isinstance(value, Mapping):
                    tables.append((names, cast("Mapping[str, object]", value)))
                else:
                    yield self._build_setting(_format_key(names), names, value)

    def _build_setting(self, key: str, names: tuple[str, ...], value: object) -> Setting:
        return Setting(key, value, self._source(names), self.project_file is not None)

    def _source(self, names: tuple[str, ...]) -> str:
        return self._file.source(names) if self._file else "settings given in code"


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """Settings file that was found, and not named by a path. It may come from a stranger."""

    location: str
    """Path with all links of its folder resolved. A link to another file has its own location."""
    digest: str
    """SHA-256 of the text that was parsed."""
    label: str
    """Name in messages: relative in the working directory, otherwise absolute."""


@dataclass(slots=True)
class _Loading:
    """How `Settings.load` treats files in this process."""

    config: str | None = None
    check: Callable[[Settings], None] | None = None


_loading = _Loading()


@contextmanager
def restrict_loading(check: Callable[[Settings], None] | None, config: str | None = None) -> Generator[None]:
    """Check every project file that `Settings.load` finds, or use the file `config` instead. For the command line."""
    before = (_loading.config, _loading.check)
    _loading.config, _loading.check = config, check
    try:
        yield
    finally:
        _loading.config, _loading.check = before


def _format_key(names: tuple[str, ...]) -> str:
    is_user_key = names[:1] in _USER_KEYED_TABLES
    return ".".join(f'"{name}"' if is_user_key and depth == 1 else name for depth, name in enumerate(names))


def variable_for(key: str) -> str:
    """Return the environment variable for a dotted key.

    >>> variable_for("delegation.max_iterations")
    'FLYBALL_DELEGATION__MAX_ITERATIONS'
    """
    return PREFIX + key.upper().replace(".", "__")


@dataclass(frozen=True, slots=True)
class _File:
    """Settings file with its label and the path of Flyball's table in it."""

    document: TomlDocument
    label: str
    table: tuple[str, ...]
    project: ProjectFile | None = None

    @property
    def values(self) -> Mapping[str, object] | None:
        """Return Flyball's table, or None if the file has none."""
        values: Mapping[str, object] = self.document.data
        for depth, name in enumerate(self.table, 1):
            if name not in values:
                return None
            child = values[name]
            if not isinstance(child, Mapping):
                raise SettingError(".".join(self.table[:depth]), self.source(()), child, "a table")
            values = cast("Mapping[str, object]", child)
        return values

    def source(self, names: tuple[str, ...]) -> str:
        line = self.document.line(*self.table, *names)
        return f"{self.label}:{line}" if line else self.label


def _find_file(directory: Path | str | None, explicit_path: str | None) -> _File | None:
    from pathlib import Path  # here and below, because a program that imports Flyball may never look for a file

    if _loading.config is not None:
        return _read_explicit_file(Setting("--config", _loading.config, "option"))
    if explicit_path is not None:
        return _read_explicit_file(Setting(CONFIG, explicit_path, f"environment variable {CONFIG}"))
    try:
        start = Path.cwd() if directory is None else Path(directory)
    except FileNotFoundError as error:
        raise UsageError(
            "the working directory no longer exists, so there is no flyball.toml to find: "
            f"change to another folder, or set {CONFIG} to the path of a settings file"
        ) from error
    for folder in (start, *start.resolve().parents):
        for name in ("flyball.toml", "pyproject.toml"):
            if _exists(folder / name):
                file = _read_file(folder / name, name if folder == start else str(folder / name))
                if file.values is not None:
                    return replace(file, project=ProjectFile(locate(folder / name), file.document.digest, file.label))
    return None


def _read_explicit_file(variable: Setting) -> _File:
    from pathlib import Path

    path = str(variable.value)
    if not path:
        raise variable.error("the path of a settings file")
    file = _read_file(Path(path), path)
    if file.values is None:
        raise variable.error(f"a file with a table [{'.'.join(file.table)}]")
    return file


def locate(path: Path) -> str:
    """Return the location of a settings file, for `ProjectFile`."""
    return str(path.parent.resolve() / path.name)


def _exists(path: Path) -> bool:
    # lstat, so that a broken link or a folder of that name becomes an error instead of being skipped.
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:  # a folder that this account cannot read has no settings for it
        return False
    return True


def _read_file(path: Path, label: str) -> _File:
    from ._internal.toml import TomlDocument  # loads tomllib, so only when there is a file

    table = ("tool", "flyball") if path.name == "pyproject.toml" else ()
    return _File(TomlDocument.read(path), label, table)


def _expand_dotted_keys(values: object) -> dict[str, object]:
    """Expand dotted keys into nested tables; refuse a key given twice."""
    tree: dict[str, object] = {}
    for names, value in _iter_leaves(values, ()):
        node = tree
        for name in names[:-1]:
            child = node.setdefault(name, {})
            if not isinstance(child, dict):
                raise UsageError(
                    f"settings: {'.'.join(names)!r} cannot be set, because {name!r} is a value, not a table"
                )
            node = cast("dict[str, object]", child)
        if node.setdefault(names[-1], value) is not value:
            existing = quote_value(node[names[-1]])
            raise UsageError(f"settings: {'.'.join(names)!r} is set twice, to {existing} and to {quote_value(value)}")
    return tree


def _iter_leaves(values: object, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if not isinstance(values, Mapping):
        raise ConfigError("settings", values, "a mapping of keys to values")
    for key, value in cast("Mapping[object, object]", values).items():
        if not isinstance(key, str):
            raise ConfigError("settings", key, "a string as key")
        names = (*prefix, key) if prefix in _USER_KEYED_TABLES else (*prefix, *key.split("."))
        if isinstance(value, Mapping) and value:
            yield from _iter_leaves(cast("object", value), names)
        else:
            yield names, value
