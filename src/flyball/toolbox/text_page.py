"""Pages of text files, with a bounded number of lines."""

from __future__ import annotations

from collections.abc import Generator
from typing import BinaryIO

from ..budget.deadline import DeadlineToken
from ..errors import FileRefused

MAX_CHARACTERS = 10_000
"""Maximum length of one result.

It is below the executor's limit for excerpts, so that the result itself says what is left out.
"""
_MAX_LINE_LENGTH = 2_000
_SNIFF_BYTES = 8_192
_CONTROLS = {code: "\ufffd" for code in (*range(32), 127) if chr(code) not in "\t\n\r\f"}


def clean_text(data: bytes) -> str:
    """Decode bytes as UTF-8, with invalid bytes and control characters replaced."""
    return data.decode("utf-8", "replace").translate(_CONTROLS)


def is_binary(start: bytes) -> bool:
    """Check whether a file that starts with these bytes is binary."""
    return b"\0" in start[:_SNIFF_BYTES]


def read_page(file: BinaryIO, path: str, first: int, count: int, token: DeadlineToken) -> str:
    """Return up to `count` lines from line `first` on.

    The last line of the result says which lines these are, and whether more follow.

    Raises:
        FileRefused: the file is binary.
        DeadlineExceeded: the token expired.
    """
    start = file.read(_SNIFF_BYTES)
    if is_binary(start):
        raise FileRefused(path, "it is a binary file, not a text file")
    file.seek(0)
    shown: list[str] = []
    size, number, more = 0, 0, False
    for number, line in enumerate(_read_lines(file, token), 1):
        if number < first:
            continue
        more = len(shown) == count or size + len(line) > MAX_CHARACTERS
        if more:
            break
        shown.append(line)
        size += len(line)
    if not shown:
        return f"(there is no line {first}; the file has {number} lines)"
    last = first + len(shown) - 1
    rest = f"more from line {last + 1}" if more else "end of file"
    text = "".join(shown)
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}(lines {first} to {last}; {rest})"


def _read_lines(file: BinaryIO, token: DeadlineToken) -> Generator[str]:
    # Long lines are cut: a file may be a single line of many gigabytes.
    while piece := file.readline(_MAX_LINE_LENGTH):
        token.raise_if_expired()
        left_out = 0
        end = piece
        while len(end) == _MAX_LINE_LENGTH and not end.endswith(b"\n"):
            end = file.readline(_MAX_LINE_LENGTH)
            left_out += len(end)
            token.raise_if_expired()
        yield clean_text(piece) if not left_out else f"{clean_text(piece)} … ({left_out:,} more bytes)\n"
