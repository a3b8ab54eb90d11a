"""Command line `flyball`; needs the extra `cli`."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from .._internal.distribution import format_install
from ..errors import FlyballError, format_for_command


def main() -> None:
    """Run the command line.

    Exits with 0 on success, 1 with a one-line message for an error, and 2 for wrong usage.
    """
    try:
        from .app import run_app
    except ModuleNotFoundError as error:
        if error.name not in {"rich", "typer"}:
            raise
        sys.exit(f"flyball: the command line needs the extra 'cli': {format_install('cli')}")
    logging.getLogger("flyball").addHandler(logging.NullHandler())  # errors are printed as lines instead
    stdout: Any = sys.stdout
    if isinstance(stdout, TextIOWrapper):  # paths and rules may contain characters that the terminal cannot show
        stdout.reconfigure(errors="backslashreplace")
    try:
        sys.exit(run_app())
    except (FlyballError, OSError) as error:
        sys.exit(f"flyball: {format_for_command(error)}")
    finally:
        _flush()


def _flush() -> None:
    """Flush the standard streams.

    If a pipe is closed, redirect the stream to devnull: the interpreter would flush again at exit and print a warning.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
