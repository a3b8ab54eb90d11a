"""The command line. It needs the extra `cli`, and says so where that is missing."""

from __future__ import annotations

import logging
import sys
from io import TextIOWrapper
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
