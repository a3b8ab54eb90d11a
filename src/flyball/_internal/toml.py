"""TOML documents that know the line of each key, for error messages.

The standard parser gives values without positions. It still does all the parsing. This module only walks the
statements of a text that was parsed before, and notes the line of each.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import TomlError

KeyPath = tuple[str | int, ...]
"""Path to a value: names of tables and keys, and an index for each array of tables."""

MAX_BYTES = 2_000_000
"""Maximum size of a file."""
MAX_PARTS = 100
"""Maximum number of parts of a dotted key. The parser's time grows with the square of their number."""

_STRING = r""""(?:\\.|[^"\\\n])*"|'[^'\n]*\'"""
_LONG_STRING = r'''"""(?:\\.|[^\\])*?""""{0,2}|\'\'\'.*?\'\'\''{0,2}'''
_PART = rf"(?:[A-Za-z0-9_-]+|{_STRING})"
_ONE_PART = re.compile(_PART)
_DOTTED = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_BLANK = re.compile(r"(?:\s|#[^\n]*)+")
_HEAD = re.compile(rf"(?P<bracket>\[\[?)[ \t]*(?P<table>{_DOTTED})[ \t]*\]\]?|(?P<key>{_DOTTED})[ \t]*=")
_TOKEN = re.compile(
    rf"(?s:{_LONG_STRING})|(?P<part>{_STRING}|[A-Za-z0-9_-]+)|(?P<dot>[ \t]*\.[ \t]*)|#[^\n]*|[^\"'#.A-Za-z0-9_-]+"
)
_IN_VALUE = re.compile(
    rf"(?s:{_LONG_STRING})|{_STRING}|#[^\n]*|(?P<open>[\[{{])|(?P<close>[\]}}])|(?P<end>\n)|[^\"'#\[\]{{}}\n]+"
)


class TomlDocument:
    """Parsed TOML text with the line of each key."""

    def __init__(self, text: str, name: str = "TOML") -> None:
        self.text = text
        self.digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
        """SHA-256 of the text that was parsed. The file may have changed since."""
        self.data: dict[str, Any] = _parse(text, name)
        self._lines: _KeyLines | None = None

    @classmethod
    def read(cls, path: Path) -> TomlDocument:
        """Read a file; raise TomlError with the file and line of a mistake."""
        try:
            text = _read_bytes(path).decode("utf-8")
        except OSError as error:
            raise TomlError(str(path), reason=f"cannot read the file: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise TomlError(f"{path}:{line}", error.object[error.start : error.end], "text in UTF-8") from error
        return cls(text, str(path))

    def line(self, *key_path: str | int) -> int | None:
        """Return the line of a key, or of the nearest table around it.

        Returns None for the top level.
        """
        if self._lines is None:
            self._lines = _index_lines(self.text)
        nearest, known = None, self._lines
        for key in key_path:
            known = known.keys.get(key)
            if known is None:
                break
            nearest = known.line
        return nearest


def _read_bytes(path: Path) -> bytes:
    """Read a file that may come from a stranger: a pipe would never end, nor would some devices."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise OSError("it is a pipe, not a file")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(f"it has more than {MAX_BYTES:,} bytes")
    return content


def _parse(text: str, name: str) -> dict[str, Any]:
    _check_parts(text, name)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, at, position = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", position)
        number = int(line[1]) if line else text.count("\n") + 1
        found = text.split("\n")[number - 1].strip() if at else text
        raise TomlError(f"{name}:{number}", found, f"valid TOML ({reason})") from error
    except ValueError as error:  # tomllib lets int() and the like refuse huge numbers
        raise TomlError(name, reason=f"not valid TOML: {error}") from error
    except RecursionError as error:
        raise TomlError(name, reason="the values are nested too deeply") from error


def _check_parts(text: str, name: str) -> None:
    """Raise TomlError for a dotted key of too many parts, before the parser sees it."""
    if all(line.count(".") < MAX_PARTS for line in text.split("\n")):
        return
    position = parts = 0
    while token := _TOKEN.match(text, position):
        parts += bool(token["part"])
        if not token["part"] and not token["dot"]:
            parts = 0
        if parts > MAX_PARTS:
            line = text.count("\n", 0, position) + 1
            raise TomlError(f"{name}:{line}", reason=f"a dotted key has more than {MAX_PARTS} parts")
        position = token.end()


class _KeyLines:
    """Line of a key, and those of the keys and array elements below it.

    A tree, because a table of whole paths would take the square of their length.
    """

    __slots__ = ("count", "keys", "line")

    def __init__(self, line: int | None = None) -> None:
        self.line = line
        self.keys: dict[str | int, _KeyLines] = {}
        self.count = 0
        """Number of tables so far, for an array of tables."""

    def open(self, key: str | int, line: int) -> _KeyLines:
        """Return the entry of a key. An implied table begins where it is first implied."""
        entry = self.keys.get(key)
        if entry is None:
            entry = self.keys[key] = _KeyLines(line)
        return entry


class _Statement(NamedTuple):
    kind: str  # "[", "[[" or "="
    names: tuple[str, ...]
    line: int


def _index_lines(text: str) -> _KeyLines:
    root = table = _KeyLines()
    for kind, names, line in _iter_statements(text):
        entry = table if kind == "=" else root
        for name in names[:-1]:
            entry = entry.open(name, line)
            if entry.count:
                entry = entry.keys[entry.count - 1]
        entry = entry.open(names[-1], line)
        if kind == "[[":
            entry.count += 1
            entry = entry.open(entry.count - 1, line)
        entry.line = line
        if kind != "=":
            table = entry
    return root


def _iter_statements(text: str) -> Iterator[_Statement]:
    position, line = 0, 1
    while position < len(text):
        if blank := _BLANK.match(text, position):
            end = blank.end()
        elif head := _HEAD.match(text, position):
            yield _Statement(head["bracket"] or "=", _parse_names(head["table"] or head["key"]), line)
            end = head.end() if head["table"] else _find_value_end(text, head.end())
        else:
            return  # unknown syntax: keys before it have lines, the rest has none
        line += text.count("\n", position, end)
        position = end


def _find_value_end(text: str, position: int) -> int:
    """Return the position of the first newline outside of brackets and strings."""
    depth = 0
    while part := _IN_VALUE.match(text, position):
        if part["end"] and depth == 0:
            break
        depth += bool(part["open"]) - bool(part["close"])
        position = part.end()
    return position


def _parse_names(dotted: str) -> tuple[str, ...]:
    return tuple(map(_parse_name, _ONE_PART.findall(dotted)))


def _parse_name(part: str) -> str:
    # The parser resolves quotes and escapes.
    return tomllib.loads(f"name = {part}")["name"] if part[0] in "\"'" else part
