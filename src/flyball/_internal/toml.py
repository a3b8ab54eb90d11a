"""TOML that knows its lines: where in a file a key stands, so that an error can point there.

The standard parser gives values without positions. Here it still does all the parsing; this module only walks the
statements of a text that is known to be right and notes where each begins.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import TomlError

KeyPath = tuple[str | int, ...]
"""The way to a value: names of tables and keys, and an index where there is an array of tables."""

_STRING = r""""(?:\\.|[^"\\\n])*"|'[^'\n]*\'"""
_LONG_STRING = r'''"""(?:\\.|[^\\])*?""""{0,2}|\'\'\'.*?\'\'\''{0,2}'''
_PART = rf"(?:[A-Za-z0-9_-]+|{_STRING})"
_DOTTED = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_BLANK = re.compile(r"(?:\s|#[^\n]*)+")
_HEAD = re.compile(rf"(?P<bracket>\[\[?)[ \t]*(?P<table>{_DOTTED})[ \t]*\]\]?|(?P<key>{_DOTTED})[ \t]*=")
_IN_VALUE = re.compile(
    rf"(?s:{_LONG_STRING})|{_STRING}|#[^\n]*|(?P<open>[\[{{])|(?P<close>[\]}}])|(?P<end>\n)|[^\"'#\[\]{{}}\n]+"
)


class TomlDocument:
    """A parsed TOML text, and the line of each of its keys."""

    def __init__(self, text: str, name: str = "TOML") -> None:
        self.text = text
        self.data: dict[str, Any] = _parse(text, name)
        self._lines: dict[KeyPath, int] | None = None

    @classmethod
    def read(cls, path: Path) -> TomlDocument:
        """The document in a file; a TomlError names the file, and the line, of whatever is wrong with it."""
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise TomlError(str(path), error.strerror or str(error), "a file that can be read") from error
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise TomlError(f"{path}:{line}", error.object[error.start : error.end], "text in UTF-8") from error
        return cls(text, str(path))

    def line(self, *key_path: str | int) -> int | None:
        """The line where `place` is defined, or else that of the nearest table around it; None for the top level."""
        if self._lines is None:
            self._lines = _index_lines(self.text)
        for depth in range(len(key_path), 0, -1):
            if key_path[:depth] in self._lines:
                return self._lines[key_path[:depth]]
        return None


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, at, position = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", position)
        number = int(line[1]) if line else text.count("\n") + 1
        found = text.split("\n")[number - 1].strip() if at else text
        raise TomlError(f"{name}:{number}", found, f"valid TOML ({reason})") from error
    except ValueError as error:  # tomllib leaves it to int() and the like to refuse an absurd number
        raise TomlError(name, str(error), "valid TOML") from error
    except RecursionError as error:
        raise TomlError(name, "values nested too deeply", "TOML that a person could read") from error


class _Statement(NamedTuple):
    kind: str  # "[", "[[" or "="
    names: tuple[str, ...]
    line: int


def _index_lines(text: str) -> dict[KeyPath, int]:
    lines: dict[KeyPath, int] = {}
    elements: dict[KeyPath, int] = {}  # of each array of tables: how many tables it has so far
    table: KeyPath = ()
    for kind, names, line in _iter_statements(text):
        place = table if kind == "=" else ()
        for name in names[:-1]:
            place = (*place, name)
            lines.setdefault(place, line)  # a table that is only implied begins where it is first implied
            if place in elements:
                place = (*place, elements[place] - 1)
        place = (*place, names[-1])
        if kind == "[[":
            lines.setdefault(place, line)
            elements[place] = elements.get(place, 0) + 1
            place = (*place, elements[place] - 1)
        lines[place] = line
        if kind != "=":
            table = place
    return lines


def _iter_statements(text: str) -> Iterator[_Statement]:
    position, line = 0, 1
    while position < len(text):
        if blank := _BLANK.match(text, position):
            end = blank.end()
        elif head := _HEAD.match(text, position):
            yield _Statement(head["bracket"] or "=", _parse_names(head["table"] or head["key"]), line)
            end = head.end() if head["table"] else _find_value_end(text, head.end())
        else:
            return  # not a statement this module knows: what stands before it has its line, the rest has none
        line += text.count("\n", position, end)
        position = end


def _find_value_end(text: str, position: int) -> int:
    """Where the value that begins at `position` ends: at the first newline outside brackets and strings."""
    depth = 0
    while part := _IN_VALUE.match(text, position):
        if part["end"] and depth == 0:
            break
        depth += bool(part["open"]) - bool(part["close"])
        position = part.end()
    return position


def _parse_names(dotted: str) -> tuple[str, ...]:
    """The names in a dotted key; what quotes and escapes mean is the parser's to say."""
    names: list[str] = []
    node: Any = tomllib.loads(f"{dotted} = 0")
    while isinstance(node, dict):
        [(name, node)] = node.items()  # pyright: ignore[reportUnknownVariableType]
        names.append(name)  # pyright: ignore[reportUnknownArgumentType]
    return tuple(names)
