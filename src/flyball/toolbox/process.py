"""Commands that are bounded in time and output and leave no process behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import BinaryIO, cast

from .._internal import supervisor
from ..budget.deadline import DeadlineToken
from ..errors import CommandFailed
from .text_page import MAX_CHARACTERS, clean_text

_POLL_SECONDS = 0.05
_KILL_S = 10.0
"""Seconds to wait for the supervisor, which needs less to kill everything."""
_CHUNK_BYTES = 65_536


def run_command(command: Sequence[str], *, cwd: str, env: Mapping[str, str], token: DeadlineToken) -> str:
    """Run a command and return its exit code and output.

    The command gets no input, and is killed when the token expires. No process that it started is left in any case; see
    `supervisor`.

    Raises:
        CommandFailed: it did not start, took too long or failed; the error contains the output.
    """
    seconds = token.remaining_s()
    supervised, pipe = supervisor.build_command(0, command), subprocess.PIPE
    try:
        process = subprocess.Popen(
            supervised, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise CommandFailed(f"the command could not be started: {error}", "") from None
    out, err = ProcessOutput(), ProcessOutput()
    try:
        in_time = _read_output(
            process, {cast("BinaryIO", process.stdout): out, cast("BinaryIO", process.stderr): err}, token
        )
    finally:
        _stop(process)
    output = "\n".join(part for part in (out.text, f"stderr:\n{err.text}" if err.text else "") if part)
    if not in_time:
        raise CommandFailed(
            f"the command did not end within {seconds:.3g} s and was killed with all its processes", output
        )
    if process.returncode < 0:
        raise CommandFailed("the supervisor of the command was killed, so the command was killed too", output)
    if process.returncode != 0:
        raise CommandFailed(f"exit code {process.returncode}", output)
    return f"exit code 0\n{output}" if output else "exit code 0, no output"


class ProcessOutput:
    r"""Start and end of a stream's output, in bounded memory.

    >>> output = ProcessOutput(6)
    >>> output.add(b"one two three")
    >>> output.text
    'one\n… (7 bytes left out) …\nree'
    """

    def __init__(self, max_bytes: int = MAX_CHARACTERS // 2 - 200) -> None:
        self._half = max_bytes // 2
        self._start = b""
        self._end = b""
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Append output, and drop the middle beyond the limit."""
        self._size += len(chunk)
        if len(self._start) < self._half:
            room = self._half - len(self._start)
            self._start, chunk = self._start + chunk[:room], chunk[room:]
        self._end = (self._end + chunk)[-self._half :]

    @property
    def text(self) -> str:
        """Return the whole output, or its start and end."""
        left_out = self._size - len(self._start) - len(self._end)
        if not left_out:
            return clean_text(self._start + self._end).rstrip()
        return f"{clean_text(self._start)}\n… ({left_out:,} bytes left out) …\n{clean_text(self._end)}".rstrip()


def _read_output(
    process: subprocess.Popen[bytes], streams: Mapping[BinaryIO, ProcessOutput], token: DeadlineToken
) -> bool:
    """Read all output; return False if the token expired first.

    The supervisor keeps the streams open as long as it lives, so they end when every process has ended.
    """
    with DefaultSelector() as selector:
        for stream, output in streams.items():
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, EVENT_READ, output)
        while selector.get_map():
            is_over = token.is_expired()
            ready = selector.select(0 if is_over else _POLL_SECONDS)
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                key.data.add(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
            if is_over:
                return False
            if not ready and process.poll() is not None:
                return True  # outside Linux an orphan may live on and keep the stream open
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the supervisor, or kill its session if it is dead."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    # Any byte on its input stops the supervisor. Closing the pipe would not be enough: a fork of this process may hold
    # it open as well. OSError: the supervisor has ended already.
    with suppress(OSError):
        os.write(process.stdin.fileno(), supervisor.STOP)
    process.stdin.close()
    process.stdout.close()  # else the supervisor might block on a full pipe
    process.stderr.close()
    try:
        process.wait(_KILL_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.returncode < 0:
        supervisor.kill_session(process.pid)
