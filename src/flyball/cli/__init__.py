"""The command line. It needs the extra `cli`, and says so where that is missing."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from ..errors import FlyballError


def main() -> None:
    """Run the command line: exit 0 when all is well, 1 with one line for what is wrong, 2 for a wrong call."""
    try:
        from .app import app
    except ModuleNotFoundError as error:
        if error.name not in {"rich", "typer"}:
            raise
        sys.exit("flyball: the command line needs the extra 'cli': pip install 'flyball[cli]'")
    logging.getLogger("flyball").addHandler(logging.NullHandler())  # what is to be told is told as lines
    out: Any = sys.stdout
    if isinstance(out, TextIOWrapper):  # a path or a rule may hold what this terminal cannot show
        out.reconfigure(errors="backslashreplace")
    try:
        app()
    except (FlyballError, OSError) as error:
        sys.exit(f"flyball: {error}")
    finally:
        _flush()


def _flush() -> None:
    """Write out what is left. Where nobody reads any more, the interpreter would try again at its end, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
