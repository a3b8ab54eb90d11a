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
from .folder import enter, told

_MOST_ENTRIES = 20_000
_MOST_GAPS = 10
DEEPEST = 50
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

    def through(self, handle: int, path: str = "") -> Generator[FolderEntry]:
        """Everything below an open folder, each folder before what is in it. Links are shown and not followed."""
        yield from self._through(handle, path, 1)

    def _through(self, handle: int, path: str, level: int) -> Generator[FolderEntry]:
        for entry in self._entries(handle, path):
            if self.token.is_expired():
                self.miss("the time was over")
                return
            yield entry
            if entry.is_folder and level < self.depth:
                yield from self._below(entry, level)
            elif entry.is_folder and self.depth >= DEEPEST:
                self.miss(f"{shown_path(entry.path)} is too deep")

    def _below(self, entry: FolderEntry, level: int) -> Generator[FolderEntry]:
        with self._noted(entry.path):
            handle = enter(entry.handle, entry.name)
            try:
                yield from self._through(handle, entry.path, level + 1)
            finally:
                os.close(handle)

    def _entries(self, handle: int, path: str) -> list[FolderEntry]:
        found: list[FolderEntry] = []
        with self._noted(path), os.scandir(handle) as scan:
            for one in islice(scan, _MOST_ENTRIES):
                try:
                    facts = one.stat(follow_symlinks=False)
                except OSError:  # it has gone meanwhile
                    continue
                inner = f"{path}/{one.name}" if path else one.name
                found.append(FolderEntry(handle, one.name, inner, facts.st_mode, facts.st_size))
            if next(scan, None) is not None:
                self.miss(f"{shown_path(path or '.')} has more than {_MOST_ENTRIES:,} entries")
        return sorted(found, key=lambda entry: entry.name)

    @contextmanager
    def _noted(self, path: str) -> Generator[None]:
        """What cannot be opened is a gap."""
        try:
            with told(path or "."):
                yield
        except FileRefused as error:
            self.miss(str(error))

    def miss(self, words: str) -> None:
        """Note something that was not seen."""
        if words not in self.gaps and len(self.gaps) < _MOST_GAPS:
            self.gaps.append(words)


def shown_path(path: str) -> str:
    r"""A path on one line: what cannot be printed, or is no UTF-8, is escaped.

    >>> print(shown_path("a b"), shown_path("two\nlines"), shown_path("\udcff"))
    a b 'two\nlines' '\udcff'
    """
    return path if path.isprintable() else repr(path)
