"""A folder that cannot be left: everything below it is opened step by step from its handle, and no link is followed.

A path is a wish of a model, and what it names may be changed while it is looked at. So no path is ever handed to the
system as a whole: each step is opened relative to the handle of the one before, and a link is an error. Whoever swaps
a folder for a link between two steps is either too late or refused.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from ..errors import ConfigError, DeadlineExceeded, FileRefused

_MOST_STEPS = 100
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0) | _NONBLOCK
"""With O_NONBLOCK: a pipe that takes a file's place in between must not make anybody wait."""

_WORDS = {
    errno.ENOENT: "there is no such file or folder",
    errno.EACCES: "this user may not open it",
    errno.EPERM: "this user may not do that",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EISDIR: "it is a folder, no file",
    errno.ENOTDIR: "it is no folder",
    errno.ELOOP: "it is a symbolic link, and links are not followed",
}
_KINDS = {
    stat.S_IFLNK: "it is a symbolic link, and links are not followed",
    stat.S_IFDIR: "it is a folder, no file",
    stat.S_IFREG: "it is a file, no folder",
}


class Folder:
    """The root of some tools. What it opens is below it, whatever path is asked for."""

    def __init__(self, where: str, root: str | os.PathLike[str]) -> None:
        if os.open not in os.supports_dir_fd or os.scandir not in os.supports_fd:
            raise ConfigError(where, sys.platform, "a system that opens files by folder handles: Linux or macOS")
        try:
            self.root = os.path.realpath(root)  # what the caller names is trusted, with its links
            with self.entered(()):
                pass
        except (FileRefused, TypeError, ValueError):
            raise ConfigError(where, root, "a folder that exists and may be read") from None

    @contextmanager
    def entered(self, steps: Sequence[str], make: Callable[[], None] | None = None) -> Generator[int]:
        """The handle of a folder below. With `make` those that are missing are made, after it was called each time."""
        with told(self.root):
            handle = os.open(self.root, os.O_RDONLY | _FOLDER)
        try:
            for number, step in enumerate(steps, 1):
                with told("/".join(steps[:number])):
                    inner = _entered(handle, step, make)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def opened(self, path: str) -> Generator[BinaryIO]:
        """A regular file below, to be read."""
        *parents, name = file_steps(path)
        with self.entered(parents) as handle, told(path), open_file(handle, name) as file:
            yield file


def steps_of(path: str) -> list[str]:
    """The names on the way to a path below a root; FileRefused where it might lead out.

    >>> steps_of("src/./flyball/"), steps_of(".")
    (['src', 'flyball'], [])
    """
    if path.startswith("/"):
        raise FileRefused(path, "it is absolute; expected a path below the root, such as notes/a.txt")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise FileRefused(path, "it goes up; expected a path below the root, without ..")
    if len(steps) > _MOST_STEPS:
        raise FileRefused(path, f"it has {len(steps)} steps; expected at most {_MOST_STEPS}")
    try:
        if b"\0" not in os.fsencode(path):
            return steps
    except UnicodeEncodeError:
        pass
    raise FileRefused(path, "no name of a file can have these characters")


def file_steps(path: str) -> list[str]:
    """As `steps_of`, for a file, which has a name."""
    steps = steps_of(path)
    if not steps or path.endswith("/"):
        raise FileRefused(path, _WORDS[errno.EISDIR])
    return steps


def open_file(handle: int, name: str) -> BinaryIO:
    """A regular file in a folder, to be read. Nothing else is opened: not even opening a device or pipe is harmless."""
    facts_of(handle, name)
    number = os.open(name, os.O_RDONLY | _FILE, dir_fd=handle)
    try:
        _refuse_unless(stat.S_IFREG, os.fstat(number))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def facts_of(handle: int, name: str) -> os.stat_result:
    """What the system knows of a regular file in a folder."""
    found = os.stat(name, dir_fd=handle, follow_symlinks=False)
    _refuse_unless(stat.S_IFREG, found)
    return found


def enter(handle: int, name: str) -> int:
    """The handle of a folder in a folder; a link is no folder."""
    return os.open(name, os.O_RDONLY | _FOLDER, dir_fd=handle)


@contextmanager
def told(path: str) -> Generator[None]:
    """What the system says about a path, in words for a model."""
    try:
        yield
    except DeadlineExceeded:  # which is an OSError by its family only
        raise
    except OSError as error:
        words = _WORDS.get(error.errno or 0) or (error.strerror or str(error)).lower()
        raise FileRefused(path, words) from None


def _entered(handle: int, name: str, make: Callable[[], None] | None) -> int:
    try:
        return enter(handle, name)
    except FileNotFoundError:
        if make is None:
            raise
        make()
        with suppress(FileExistsError):  # somebody else was faster
            os.mkdir(name, dir_fd=handle)
        return enter(handle, name)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            _refuse_unless(stat.S_IFDIR, os.stat(name, dir_fd=handle, follow_symlinks=False))
        raise


def _refuse_unless(wanted: int, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != wanted:
        raise OSError(0, _KINDS.get(kind, "it is a device, a pipe or a socket; expected a file"))
