"""Consent: the person at the terminal agrees before something is deleted."""

from __future__ import annotations

import sys

from ..errors import ConfigError
from ..terminal import visible
from .output import say


def agreed(question: str, yes: bool) -> bool:
    """Whether it may be done: by --yes, or because somebody at the terminal says so.

    Where nobody can be asked it is a ConfigError: what deletes must not be taken for granted.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigError(question, "nobody at a terminal who can be asked", "--yes")
    sys.stderr.write(visible(f"{question} (y or n) "))
    sys.stderr.flush()
    agrees = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not agrees:
        say("nothing was deleted", err=True)
    return agrees
