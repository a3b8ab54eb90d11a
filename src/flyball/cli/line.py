"""Lines for a terminal or a pipe."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO

import typer

from ..errors import FlyballError, Mistakes
from ..terminal import visible
from .code import USAGE


def say(line: str, *, err: bool = False) -> None:
    """Print a line; what in it would steer the terminal is shown, not sent, as rules and paths may be anybody's."""
    put(visible(line), sys.stderr if err else None)


def put(text: str, file: IO[str] | None = None) -> None:
    """Print a text as it is. A BrokenPipeError tells once that nobody reads any more; later texts are swallowed."""
    try:
        typer.echo(text, file)
    except BrokenPipeError:
        _swallow(sys.stdout if file is None else file)
        raise


def _swallow(file: IO[str]) -> None:
    """Lead the stream to nowhere: else Python finds the pipe broken again when it ends, and says so."""
    with suppress(OSError):  # of a stream that is only in memory
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)


def refused(mistake: Exception | str) -> typer.Exit:
    """Tell what is wrong with a call of the command, each mistake in one line; to be raised."""
    mistakes = mistake.errors if isinstance(mistake, Mistakes) else [mistake]
    for one in mistakes:
        say(f"flyball: {one}", err=True)
    return typer.Exit(USAGE)


MISTAKE = (FlyballError, OSError)
"""What a mistake of the user raises."""
