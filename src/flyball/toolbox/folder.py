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

_MAX_STEPS = 100
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_FOLDER_FLAGS = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0) | _NONBLOCK
"""With O_NONBLOCK: a pipe that takes a file's place in between must not make anybody wait."""

_ERROR_TEXTS = {
    errno.ENOENT: "there is no such file or folder",
    errno.EACCES: "this user may not open it",
    errno.EPERM: "this user may not do that",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EISDIR: "it is a folder, no file",
    errno.ENOTDIR: "it is no folder",
    errno.ELOOP: "it is a symbolic link, and links are not followed",
}
_KIND_TEXTS = {
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
            with self.open_folder(()):
                pass
        except (FileRefused, TypeError, ValueError):
            raise ConfigError(where, root, "a folder that exists and may be read") from None

    @contextmanager
    def open_folder(self, steps: Sequence[str], make: Callable[[], None] | None = None) -> Generator[int]:
        """The handle of a folder below. With `make` those that are missing are made, after it was called each time."""
        with translate_errors(self.root):
            handle = os.open(self.root, os.O_RDONLY | _FOLDER_FLAGS)
        try:
            for number, step in enumerate(steps, 1):
                with translate_errors("/".join(steps[:number])):
                    inner = _open_or_create(handle, step, make)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def open_for_reading(self, path: str) -> Generator[BinaryIO]:
        """A regular file below, to be read."""
        *parents, name = split_file_path(path)
        with self.open_folder(parents) as handle, translate_errors(path), open_file(handle, name) as file:
            yield file


def split_path(path: str) -> list[str]:
    """The names on the way to a path below a root; FileRefused where it might lead out.

    >>> split_path("src/./flyball/"), split_path(".")
    (['src', 'flyball'], [])
    """
    if path.startswith("/"):
        raise FileRefused(path, "it is absolute; expected a path below the root, such as notes/a.txt")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise FileRefused(path, "it goes up; expected a path below the root, without ..")
    if len(steps) > _MAX_STEPS:
        raise FileRefused(path, f"it has {len(steps)} steps; expected at most {_MAX_STEPS}")
    try:
        if b"\0" not in os.fsencode(path):
            return steps
    except UnicodeEncodeError:
        pass
    raise FileRefused(path, "no name of a file can have these characters")


def split_file_path(path: str) -> list[str]:
    """As `steps_of`, for a file, which has a name."""
    steps = split_path(path)
    if not steps or path.endswith("/"):
        raise FileRefused(path, _ERROR_TEXTS[errno.EISDIR])
    return steps


def open_file(handle: int, name: str) -> BinaryIO:
    """A regular file in a folder, to be read. Nothing else is opened: not even opening a device or pipe is harmless."""
    stat_file(handle, name)
    number = os.open(name, os.O_RDONLY | _FILE_FLAGS, dir_fd=handle)
    try:
        _require_kind(stat.S_IFREG, os.fstat(number))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def stat_file(handle: int, name: str) -> os.stat_result:
    """What the system knows of a regular file in a folder."""
    found = os.stat(name, dir_fd=handle, follow_symlinks=False)
    _require_kind(stat.S_IFREG, found)
    return found


def open_subfolder(handle: int, name: str) -> int:
    """The handle of a folder in a folder; a link is no folder."""
    return os.open(name, os.O_RDONLY | _FOLDER_FLAGS, dir_fd=handle)


@contextmanager
def translate_errors(path: str) -> Generator[None]:
    """What the system says about a path, in words for a model."""
    try:
        yield
    except DeadlineExceeded:  # which is an OSError by its family only
        raise
    except OSError as error:
        words = _ERROR_TEXTS.get(error.errno or 0) or (error.strerror or str(error)).lower()
        raise FileRefused(path, words) from None


def _open_or_create(handle: int, name: str, make: Callable[[], None] | None) -> int:
    try:
        return open_subfolder(handle, name)
    except FileNotFoundError:
        if make is None:
            raise
        make()
        with suppress(FileExistsError):  # somebody else was faster
            os.mkdir(name, dir_fd=handle)
        return open_subfolder(handle, name)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            _require_kind(stat.S_IFDIR, os.stat(name, dir_fd=handle, follow_symlinks=False))
        raise


def _require_kind(wanted: int, found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != wanted:
        raise OSError(0, _KIND_TEXTS.get(kind, "it is a device, a pipe or a socket; expected a file"))
