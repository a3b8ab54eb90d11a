"""Ctrl-C: once, the run is cancelled and reports; twice, the program is gone."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING

from ..result import Stop
from .code import CODES

if TYPE_CHECKING:
    from ..agent.run import Run

_CURSOR = "\x1b[?25h"
"""Shows the cursor, which the live view has hidden."""


@contextmanager
def cancelled_by_ctrl_c(going: Run) -> Generator[None]:
    """The first Ctrl-C cancels the run; from then on, also behind this block, the next one ends the program."""
    if current_thread() is not main_thread():  # where no signal ever comes
        yield
        return
    interrupted = False

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, _stop)
        going.cancel("Ctrl-C")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if not interrupted:
            signal.signal(signal.SIGINT, before)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    """Leave without closing anything: what hangs would hang here, too. Programs of tools die with their parent."""
    shown = _CURSOR if sys.stderr.isatty() else ""
    with suppress(OSError):  # nobody sees it
        os.write(2, f"{shown}\nflyball: stopped at once; what it did last may not be kept\n".encode())
    os._exit(CODES[Stop.CANCELLED])
