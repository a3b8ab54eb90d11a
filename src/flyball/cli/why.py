"""`flyball why`: what happened in a run, why it ended, and what would let it go on, on one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .line import MISTAKE, put, refused
from .record import kept


def why(
    record: Annotated[Path | None, typer.Argument(help="A saved --json record; - is standard input.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Leave nothing out of the timeline of a long run.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
) -> None:
    """Show what happened in the last run, or in a saved record: turns, calls, warnings, refusals, and why it ended."""
    try:
        found = kept(record)
    except MISTAKE as error:
        raise refused(error) from None
    from .page import markdown_of
    from .screen import console, drawn

    put(markdown_of(found, every) if markdown else drawn(found, console(), every))
