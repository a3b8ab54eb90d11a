"""A server that runs as a process of ours: its pipes as a session's streams, its last words, and its end.

The SDK has such a transport, too. This one keeps what the server writes to stderr instead of showing it, knows how the
process ended, never makes a cancel wait for a server that does not read, and takes half the time to stop one that will
not go.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

_MAX_CHARACTERS = 2_000
"""Characters that are shown."""
_MIN_SECRET_LENGTH = 4
"""Characters: what is shorter is in every other word, too."""


class OutputTail:
    """Keeps the end of what is written to it, however much that is. What is secret is not shown."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted(
            (secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH), key=len, reverse=True
        )
        self._buffer = bytearray()

    def write(self, data: bytes) -> None:
        """Add something."""
        self._buffer += data
        del self._buffer[: -8 * _MAX_CHARACTERS]

    @property
    def text(self) -> str:
        """The end of it."""
        return self.redact(self._buffer.decode("utf-8", "replace")).strip()[-_MAX_CHARACTERS:]

    def redact(self, text: str) -> str:
        """A text in which no secret can be read."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


_FLUSH_S = 0.5
"""For what was said last to be written: that a call is cancelled."""
_STOP_SECONDS = 1.0
"""For a server to go once its input is closed, and once more when it was told to; then it is killed."""
_REAP_S = 2.0
_POLL_SECONDS = 0.01
_MAX_BYTES = 64 * 1024 * 1024
"""Of one message; so much without the end of a line is none."""
_STREAM_ERRORS = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class ServerProcess:
    """How to start a server, and what became of it."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None, tail: OutputTail
    ) -> None:
        self.tail = tail
        self._command = command
        self._env = env
        self._cwd = cwd
        self._process: Process | None = None
        self._stderr_closed = anyio.Event()
        """Set when it will write nothing more to stderr."""

    async def describe_exit(self) -> str:
        """What there is to say of its end; for a moment it is waited for."""
        with anyio.move_on_after(_STOP_SECONDS):
            await self._stderr_closed.wait()
            while self._process is not None and self._process.returncode is None:
                await anyio.sleep(_POLL_SECONDS)
        code = None if self._process is None else self._process.returncode
        ended = "it answers no more" if code is None else f"it has ended, with {_describe_exit_code(code)}"
        words = self.tail.text
        return f"{ended}; its last words: {words}" if words else ended

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams]:
        """Start it, and stop it again: whatever is cancelled, and whatever it does, nothing of it is left."""
        process = self._process = await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        told, heard = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        say, said = anyio.create_memory_object_stream["SessionMessage"](inf)
        written = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process.stdout, told)
            tasks.start_soon(self._write, process.stdin, said, told, written)
            tasks.start_soon(self._read_stderr, process.stderr)
            try:
                yield heard, say
            finally:
                with anyio.CancelScope(shield=True):
                    heard.close()
                    say.close()
                    with anyio.move_on_after(_FLUSH_S):
                        await written.wait()
                    await self._stop(process)
                tasks.cancel_scope.cancel()
                for stream in (told, heard, say, said):
                    stream.close()

    async def _start(self) -> Process:
        with anyio.CancelScope(shield=True):  # what is started while somebody gives up would be nobody's
            return await anyio.open_process(self._command, env=dict(self._env), cwd=self._cwd, start_new_session=True)
        raise AssertionError("a shielded scope is left by what is in it")

    async def _read(self, stdout: ByteReceiveStream, incoming: MemoryObjectSendStream[Any]) -> None:
        """Hand on what the server says. What is no message is kept with its last words."""
        buffer, searched = bytearray(), 0
        with suppress(*_STREAM_ERRORS):
            while len(buffer) <= _MAX_BYTES:
                buffer += await stdout.receive()
                while (at := buffer.find(b"\n", searched)) >= 0:
                    message = self._parse_message(bytes(buffer[:at]))
                    del buffer[: at + 1]
                    searched = 0
                    if message is not None:
                        await incoming.send(message)
                searched = len(buffer)
        incoming.close()
        with suppress(*_STREAM_ERRORS):  # who cannot get rid of its output does not see that its input was closed
            while True:
                await stdout.receive()

    def _parse_message(self, line: bytes) -> SessionMessage | None:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self.tail.write(line + b"\n")
            return None

    async def _write(
        self,
        stdin: ByteSendStream,
        outgoing: MemoryObjectReceiveStream[Any],
        incoming: MemoryObjectSendStream[Any],
        written: anyio.Event,
    ) -> None:
        try:
            async for one in outgoing:
                await stdin.send(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        except _STREAM_ERRORS:
            incoming.close()  # it may live, but it hears nothing more: who waits for an answer must know
        finally:
            written.set()

    async def _read_stderr(self, stderr: ByteReceiveStream) -> None:
        try:
            with suppress(*_STREAM_ERRORS):
                while True:
                    self.tail.write(await stderr.receive())
        finally:
            self._stderr_closed.set()

    async def _stop(self, process: Process) -> None:
        """Close its input, tell it to go, kill it; and what it has started, with it."""
        assert process.stdin is not None
        with suppress(*_STREAM_ERRORS):
            await process.stdin.aclose()
        if not await _wait_for_exit(process, _STOP_SECONDS):
            _send_signal(process, "SIGTERM")
            await _wait_for_exit(process, _STOP_SECONDS)
        _send_signal(process, "SIGKILL")
        await _wait_for_exit(process, _REAP_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                with suppress(*_STREAM_ERRORS):
                    await stream.aclose()
        # Asyncio's transport would stay open as long as anybody has an end of a pipe; there is no public way to it.
        transport = getattr(getattr(process, "_process", None), "_transport", None)
        if transport is not None:
            transport.close()


async def _wait_for_exit(process: Process, seconds: float) -> bool:
    """Whether it ends in time. Waiting for it would on asyncio also wait for whoever has inherited its pipes."""
    late = anyio.current_time() + seconds
    while process.returncode is None and anyio.current_time() < late:
        await anyio.sleep(_POLL_SECONDS)
    return process.returncode is not None


def _send_signal(process: Process, name: str) -> None:
    """To all of its group, which is its own; where there are no groups, to the process alone."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, getattr(signal, name))
        elif process.returncode is None:
            process.terminate()


def _describe_exit_code(code: int) -> str:
    try:
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
