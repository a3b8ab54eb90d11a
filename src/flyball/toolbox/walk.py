"""A walk through a folder: everything in it, in order, as deep as wanted, and what was left out."""

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
"""As deep as a walk goes at all: each level has a handle open."""


class FolderEntry(NamedTuple):
    """Something in a folder, and the handle of that folder, which is open until the walk goes on."""

    handle: int
    name: str
    path: str
    mode: int
    size: int

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, and no link."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, and no link."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)


@dataclass(slots=True)
class Walk:
    """One walk. `gaps` says what it did not see, so that whoever reads the result does not take it for all."""

    depth: int
    token: DeadlineToken
    gaps: list[str] = field(default_factory=list[str])

    def iter_entries(self, handle: int, path: str = "") -> Generator[FolderEntry]:
        """Everything below an open folder, each folder before what is in it. Links are shown and not followed."""
        yield from self._iter_level(handle, path, 1)

    def _iter_level(self, handle: int, path: str, level: int) -> Generator[FolderEntry]:
        for entry in self._list_entries(handle, path):
            if self.token.is_expired():
                self.add_gap("the time was over")
                return
            yield entry
            if entry.is_folder and level < self.depth:
                yield from self._iter_subfolder(entry, level)
            elif entry.is_folder and self.depth >= MAX_DEPTH:
                self.add_gap(f"{format_path(entry.path)} is too deep")

    def _iter_subfolder(self, entry: FolderEntry, level: int) -> Generator[FolderEntry]:
        with self._record_errors(entry.path):
            handle = open_subfolder(entry.handle, entry.name)
            try:
                yield from self._iter_level(handle, entry.path, level + 1)
            finally:
                os.close(handle)

    def _list_entries(self, handle: int, path: str) -> list[FolderEntry]:
        found: list[FolderEntry] = []
        with self._record_errors(path), os.scandir(handle) as scan:
            for one in islice(scan, _MAX_ENTRIES):
                try:
                    facts = one.stat(follow_symlinks=False)
                except OSError:  # it has gone meanwhile
                    continue
                inner = f"{path}/{one.name}" if path else one.name
                found.append(FolderEntry(handle, one.name, inner, facts.st_mode, facts.st_size))
            if next(scan, None) is not None:
                self.add_gap(f"{format_path(path or '.')} has more than {_MAX_ENTRIES:,} entries")
        return sorted(found, key=lambda entry: entry.name)

    @contextmanager
    def _record_errors(self, path: str) -> Generator[None]:
        """What cannot be opened is a gap."""
        try:
            with translate_errors(path or "."):
                yield
        except FileRefused as error:
            self.add_gap(str(error))

    def add_gap(self, reason: str) -> None:
        """Note something that was not seen."""
        if reason not in self.gaps and len(self.gaps) < _MAX_GAPS:
            self.gaps.append(reason)


def format_path(path: str) -> str:
    r"""A path on one line: what cannot be printed, or is no UTF-8, is escaped.

    >>> print(format_path("a b"), format_path("two\nlines"), format_path("\udcff"))
    a b 'two\nlines' '\udcff'
    """
    return path if path.isprintable() else repr(path)
