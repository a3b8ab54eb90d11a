"""Governed program: a child process that has the standard streams, the terminal and the signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType

from .._internal import supervisor
from ..errors import UsageError

_KILL_S = 10.0
"""Seconds to wait for the supervisor, which needs less to kill everything."""
_BYTES = {number: byte for byte, number in supervisor.SIGNALS.items()}
_FROM_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
"""Signals that a terminal sends to all programs in its foreground, so that they must not be forwarded."""


class Program:
    """Process of a command, with everything it started. Use it in a `with` block; its end kills what is left.

    No process is left behind, even if this one is killed; see `supervisor`.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        if not hasattr(os, "fork"):
            raise UsageError(f"flyball exec needs Linux or macOS, and this is {sys.platform}")
        self._has_terminal = has_terminal()
        control_read, self._control = os.pipe()
        try:
            self._process = subprocess.Popen(
                supervisor.build_command(control_read, command, self._has_terminal),
                env=environment,
                pass_fds=[control_read],
            )
        except BaseException:
            os.close(self._control)
            raise
        finally:
            os.close(control_read)

    def wait(self, seconds: float) -> int | None:
        """Wait for the end of the command and return its exit code; None if it runs still after `seconds`."""
        try:
            return self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return None

    def forward(self, number: int) -> None:
        """Send a signal to the command, unless the terminal has sent it already."""
        if self._has_terminal and number in _FROM_TERMINAL and has_terminal():
            return
        self._send(_BYTES[signal.Signals(number)])

    def terminate(self) -> None:
        """Ask the command and everything it started to end."""
        self._send(supervisor.TERMINATE_ALL)

    def kill(self) -> None:
        """Kill the command and everything it started."""
        self._send(supervisor.STOP)
        if self.wait(_KILL_S) is None:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def forward_signals(self) -> Generator[None]:
        """Forward the signals that this process gets, within the block."""
        if current_thread() is not main_thread():  # signals arrive in the main thread only
            yield
            return

        def forward(number: int, _frame: FrameType | None) -> None:
            self.forward(number)

        before = {number: signal.signal(number, forward) for number in _BYTES}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        os.close(self._control)

    def _send(self, byte: bytes) -> None:
        with suppress(OSError):  # it has ended
            os.write(self._control, byte)


def has_terminal() -> bool:
    """Check whether this process is in the foreground of a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def check_program(command: Sequence[str], path: str | None) -> None:
    """Raise UsageError if there is no program for a command."""
    import shutil

    if shutil.which(command[0], path=path) is None:
        reason = "it is not executable" if Path(command[0]).is_file() else "no such program was found"
        raise UsageError(f"{command[0]} cannot be run: {reason}")
