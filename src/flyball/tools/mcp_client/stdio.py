"""MCP servers as child processes.

The SDK has such a transport, too. Compared with that of mcp 2.3, this one

- knows the exit code of the server, for errors. The SDK keeps the process to itself;
- bounds the size of a message, and reads it in linear time: 48 MB in one line take 1.1 s, and 31 s in the SDK;
- starts the server under the supervisor of the toolbox's commands, which kills every process that the server has
  started, also after `setsid`, and also if Flyball dies;
- never makes a cancel wait for a server that does not read, and stops one that does not exit in half the time.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ..._internal import supervisor
from ..._internal.text import redact
from ...person import escape_control_characters

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
_SIGNAL_EXIT_CODE = 128
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
        self._control_fd: int | None = None
        """Write end of the supervisor's control pipe. None without a supervisor."""
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
        if not hasattr(os, "fork"):  # no supervisor either
            return await self._open(self._command)
        _check_program(self._command[0], self._env, self._cwd)
        control_read, self._control_fd = os.pipe()
        try:
            return await self._open(supervisor.build_command(control_read, self._command), (control_read,))
        except BaseException:
            self._close_control()
            raise
        finally:
            os.close(control_read)

    async def _open(self, command: Sequence[str], pass_fds: Sequence[int] = ()) -> Process:
        with anyio.CancelScope(shield=True):  # a cancel during the start would leave a process without an owner
            return await anyio.open_process(
                command, env=dict(self._env), cwd=self._cwd, start_new_session=True, pass_fds=pass_fds
            )
        raise AssertionError("a shielded scope is left by what is in it")

    def _send_control(self, process: Process, order: bytes) -> None:
        with suppress(OSError):  # it has ended
            if self._control_fd is not None:
                os.write(self._control_fd, order)
            elif process.returncode is None:
                process.terminate()

    def _close_control(self) -> None:
        if self._control_fd is not None:
            os.close(self._control_fd)
            self._control_fd = None

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
        """Close the input, then terminate the server, then kill it with every process that it has started."""
        assert process.stdin is not None
        with suppress(*_STREAM_ERRORS):
            await process.stdin.aclose()
        if not await _wait_for_exit(process, _STOP_SECONDS):
            self._send_control(process, supervisor.TERMINATE)
            if not await _wait_for_exit(process, _STOP_SECONDS):
                self._send_control(process, supervisor.STOP)
                await _wait_for_exit(process, _REAP_S)
        if process.returncode is None:  # the supervisor was stopped, or cannot kill what it has started
            process.kill()
            await _wait_for_exit(process, _REAP_S)
        self._close_control()
        if process.returncode is None or process.returncode < 0:
            await anyio.to_thread.run_sync(supervisor.kill_session, process.pid)
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


def _check_program(program: str, env: Mapping[str, str], cwd: str | Path | None) -> None:
    """Raise OSError if the program does not exist, because the supervisor starts in any case."""
    path = os.path.join(cwd or "", program) if os.sep in program else program  # noqa: PTH118
    if shutil.which(path, path=env.get("PATH")) is None:
        number = errno.EACCES if os.path.isfile(path) else errno.ENOENT  # noqa: PTH113
        raise OSError(number, os.strerror(number), program)


def _describe_exit_code(code: int) -> str:
    """Describe an exit code. The supervisor adds 128 to the number of the signal that killed the server."""
    number = -code if code < 0 else code - _SIGNAL_EXIT_CODE
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}" if code < 0 else f"exit code {code}"


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
        """Return the last output, redacted and without control characters."""
        text = self.redact(self._buffer.decode("utf-8", "replace")).strip()[-_MAX_CHARACTERS:]
        return escape_control_characters(text)[-_MAX_CHARACTERS:]

    def redact(self, text: str) -> str:
        """Replace all secrets in a text by `***`."""
        return redact(text, self._secrets, _MIN_SECRET_LENGTH)
