"""Printing, exit codes and confirmation for all commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO

import typer

from .._internal.text import to_one_line
from ..errors import ConfigErrors, FlyballError, UsageError, format_with_code
from ..person import escape_unprintable
from ..result import Stop

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
USER_ERRORS = (FlyballError, OSError)
"""Errors that a user can cause; commands print them without a traceback."""


def print_line(line: str, *, err: bool = False) -> None:
    """Print a line with control characters escaped.

    Rules and paths may come from anyone and must not control the terminal.
    """
    print_raw(escape_unprintable(line), sys.stderr if err else None)


def print_raw(text: str, file: IO[str] | None = None) -> None:
    """Print text unchanged, at once.

    Raises `BrokenPipeError` if the reader is gone.
    """
    typer.echo(text, file)


def exit_with_error(error: Exception) -> typer.Exit:
    """Print usage errors, one per line, and return the exit to raise."""
    mistakes = error.errors if isinstance(error, ConfigErrors) else [error]
    for mistake in mistakes:
        print_line(f"flyball: {format_with_code(mistake)}", err=True)
    return typer.Exit(USAGE_EXIT_CODE)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headers, without empty columns.

    On a terminal, long lines are cut at its width.
    """
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 10_000  # do not wrap in a pipe
    used = [n for n in range(len(headers)) if any(row[n] for row in rows)]
    columns = [Column(headers[n], no_wrap=True, overflow="ellipsis") for n in used]
    table = Table(*columns, box=None, pad_edge=False, header_style="dim")
    for row in rows:
        table.add_row(*[Text(_format_cell(row[n])) for n in used])
    with console.capture() as capture:
        console.print(table)
    print_raw("\n".join(line.rstrip() for line in capture.get().splitlines()))


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
