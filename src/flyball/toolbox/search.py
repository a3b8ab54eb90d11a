"""Bounded search of files for a text or a regular expression."""

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
"""Maximum size of a file, and of the texts scanned at once. Larger files are left out."""
_MAX_HIT_LENGTH = 200
_POLL_SECONDS = 0.05

Finder = Callable[[list[str]], list[list[int]]]
"""Returns for each text the numbers of the matching lines."""


def search(walk: Walk, handle: int, path: str, names: str, finder: Finder) -> str:
    """Search the files below an open folder that match the glob `names`."""
    result = Search(finder)
    with closing(walk.iter_entries(handle, path)) as entries:
        try:
            for entry in entries:
                if result.is_full:
                    break
                if entry.is_file and fnmatchcase(entry.name, names) and (text := _read_text(entry, walk)) is not None:
                    result.add(text)
            result.scan()
        except DeadlineExceeded:
            walk.add_gap("the regular expression took too long and was stopped")
    return result.report(walk.gaps)


def make_text_finder(text: str) -> Finder:
    """Return a finder for lines that contain a text."""
    return lambda texts: [_find_lines(text, content) for content in texts]


def make_regex_finder(pattern: str, token: DeadlineToken) -> Finder:
    """Return a finder for lines that match a regular expression.

    The finder raises DeadlineExceeded when the token expires, and ArgumentError for an invalid expression.
    """
    return partial(_find_matches, pattern, token)


class FileText(NamedTuple):
    """Path and text of a file to search."""

    path: str
    text: str


class Search:
    """A search: `add` files, `scan` the rest, then `report`."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._pending: list[FileText] = []
        self._size = 0
        self._file_count = 0
        self._hits: list[str] = []
        self._remaining_characters = MAX_CHARACTERS

    @property
    def is_full(self) -> bool:
        """Check whether the report has no room for more matches."""
        return len(self._hits) >= _MAX_HITS or self._remaining_characters <= 0

    def add(self, text: FileText) -> None:
        """Add a file.

        It is scanned now, or later together with others.
        """
        self._pending.append(text)
        self._size += len(text.text)
        if self._size >= _MAX_BYTES:
            self.scan()

    def scan(self) -> None:
        """Scan the files that are pending."""
        pending, self._pending, self._size = self._pending, [], 0
        for file, numbers in zip(
            pending, self._finder([file.text for file in pending]) if pending else (), strict=True
        ):
            self._file_count += 1
            lines = file.text.split("\n") if numbers else []
            for number in numbers:
                self._add_hit(f"{format_path(file.path)}:{number}: {_truncate(lines[number - 1])}")

    def _add_hit(self, hit: str) -> None:
        if not self.is_full:
            self._hits.append(hit)
            self._remaining_characters -= len(hit) + 1

    def report(self, gaps: Iterable[str]) -> str:
        """Return the matches, one per line, and a summary."""
        more = "; the search stopped there" if self.is_full else ""
        notes = [f"{len(self._hits)} matches in {self._file_count} files{more}", *gaps]
        return "\n".join([*self._hits, f"({'; '.join(notes)})"])


def _read_text(entry: FolderEntry, walk: Walk) -> FileText | None:
    """Return the text of a file, or None for binary files.

    A file that is too large or cannot be read is recorded as a gap.
    """
    try:
        with translate_errors(entry.path), open_file(entry.handle, entry.name) as file:
            data = file.read(_MAX_BYTES + 1)
    except FileRefused as error:
        walk.add_gap(str(error))
        return None
    if is_binary(data):
        return None
    if len(data) > _MAX_BYTES:
        walk.add_gap(f"{format_path(entry.path)} has more than {_MAX_BYTES:,} bytes and was skipped")
        return None
    return FileText(entry.path, clean_text(data))


def _find_lines(needle: str, text: str) -> list[int]:
    if needle not in text:
        return []
    return [number for number, line in enumerate(text.split("\n"), 1) if needle in line][:_MAX_HITS]


def _find_matches(pattern: str, token: DeadlineToken, texts: list[str]) -> list[list[int]]:
    request = json.dumps({"pattern": pattern, "texts": texts, "most": _MAX_HITS}).encode()
    command = [sys.executable, "-I", "-S", "-W", "ignore", regex_worker.__file__]
    # A regular expression can take forever, and only a process can be killed; see `regex_worker`.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
    ) as process:
        try:
            output = _communicate(process, request, token)
        finally:
            process.kill()
    answer = json.loads(output or '{"error": "it could not be run"}')
    if "error" in answer:
        raise ArgumentError("search_files", (f"text: not a usable regular expression: {answer['error']}",))
    return answer["numbers"]


def _communicate(process: subprocess.Popen[bytes], request: bytes, token: DeadlineToken) -> bytes:
    pending: bytes | None = request
    while True:
        try:
            return process.communicate(pending, timeout=_POLL_SECONDS)[0]
        except subprocess.TimeoutExpired:
            pending = None  # communicate() remembers the input after a timeout
            token.raise_if_expired()


def _truncate(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _MAX_HIT_LENGTH else f"{line[:_MAX_HIT_LENGTH]} …"
