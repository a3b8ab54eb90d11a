"""Searching files: for a plain text or a regular expression, with results that a model can use and in bounded time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from ..budget.deadline import DeadlineToken
from ..errors import ArgumentError, DeadlineExceeded, FileRefused
from . import regex_worker
from .folder import open_file, told
from .text_page import MOST_CHARACTERS, cleaned, is_binary
from .walk import FolderEntry, Walk, shown_path

_MOST_HITS = 100
_MOST_BYTES = 4 * 2**20
"""Of one file, and of what is looked at in one go; a larger file is left out."""
_LONGEST_HIT = 200
_LOOK_S = 0.05

Finder = Callable[[list[str]], list[list[int]]]
"""For each text the numbers of the lines in which something was found."""


class Text(NamedTuple):
    """A file that is looked at."""

    path: str
    text: str


class Search:
    """One search: `add` files, then `report`."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._waiting: list[Text] = []
        self._size = 0
        self._seen = 0
        self._hits: list[str] = []
        self._room = MOST_CHARACTERS

    @property
    def full(self) -> bool:
        """Whether more would not be shown."""
        return len(self._hits) >= _MOST_HITS or self._room <= 0

    def add(self, text: Text) -> None:
        """Look at a file, now or with some others."""
        self._waiting.append(text)
        self._size += len(text.text)
        if self._size >= _MOST_BYTES:
            self.look()

    def look(self) -> None:
        """Look at all that was added."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        for text, numbers in zip(waiting, self._finder([one.text for one in waiting]) if waiting else (), strict=True):
            self._seen += 1
            lines = text.text.split("\n") if numbers else []
            for number in numbers:
                self._keep(f"{shown_path(text.path)}:{number}: {_cut(lines[number - 1])}")

    def _keep(self, hit: str) -> None:
        if not self.full:
            self._hits.append(hit)
            self._room -= len(hit) + 1

    def report(self, gaps: Iterable[str]) -> str:
        """What was found, and what was not looked at."""
        more = "; the search stopped there" if self.full else ""
        notes = [f"{len(self._hits)} matches in {self._seen} files{more}", *gaps]
        return "\n".join([*self._hits, f"({'; '.join(notes)})"])


def search(walk: Walk, handle: int, path: str, names: str, finder: Finder) -> str:
    """Search the files below an open folder whose name is like `names`."""
    asked = Search(finder)
    with closing(walk.through(handle, path)) as entries:
        try:
            for entry in entries:
                if asked.full:
                    break
                if entry.is_file and fnmatchcase(entry.name, names) and (text := _text(entry, walk)) is not None:
                    asked.add(text)
            asked.look()
        except DeadlineExceeded:
            walk.miss("the expression took too long, and was stopped")
    return asked.report(walk.gaps)


def _text(entry: FolderEntry, walk: Walk) -> Text | None:
    """A file's text; None for what is no text. A file that cannot be read, or is too large, is a gap."""
    try:
        with told(entry.path), open_file(entry.handle, entry.name) as file:
            data = file.read(_MOST_BYTES + 1)
    except FileRefused as error:
        walk.miss(str(error))
        return None
    if is_binary(data):
        return None
    if len(data) > _MOST_BYTES:
        walk.miss(f"{shown_path(entry.path)} has more than {_MOST_BYTES:,} bytes, and was left out")
        return None
    return Text(entry.path, cleaned(data))


def plain(text: str) -> Finder:
    """Finds the lines that have a text in them."""
    return lambda texts: [_numbers(text, one) for one in texts]


def expression(pattern: str, token: DeadlineToken) -> Finder:
    """Finds the lines that match a regular expression; raises DeadlineExceeded when the token expires before."""
    return partial(_matched, pattern, token)


def _numbers(wanted: str, text: str) -> list[int]:
    if wanted not in text:
        return []
    return [number for number, line in enumerate(text.split("\n"), 1) if wanted in line][:_MOST_HITS]


def _matched(pattern: str, token: DeadlineToken, texts: list[str]) -> list[list[int]]:
    wish = json.dumps({"pattern": pattern, "texts": texts, "most": _MOST_HITS}).encode()
    command = [sys.executable, "-I", "-S", "-W", "ignore", regex_worker.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
    ) as process:
        try:
            said = _heard(process, wish, token)
        finally:
            process.kill()
    answer = json.loads(said or '{"error": "it could not be tried"}')
    if "error" in answer:
        raise ArgumentError("search_files", (f"text: no regular expression that can be used: {answer['error']}",))
    return answer["numbers"]


def _heard(process: subprocess.Popen[bytes], wish: bytes, token: DeadlineToken) -> bytes:
    given: bytes | None = wish
    while True:
        try:
            return process.communicate(given, timeout=_LOOK_S)[0]
        except subprocess.TimeoutExpired:
            given = None  # it goes on by itself
            token.raise_if_expired()


def _cut(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _LONGEST_HIT else f"{line[:_LONGEST_HIT]} …"
