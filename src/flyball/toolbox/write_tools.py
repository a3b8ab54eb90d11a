"""Tools that write and edit text files below a root folder."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Annotated

from pydantic import Field

from ..errors import FileRefused
from ..tools import Approve, Options, Tool, ToolContext
from .folder import Folder, open_file, split_file_path, stat_file, translate_errors

_MAX_BYTES = 4 * 2**20
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

Path = Annotated[str, "relative to the root, such as notes/a.txt"]


def write(root: str | os.PathLike[str] = ".", *, approve: Approve = False, timeout: float = 20.0) -> list[Tool]:
    """Return the tools `write_file` and `edit_file`.

    They work on text files below `root`. `timeout` is in seconds for each call.

    >>> write("/")
    [<Tool write_file(path, text)>, <Tool edit_file(path, old, new)>]
    """
    writer = _FileWriter(Folder("write, root", root))
    options = Options(effects="write", approve=approve, timeout=timeout)
    whole = Options(idempotent=True)  # a repeated edit would not find its place again, or find another one
    return [Tool(writer.write_file, **options | whole), Tool(writer.edit_file, **options)]


class _FileWriter:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def write_file(self, ctx: ToolContext, path: Path, text: Annotated[str, "complete content of the file"]) -> str:
        """Write a text file. Creates it and its folders, or replaces its whole content."""
        *parents, name = split_file_path(path)
        data = text.encode()
        with self._folder.open_folder(parents, make=ctx.commit) as handle, translate_errors(path):
            before = _stat_existing(path, handle, name)
            _replace(ctx, handle, name, data, before)
        return f"{'Wrote' if before is None else 'Replaced'} {path}: {len(data):,} bytes."

    def edit_file(
        self,
        ctx: ToolContext,
        path: Path,
        old: Annotated[str, Field(min_length=1, description="text to replace; it must occur exactly once in the file")],
        new: Annotated[str, "text to put in its place"],
    ) -> str:
        """Replace a text that occurs once in a text file."""
        *parents, name = split_file_path(path)
        with self._folder.open_folder(parents) as handle, translate_errors(path):
            before = _stat_existing(path, handle, name)
            with open_file(handle, name) as file:
                data = file.read(_MAX_BYTES + 1)
            edited = _apply_edit(path, data, old, new)
            _replace(ctx, handle, name, edited, before)
        return f"Edited {path}: {len(edited):,} bytes."


def _apply_edit(path: str, data: bytes, old: str, new: str) -> bytes:
    if len(data) > _MAX_BYTES:
        raise FileRefused(path, f"it has more than {_MAX_BYTES:,} bytes and is too large to edit")
    count = data.count(old.encode())
    if count != 1:
        hint = "give it exactly as it is in the file" if not count else "include more of the text around it"
        raise FileRefused(path, f"the old text occurs {count} times; {hint}")
    return data.replace(old.encode(), new.encode())


def _stat_existing(path: str, handle: int, name: str) -> os.stat_result | None:
    """Return the status of the file to replace, or None.

    Only a regular file that is not read-only may be replaced.
    """
    try:
        status = stat_file(handle, name)
    except FileNotFoundError:
        return None
    if not status.st_mode & 0o222:  # the rename below would replace it all the same
        raise FileRefused(path, "it is read-only")
    return status


def _replace(ctx: ToolContext, handle: int, name: str, data: bytes, before: os.stat_result | None) -> None:
    """Replace a file atomically, by a draft that is renamed.

    If a link has taken the place of the file, the link is replaced, not followed.
    """
    with _temporary_name(handle) as draft:
        descriptor = os.open(draft, _NEW_FILE_FLAGS, 0o666, dir_fd=handle)
        with os.fdopen(descriptor, "wb") as file:
            if before is not None:
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)
            file.write(data)
        ctx.commit()
        os.rename(draft, name, src_dir_fd=handle, dst_dir_fd=handle)


@contextmanager
def _temporary_name(handle: int) -> Generator[str]:
    """Yield an unused file name and remove that file afterwards."""
    draft = f".flyball-{secrets.token_hex(8)}"
    try:
        yield draft
    finally:
        with suppress(OSError):
            os.unlink(draft, dir_fd=handle)
