"""Tools that list, read and search files below a root folder."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Annotated

from pydantic import Field

from ..tools import Options, Tool, ToolContext
from .folder import Folder, split_path, translate_errors
from .search import make_regex_finder, make_text_finder, search
from .text_page import MAX_CHARACTERS, read_page
from .walk import MAX_DEPTH, FolderEntry, Walk, format_path

_MAX_LISTED = 500

Path = Annotated[str, "relative to the root, such as notes/a.txt"]


def files(root: str | os.PathLike[str] = ".", *, timeout: float = 20.0) -> list[Tool]:
    """Return tools that read the files below a folder.

    They are `list_files`, `read_file` and `search_files`. `timeout` is in seconds for each call.

    >>> print(*files("/"))
    <Tool list_files(path, depth)> <Tool read_file(path, first, count)> <Tool search_files(text, path, regex, names)>
    """
    reader = _FileReader(Folder("files, root", root))
    options = Options(effects="read", idempotent=True, timeout=timeout)
    return [
        Tool(reader.list_files, **options),
        Tool(reader.read_file, **options),
        Tool(reader.search_files, **options),
    ]


class _FileReader:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def list_files(
        self,
        ctx: ToolContext,
        path: Annotated[str, "a folder, relative to the root"] = ".",
        depth: Annotated[
            int, Field(ge=1, le=10, description="levels to list: 1 is the folder itself, 2 also its subfolders")
        ] = 1,
    ) -> str:
        """List a folder, one path per line, with file sizes. Folders end with /. Links are listed but not followed."""
        walk = Walk(depth, ctx.token)
        lines: list[str] = []
        room = MAX_CHARACTERS
        steps = split_path(path)
        with (
            self._folder.open_folder(steps) as handle,
            translate_errors(path),
            closing(walk.iter_entries(handle, "/".join(steps))) as entries,
        ):
            for entry in entries:
                line = _format_entry(entry)
                room -= len(line) + 1
                if room < 0 or len(lines) == _MAX_LISTED:
                    walk.add_gap(f"only the first {len(lines)} entries are shown")
                    break
                lines.append(line)
        if walk.gaps or not lines:
            lines.append(f"({'; '.join(walk.gaps) or 'the folder is empty'})")
        return "\n".join(lines)

    def read_file(
        self,
        ctx: ToolContext,
        path: Path,
        first: Annotated[int, Field(ge=1, description="number of the first line to read")] = 1,
        count: Annotated[int, Field(ge=1, le=2_000, description="maximum number of lines")] = 400,
    ) -> str:
        """Read a text file, or a part of it. The last line of the result says which lines these are."""
        with self._folder.open_for_reading(path) as file:
            return read_page(file, path, first, count, ctx.token)

    def search_files(
        self,
        ctx: ToolContext,
        text: Annotated[str, Field(min_length=1, description="text to find in each line")],
        path: Annotated[str, "folder to search, with its subfolders, relative to the root"] = ".",
        regex: Annotated[bool, "whether text is a Python regular expression"] = False,
        names: Annotated[str, Field(max_length=255, description="pattern of file names to search, such as *.py")] = "*",
    ) -> str:
        """Search text files. Each match is one line: path, line number and the line."""
        walk = Walk(MAX_DEPTH, ctx.token)
        steps = split_path(path)
        finder = make_regex_finder(text, ctx.token) if regex else make_text_finder(text)
        with self._folder.open_folder(steps) as handle, translate_errors(path):
            return search(walk, handle, "/".join(steps), names, finder)


def _format_entry(entry: FolderEntry) -> str:
    path = format_path(entry.path)
    if entry.is_folder:
        return f"{path}/"
    if entry.is_file:
        return f"{path}  {entry.size:,} bytes"
    return f"{path}  {'link, not followed' if entry.is_link else 'device, pipe or socket'}"
