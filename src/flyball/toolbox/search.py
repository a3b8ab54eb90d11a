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
from .folder import open_file, translate_errors
from .text_page import MAX_CHARACTERS, clean_text, is_binary
from .walk import FolderEntry, Walk, format_path

_MAX_HITS = 100
_MAX_BYTES = 4 * 2**20
"""Of one file, and of what is looked at in one go; a larger file is left out."""
_MAX_HIT_LENGTH = 200
_POLL_SECONDS = 0.05

Finder = Callable[[list[str]], list[list[int]]]
"""For each text the numbers of the lines in which something was found."""


class FileText(NamedTuple):
    """A file that is looked at."""

    path: str
    text: str


class Search:
    """One search: `add` files, then `report`."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._pending: list[FileText] = []
        self._size = 0
        self._file_count = 0
        self._hits: list[str] = []
        self._remaining_characters = MAX_CHARACTERS

    @property
    def is_full(self) -> bool:
        """Whether more would not be shown."""
        return len(self._hits) >= _MAX_HITS or self._remaining_characters <= 0

    def add(self, text: FileText) -> None:
        """Look at a file, now or with some others."""
        self._pending.append(text)
        self._size += len(text.text)
        if self._size >= _MAX_BYTES:
            self.scan()

    def scan(self) -> None:
        """Look at all that was added."""
        waiting, self._pending, self._size = self._pending, [], 0
        for text, numbers in zip(waiting, self._finder([one.text for one in waiting]) if waiting else (), strict=True):
            self._file_count += 1
            lines = text.text.split("\n") if numbers else []
            for number in numbers:
                self._add_hit(f"{format_path(text.path)}:{number}: {_truncate(lines[number - 1])}")

    def _add_hit(self, hit: str) -> None:
        if not self.is_full:
            self._hits.append(hit)
            self._remaining_characters -= len(hit) + 1

    def report(self, gaps: Iterable[str]) -> str:
        """What was found, and what was not looked at."""
        more = "; the search stopped there" if self.is_full else ""
        notes = [f"{len(self._hits)} matches in {self._file_count} files{more}", *gaps]
        return "\n".join([*self._hits, f"({'; '.join(notes)})"])


def search(walk: Walk, handle: int, path: str, names: str, finder: Finder) -> str:
    """Search the files below an open folder whose name is like `names`."""
    asked = Search(finder)
    with closing(walk.iter_entries(handle, path)) as entries:
        try:
            for entry in entries:
                if asked.is_full:
                    break
                if entry.is_file and fnmatchcase(entry.name, names) and (text := _read_text(entry, walk)) is not None:
                    asked.add(text)
            asked.scan()
        except DeadlineExceeded:
            walk.add_gap("the expression took too long, and was stopped")
    return asked.report(walk.gaps)


def _read_text(entry: FolderEntry, walk: Walk) -> FileText | None:
    """A file's text; None for what is no text. A file that cannot be read, or is too large, is a gap."""
    try:
        with translate_errors(entry.path), open_file(entry.handle, entry.name) as file:
            data = file.read(_MAX_BYTES + 1)
    except FileRefused as error:
        walk.add_gap(str(error))
        return None
    if is_binary(data):
        return None
    if len(data) > _MAX_BYTES:
        walk.add_gap(f"{format_path(entry.path)} has more than {_MAX_BYTES:,} bytes, and was left out")
        return None
    return FileText(entry.path, clean_text(data))


def make_text_finder(text: str) -> Finder:
    """Finds the lines that have a text in them."""
    return lambda texts: [_find_lines(text, one) for one in texts]


def make_regex_finder(pattern: str, token: DeadlineToken) -> Finder:
    """Finds the lines that match a regular expression; raises DeadlineExceeded when the token expires before."""
    return partial(_find_matches, pattern, token)


def _find_lines(needle: str, text: str) -> list[int]:
    if needle not in text:
        return []
    return [number for number, line in enumerate(text.split("\n"), 1) if needle in line][:_MAX_HITS]


def _find_matches(pattern: str, token: DeadlineToken, texts: list[str]) -> list[list[int]]:
    wish = json.dumps({"pattern": pattern, "texts": texts, "most": _MAX_HITS}).encode()
    command = [sys.executable, "-I", "-S", "-W", "ignore", regex_worker.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
    ) as process:
        try:
            said = _communicate(process, wish, token)
        finally:
            process.kill()
    answer = json.loads(said or '{"error": "it could not be tried"}')
    if "error" in answer:
        raise ArgumentError("search_files", (f"text: no regular expression that can be used: {answer['error']}",))
    return answer["numbers"]


def _communicate(process: subprocess.Popen[bytes], request: bytes, token: DeadlineToken) -> bytes:
    given: bytes | None = request
    while True:
        try:
            return process.communicate(given, timeout=_POLL_SECONDS)[0]
        except subprocess.TimeoutExpired:
            given = None  # it goes on by itself
            token.raise_if_expired()


def _truncate(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _MAX_HIT_LENGTH else f"{line[:_MAX_HIT_LENGTH]} …"
