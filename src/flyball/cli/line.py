"""Lines for a terminal."""

from __future__ import annotations

import typer


def say(line: str, *, err: bool = False) -> None:
    """Print a line; what in it would steer the terminal is shown, not sent, as rules and paths may be anybody's."""
    shown = [one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in line]
    typer.echo("".join(shown), err=err)
