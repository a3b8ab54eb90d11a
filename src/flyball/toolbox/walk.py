"""Ordered walk through a folder tree that records its gaps."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ..budget.deadline import DeadlineToken
from ..errors import FileRefused
from .folder import open_subfolder, translate_errors

_MAX_ENTRIES = 20_000
_MAX_GAPS = 10
MAX_DEPTH = 50
"""Maximum depth of a walk, which keeps a file descriptor open for each level."""


class FolderEntry(NamedTuple):
    """Entry of a folder.

    `handle` is the descriptor of that folder. It is open until the walk continues.
    """

    handle: int
    name: str
    path: str
    mode: int
    size: int

    @property
    def is_file(self) -> bool:
        """Check whether the entry is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Check whether the entry is a folder."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Check whether the entry is a symbolic link."""
        return stat.S_ISLNK(self.mode)


@dataclass(slots=True)
class Walk:
    """A walk through a folder tree.

    `gaps` lists what it left out, so that the result is not mistaken for complete.
    """

    depth: int
    token: DeadlineToken
    gaps: list[str] = field(default_factory=list[str])

    def iter_entries(self, handle: int, path: str = "") -> Generator[FolderEntry]:
        """Yield all entries below an open folder.

        Each folder comes before its entries. Links are yielded, but not followed.
        """
        yield from self._iter_level(handle, path, 1)

    def _iter_level(self, handle: int, path: str, level: int) -> Generator[FolderEntry]:
        for entry in self._list_entries(handle, path):
            if self.token.is_expired():
                self.add_gap("the time limit was reached")
                return
            yield entry
            if entry.is_folder and level < self.depth:
                yield from self._iter_subfolder(entry, level)
            elif entry.is_folder and self.depth >= MAX_DEPTH:
                self.add_gap(f"{format_path(entry.path)} is nested too deeply and was skipped")

    def _iter_subfolder(self, entry: FolderEntry, level: int) -> Generator[FolderEntry]:
        with self._record_errors(entry.path):
            handle = open_subfolder(entry.handle, entry.name)
            try:
                yield from self._iter_level(handle, entry.path, level + 1)
            finally:
                os.close(handle)

    def _list_entries(self, handle: int, path: str) -> list[FolderEntry]:
        entries: list[FolderEntry] = []
        with self._record_errors(path), os.scandir(handle) as scan:
            for item in islice(scan, _MAX_ENTRIES):
                try:
                    status = item.stat(follow_symlinks=False)
                except OSError:  # it was removed after the scan
                    continue
                inner = f"{path}/{item.name}" if path else item.name
                entries.append(FolderEntry(handle, item.name, inner, status.st_mode, status.st_size))
            if next(scan, None) is not None:
                self.add_gap(f"{format_path(path or '.')} has more than {_MAX_ENTRIES:,} entries")
        return sorted(entries, key=lambda entry: entry.name)

    @contextmanager
    def _record_errors(self, path: str) -> Generator[None]:
        """Record a folder that cannot be opened as a gap."""
        try:
            with translate_errors(path or "."):
                yield
        except FileRefused as error:
            self.add_gap(str(error))

    def add_gap(self, reason: str) -> None:
        """Record a reason why the walk is incomplete."""
        if reason not in self.gaps and len(self.gaps) < _MAX_GAPS:
            self.gaps.append(reason)


def format_path(path: str) -> str:
    r"""Format a path on one line, escaped if not printable.

    >>> print(format_path("a b"), format_path("two\nlines"), format_path("\udcff"))
    a b 'two\nlines' '\udcff'
    """
    return path if path.isprintable() else repr(path)
