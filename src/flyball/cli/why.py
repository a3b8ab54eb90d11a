"""`flyball why`: what happened in a run, why it ended, and what would let it go on, on one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from .line import MISTAKE, put, refused
from .record import Record, kept


def why(
    record: Annotated[Path | None, typer.Argument(help="A saved --json record; - is standard input.")] = None,
    child: Annotated[str | None, typer.Option(metavar="PLACE", help="Show one of its children, such as 2.1.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Leave nothing out of the timeline of a long run.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
) -> None:
    """Show what happened in the last run, or in a saved record: turns, calls, warnings, refusals, and why it ended."""
    try:
        found = kept(record)
        found = found if child is None else _child(found, child)
    except MISTAKE as error:
        raise refused(error) from None
    from .page import markdown_of
    from .screen import console, drawn

    put(markdown_of(found, every) if markdown else drawn(found, console(), every))


def _child(record: Record, place: str) -> Record:
    found = record.at(place)
    if found is None or not place:
        places = ", ".join(one.place for one in record.tree() if one.place) or "none, as this run has no children"
        raise ConfigError("why, --child", place, f"one of {places}" if record.children else places)
    return found
