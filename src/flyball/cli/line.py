"""Lines for a terminal."""

from __future__ import annotations

import typer


def say(line: str, *, err: bool = False) -> None:
    """Print a line; what in it would steer the terminal is shown, not sent, as rules and paths may be anybody's."""
    typer.echo(plain(line), err=err)


def plain(line: str) -> str:
    """The line with whatever would steer a terminal made visible."""
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in line)
