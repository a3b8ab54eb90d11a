"""The command line. It needs the extra `cli`, and says so where that is missing."""

from __future__ import annotations

import sys

from ..errors import FlyballError


def main() -> None:
    """Run the command line: exit 0 when all is well, 1 with one line for what is wrong, 2 for a wrong call."""
    try:
        from .app import app
    except ModuleNotFoundError as error:
        if error.name not in {"rich", "typer"}:
            raise
        sys.exit("flyball: the command line needs the extra 'cli': pip install 'flyball[cli]'")
    try:
        app()
    except FlyballError as error:
        sys.exit(f"flyball: {error}")
