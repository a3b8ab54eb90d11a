"""A process that is bounded: in time, in what it may say, and in what it leaves behind, which is nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import BinaryIO, cast

from ..budget.deadline import DeadlineToken
from ..errors import CommandFailed
from . import supervisor
from .text_page import MAX_CHARACTERS, clean_text

_POLL_SECONDS = 0.05
_KILL_S = 10.0
"""More than the supervisor takes to kill everything."""
_CHUNK_BYTES = 65_536


class ProcessOutput:
    r"""What a process says on one stream: the beginning and the end of it, however long it is.

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
        """Hear more."""
        self._size += len(chunk)
        if len(self._start) < self._half:
            room = self._half - len(self._start)
            self._start, chunk = self._start + chunk[:room], chunk[room:]
        self._end = (self._end + chunk)[-self._half :]

    @property
    def text(self) -> str:
        """All of it, or both ends."""
        left_out = self._size - len(self._start) - len(self._end)
        if not left_out:
            return clean_text(self._start + self._end).rstrip()
        return f"{clean_text(self._start)}\n… ({left_out:,} bytes left out) …\n{clean_text(self._end)}".rstrip()


def run_command(command: Sequence[str], *, cwd: str, env: Mapping[str, str], token: DeadlineToken) -> str:
    """Run a command, without input. What it said, if it ended well; else CommandFailed, which tells the same.

    When the token expires it is killed. In any case nothing that it has started is left; see `supervisor`.
    """
    seconds = token.remaining_s()
    watcher = [sys.executable, "-I", "-S", supervisor.__file__, *command]
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            watcher, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise CommandFailed(f"it could not be started: {error}", "") from None
    out, err = ProcessOutput(), ProcessOutput()
    try:
        in_time = _read_output(
            process, {cast("BinaryIO", process.stdout): out, cast("BinaryIO", process.stderr): err}, token
        )
    finally:
        _stop(process)
    said = "\n".join(part for part in (out.text, f"stderr:\n{err.text}" if err.text else "") if part)
    if not in_time:
        raise CommandFailed(f"no end within {seconds:.3g} s; it was killed, with all it had started", said)
    if process.returncode < 0:
        raise CommandFailed("the process that watched it was killed, and so was what was found of it", said)
    if process.returncode != 0:
        raise CommandFailed(f"exit code {process.returncode}", said)
    return f"exit code 0\n{said}" if said else "exit code 0, no output"


def _read_output(
    process: subprocess.Popen[bytes], streams: Mapping[BinaryIO, ProcessOutput], token: DeadlineToken
) -> bool:
    """Hear all that is said; False once the token has expired.

    The supervisor has the streams open as long as it lives, so they end when all is over.
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
                return True  # where the system has no adoption of orphans, one may have the stream and live on
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Have the supervisor kill everything, or do what can be done without it; then nothing of it is left here."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with suppress(
        OSError
    ):  # unless it has ended, it reads this; a fork of ours may have the pipe, too, and keep it open
        os.write(process.stdin.fileno(), b".")
    process.stdin.close()
    process.stdout.close()  # or it might wait for somebody to hear what it has to say
    process.stderr.close()
    try:
        process.wait(_KILL_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.returncode < 0:
        supervisor.kill_session(process.pid)
