"""Printing, exit codes and confirmation for all commands."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import IO

import typer

from .._internal.text import to_one_line
from ..errors import ConfigErrors, FlyballError, UsageError, format_for_command
from ..person import escape_unprintable
from ..result import Stop
from .wrapping import wrap_line

USAGE_EXIT_CODE = 2
EXIT_CODES = {
    Stop.COMPLETED: 0,
    Stop.FAILED: 1,
    Stop.BUDGET: 3,
    Stop.DEADLINE: 4,
    Stop.STALLED: 5,
    Stop.UNFINISHED: 5,
    Stop.HALTED: 5,
    Stop.CONTENDED: 6,
    Stop.PAUSED: 7,
    Stop.CANCELLED: 130,
}
UNGOVERNED_EXIT_CODE = 8
"""Exit code of `flyball exec` if no request came through the gateway."""
NARROW_COLUMNS = 64
"""A terminal below this width gets fewer columns, so that the others keep their words."""
USER_ERRORS = (FlyballError, OSError)
"""Errors that a user can cause; commands print them without a traceback."""


def print_line(text: str, *, head: str = "", err: bool = False) -> None:
    """Print a line with control characters escaped. On a terminal it is wrapped between words, below its text.

    Rules and paths may come from anyone and must not control the terminal.
    """
    file = sys.stderr if err else sys.stdout
    text = escape_unprintable(text)
    for line in wrap_line(head, text, _get_columns(file)) if file.isatty() else [head + text]:
        print_raw(line, file)


def _get_columns(terminal: IO[str]) -> int:
    """Return the width of this terminal. Standard output may be a file."""
    try:
        return int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(terminal.fileno()).columns
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


def print_raw(text: str, file: IO[str] | None = None) -> None:
    """Print text unchanged, at once.

    Raises `BrokenPipeError` if the reader is gone.
    """
    typer.echo(text, file)


def exit_with_error(error: Exception) -> typer.Exit:
    """Print usage errors, one per line, and return the exit to raise."""
    mistakes = error.errors if isinstance(error, ConfigErrors) else [error]
    for mistake in mistakes:
        print_line(format_for_command(mistake), head="flyball: ", err=True)
    return typer.Exit(USAGE_EXIT_CODE)


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    columns_for: Mapping[str, int] | None = None,
    wrapped: Collection[str] = (),
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print rows under headers, without empty columns.

    On a terminal the last column is cut at its width. `columns_for` has the width of the terminal that a column needs
    to be shown. `right` names columns of numbers, `wrapped` those whose texts may take several lines. `styles` gives
    cells of the same text a colour.
    """
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 10_000  # do not wrap in a pipe
    needed = columns_for or {}
    used = [n for n, head in enumerate(headers) if needed.get(head, 0) <= console.width and any(row[n] for row in rows)]
    columns = [
        Column(
            headers[n],
            no_wrap=headers[n] not in wrapped,
            overflow="fold" if headers[n] in wrapped else "ellipsis",
            justify="right" if headers[n] in right else "left",
            ratio=1 if console.is_terminal and n == used[-1] and headers[n] not in right else None,
        )
        for n in used
    ]
    is_narrow = console.is_terminal and console.width < NARROW_COLUMNS
    is_cut = any(column.ratio for column in columns)
    table = Table(*columns, box=None, pad_edge=False, collapse_padding=is_narrow, header_style="dim", expand=is_cut)
    for row in rows:
        table.add_row(*[Text(_format_cell(row[n]), style=(styles or {}).get(row[n], "")) for n in used])
    with console.capture() as capture:
        console.print(table)
    print_raw("\n".join(line.rstrip() for line in capture.get().splitlines()))


def format_usd(usd: float | None, is_partly_unknown: bool = False) -> str:
    """Format dollars for a list; `?` stands for a cost that is not known.

    >>> format_usd(0.012345), format_usd(None), format_usd(1.5, True), format_usd(0, True)
    ('$0.01235', '?', '$1.50 and ?', '?')
    """
    if usd is None or (is_partly_unknown and not usd):
        return "?"
    amount = f"${usd:.2f}" if usd == 0 or usd >= 1 else f"${usd:.4g}"
    return f"{amount} and ?" if is_partly_unknown else amount


def _format_cell(text: str) -> str:
    return escape_unprintable(to_one_line(text))


def confirm(question: str, yes: bool, otherwise: str = "nothing was deleted") -> bool:
    """Check whether the user agrees, by `--yes` or at the terminal.

    Raises `UsageError` if there is no terminal: consent must not be assumed. `otherwise` is printed after a no.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask on: use --yes")
    sys.stderr.write(escape_unprintable(f"{question} (y or n) "))
    sys.stderr.flush()
    agrees = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not agrees:
        print_line(otherwise, err=True)
    return agrees
