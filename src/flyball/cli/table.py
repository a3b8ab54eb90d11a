"""Tables for a terminal or a pipe: what is listed, a line each."""

from __future__ import annotations

from collections.abc import Sequence

from ..terminal import visible
from .output import put

_LONGEST = 400


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their heads. On a terminal a line ends where that ends; a column in which nothing stands is left
    out."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 10_000  # a pipe has no edge
    used = [n for n in range(len(heads)) if any(row[n] for row in rows)]
    columns = [Column(heads[n], no_wrap=True, overflow="ellipsis") for n in used]
    table = Table(*columns, box=None, pad_edge=False, header_style="dim")
    for row in rows:
        table.add_row(*[Text(_cell(row[n])) for n in used])
    with console.capture() as capture:
        console.print(table)
    put("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _cell(text: str) -> str:
    line = " ".join(text[: 2 * _LONGEST].split())
    return visible(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…")
