"""MCP servers as child processes.

The SDK has such a transport, too. Compared with that of mcp 2.3, this one

- knows the exit code of the server, for errors. The SDK keeps the process to itself;
- bounds the size of a message, and reads it in linear time: 48 MB in one line take 1.1 s, and 31 s in the SDK;
- also kills processes that a server has left behind, although it exited in time;
- never makes a cancel wait for a server that does not read, and stops one that does not exit in half the time.
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

from ..._internal.text import redact

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

_MAX_CHARACTERS = 2_000
"""Maximum number of characters shown."""
_MIN_SECRET_LENGTH = 4
"""Characters. Shorter secrets are not redacted, since they occur in ordinary words."""

_FLUSH_S = 0.5
"""Seconds to write the last messages, such as the cancel of a call."""
_STOP_SECONDS = 1.0
"""Seconds for a server to exit after its input was closed, and again after SIGTERM. Then it is killed."""
_REAP_S = 2.0
_POLL_SECONDS = 0.01
_MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of one message. More bytes without a newline end the session."""
_STREAM_ERRORS = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class ServerProcess:
    """Server process with its pipes, last output and exit code."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None, tail: OutputTail
    ) -> None:
        self.tail = tail
        self._command = command
        self._env = env
        self._cwd = cwd
        self._process: Process | None = None
        self._stderr_closed = anyio.Event()
        """Set when the server has closed stderr."""

    async def describe_exit(self) -> str:
        """Wait a moment for the exit and describe it."""
        with anyio.move_on_after(_STOP_SECONDS):
            await self._stderr_closed.wait()
            while self._process is not None and self._process.returncode is None:
                await anyio.sleep(_POLL_SECONDS)
        code = None if self._process is None else self._process.returncode
        ended = "it no longer answers" if code is None else f"it ended with {_describe_exit_code(code)}"
        last_output = self.tail.text
        return f"{ended}; its last output: {last_output}" if last_output else ended

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams]:
        """Start the server, yield its streams, and stop it.

        The process and its children are stopped in every case, including a cancel.
        """
        process = self._process = await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        incoming_send, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        outgoing, outgoing_receive = anyio.create_memory_object_stream["SessionMessage"](inf)
        written = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process.stdout, incoming_send)
            tasks.start_soon(self._write, process.stdin, outgoing_receive, incoming_send, written)
            tasks.start_soon(self._read_stderr, process.stderr)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    incoming.close()
                    outgoing.close()
                    with anyio.move_on_after(_FLUSH_S):
                        await written.wait()
                    await self._stop(process)
                tasks.cancel_scope.cancel()
                for stream in (incoming_send, incoming, outgoing, outgoing_receive):
                    stream.close()

    async def _start(self) -> Process:
        with anyio.CancelScope(shield=True):  # a cancel during the start would leave a process without an owner
            return await anyio.open_process(self._command, env=dict(self._env), cwd=self._cwd, start_new_session=True)
        raise AssertionError("a shielded scope is left by what is in it")

    async def _read(self, stdout: ByteReceiveStream, incoming: MemoryObjectSendStream[Any]) -> None:
        """Forward the server's messages. Other output goes to the tail."""
        buffer, searched = bytearray(), 0
        with suppress(*_STREAM_ERRORS):
            while len(buffer) <= _MAX_BYTES:
                buffer += await stdout.receive()
                while (newline := buffer.find(b"\n", searched)) >= 0:
                    message = self._parse_message(bytes(buffer[:newline]))
                    del buffer[: newline + 1]
                    searched = 0
                    if message is not None:
                        await incoming.send(message)
                searched = len(buffer)
        incoming.close()
        # Keep draining: a server that is blocked on a full pipe would not notice that its input was closed.
        with suppress(*_STREAM_ERRORS):
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
            async for item in outgoing:
                await stdin.send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        except _STREAM_ERRORS:
            incoming.close()  # the server may live, but reads no more: pending requests must fail
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
        """Close the input, then signal the whole process group."""
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
        # asyncio's transport stays open while any process holds an end of a pipe. There is no public way to close it.
        transport = getattr(getattr(process, "_process", None), "_transport", None)
        if transport is not None:
            transport.close()


async def _wait_for_exit(process: Process, seconds: float) -> bool:
    """Poll until the process exits; return False after the timeout.

    On asyncio `process.wait()` would also wait for every process that inherited its pipes.
    """
    deadline = anyio.current_time() + seconds
    while process.returncode is None and anyio.current_time() < deadline:
        await anyio.sleep(_POLL_SECONDS)
    return process.returncode is not None


def _send_signal(process: Process, name: str) -> None:
    # The process leads its own group. On systems without process groups, signal the process alone.
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


class OutputTail:
    """Bounded buffer of the last output, with secrets redacted."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self._buffer = bytearray()

    def write(self, data: bytes) -> None:
        """Append output and drop the oldest bytes beyond the limit."""
        self._buffer += data
        del self._buffer[: -8 * _MAX_CHARACTERS]

    @property
    def text(self) -> str:
        """Return the last output, redacted."""
        return self.redact(self._buffer.decode("utf-8", "replace")).strip()[-_MAX_CHARACTERS:]

    def redact(self, text: str) -> str:
        """Replace all secrets in a text by `***`."""
        return redact(text, self._secrets, _MIN_SECRET_LENGTH)
