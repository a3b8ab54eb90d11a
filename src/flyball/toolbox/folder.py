"""Access to files below a root that no path can escape.

The model chooses the paths, and another process may change the folders at the same time. So no path is ever passed to
the system as a whole. Each step is opened relative to the file descriptor of the step before, and a symbolic link is an
error. If a folder is replaced by a link between two steps, the change is either too late or refused.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from ..errors import ConfigError, DeadlineExceeded, FileRefused, UsageError

_MAX_STEPS = 100
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_FOLDER_FLAGS = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# O_NONBLOCK: opening must not block if a pipe takes the place of a file after the check.
_FILE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0) | _NONBLOCK

_ERROR_TEXTS = {
    errno.ENOENT: "there is no such file or folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EISDIR: "it is a folder, not a file",
    errno.ENOTDIR: "it is not a folder",
    errno.ELOOP: "it is a symbolic link, and links are not followed",
}
_KIND_TEXTS = {
    stat.S_IFLNK: "it is a symbolic link, and links are not followed",
    stat.S_IFDIR: "it is a folder, not a file",
    stat.S_IFREG: "it is a file, not a folder",
}


class Folder:
    """Root folder of file tools.

    It opens only files and folders below itself.
    """

    def __init__(self, where: str, root: str | os.PathLike[str]) -> None:
        if os.open not in os.supports_dir_fd or os.scandir not in os.supports_fd:
            raise UsageError(f"{where}: file tools need Linux or macOS, and this is {sys.platform}")
        try:
            self.root = os.path.realpath(root)  # the root comes from the caller, so its links are trusted
            with self.open_folder(()):
                pass
        except (FileRefused, TypeError, ValueError):
            raise ConfigError(where, root, "a folder that exists and is readable") from None

    @contextmanager
    def open_folder(self, steps: Sequence[str], make: Callable[[], None] | None = None) -> Generator[int]:
        """Yield the file descriptor of a folder below the root.

        With `make`, missing folders are created. `make` is called before each of them, and may raise to prevent it.
        """
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
        """Open a regular file below the root for reading."""
        *parents, name = split_file_path(path)
        with self.open_folder(parents) as handle, translate_errors(path), open_file(handle, name) as file:
            yield file


def split_path(path: str) -> list[str]:
    """Split a relative path into its names.

    Raises:
        FileRefused: the path is absolute, goes up, or is too long.

    >>> split_path("src/./flyball/"), split_path(".")
    (['src', 'flyball'], [])
    """
    if path.startswith("/"):
        raise FileRefused(path, "it is absolute; use a path below the root, such as notes/a.txt")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise FileRefused(path, "it contains ..; use a path below the root")
    if len(steps) > _MAX_STEPS:
        raise FileRefused(path, f"it has {len(steps)} parts; the maximum is {_MAX_STEPS}")
    try:
        if b"\0" not in os.fsencode(path):
            return steps
    except UnicodeEncodeError:
        pass
    raise FileRefused(path, "it has characters that a file name cannot have")


def split_file_path(path: str) -> list[str]:
    """Split a path like `split_path`, and require a file name."""
    steps = split_path(path)
    if not steps or path.endswith("/"):
        raise FileRefused(path, _ERROR_TEXTS[errno.EISDIR])
    return steps


def open_file(handle: int, name: str) -> BinaryIO:
    """Open a regular file in a folder for reading.

    The file is checked before it is opened, because opening a device or a pipe can have effects.
    """
    stat_file(handle, name)
    number = os.open(name, os.O_RDONLY | _FILE_FLAGS, dir_fd=handle)
    try:
        _require_kind(stat.S_IFREG, os.fstat(number))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def stat_file(handle: int, name: str) -> os.stat_result:
    """Return the status of a regular file in a folder."""
    status = os.stat(name, dir_fd=handle, follow_symlinks=False)
    _require_kind(stat.S_IFREG, status)
    return status


def open_subfolder(handle: int, name: str) -> int:
    """Open a folder in a folder and return its descriptor.

    Links are refused.
    """
    return os.open(name, os.O_RDONLY | _FOLDER_FLAGS, dir_fd=handle)


@contextmanager
def translate_errors(path: str) -> Generator[None]:
    """Turn an OSError into FileRefused, in words for a model."""
    try:
        yield
    except DeadlineExceeded:  # it is an OSError, as a subclass of TimeoutError
        raise
    except OSError as error:
        reason = _ERROR_TEXTS.get(error.errno or 0) or (error.strerror or str(error)).lower()
        raise FileRefused(path, reason) from None


def _open_or_create(handle: int, name: str, make: Callable[[], None] | None) -> int:
    try:
        return open_subfolder(handle, name)
    except FileNotFoundError:
        if make is None:
            raise
        make()
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(name, dir_fd=handle)
        return open_subfolder(handle, name)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            _require_kind(stat.S_IFDIR, os.stat(name, dir_fd=handle, follow_symlinks=False))
        raise


def _require_kind(expected: int, status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != expected:
        raise OSError(0, _KIND_TEXTS.get(kind, "it is a device, a pipe or a socket, not a file"))
