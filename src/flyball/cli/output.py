"""Lines for a terminal or a pipe."""

from __future__ import annotations

import sys
from typing import IO

import typer

from ..errors import FlyballError, Mistakes
from ..terminal import visible
from .code import USAGE


def say(line: str, *, err: bool = False) -> None:
    """Print a line; what in it would steer the terminal is shown, not sent, as rules and paths may be anybody's."""
    put(visible(line), sys.stderr if err else None)


def put(text: str, file: IO[str] | None = None) -> None:
    """Print a text as it is, at once; a BrokenPipeError says that nobody reads any more."""
    typer.echo(text, file)


def refused(mistake: Exception | str) -> typer.Exit:
    """Tell what is wrong with a call of the command, each mistake in one line; to be raised."""
    mistakes = mistake.errors if isinstance(mistake, Mistakes) else [mistake]
    for one in mistakes:
        say(f"flyball: {one}", err=True)
    return typer.Exit(USAGE)


MISTAKE = (FlyballError, OSError)
"""What a mistake of the user raises."""
