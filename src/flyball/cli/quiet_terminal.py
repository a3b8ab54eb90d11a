"""Terminal that does not show what is typed while a view is drawn on it.

An Enter that the terminal shows would move the cursor, and the view would be drawn twice.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

_saved: list[Any] = []
"""Modes of the terminal before its echo was switched off. Empty while it is on."""


def stop_echo() -> None:
    """Switch the echo off, if standard input is a terminal that belongs to this process now."""
    with suppress(ImportError, OSError, ValueError):  # no termios on Windows; no file number without a terminal
        import termios

        descriptor = sys.stdin.fileno()
        if _saved or not os.isatty(descriptor) or os.tcgetpgrp(descriptor) != os.getpgrp():
            return
        with suppress(termios.error):
            modes = termios.tcgetattr(descriptor)
            _saved.append(modes)
            quiet = [*modes]
            quiet[3] &= ~termios.ECHO
            termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)


def restore_echo(drops_typed: bool = False) -> None:
    """Switch the echo on again. `drops_typed` drops what was typed meanwhile, so that it answers no question."""
    if not _saved:
        return
    with suppress(ImportError, OSError, ValueError):
        import termios

        with suppress(termios.error):
            when = termios.TCSAFLUSH if drops_typed else termios.TCSADRAIN
            termios.tcsetattr(sys.stdin.fileno(), when, _saved.pop())
