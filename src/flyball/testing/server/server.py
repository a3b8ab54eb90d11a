"""The server itself: a script, what it heard, and the threads that serve it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from ...errors import ConfigError
from .connection import Connection
from .faults import Sendable, Sent, Status, sendable, told

_HOST = "127.0.0.1"
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Heard:
    """A request that came in: headers with small letters, the body read from JSON."""

    path: str
    headers: dict[str, str]
    body: Any


class ModelServer:
    """Says its lines over HTTP, one for each request, on OpenAI's wire and on Anthropic's; for tests of clients.

    It listens on this machine only, from the beginning of its `with` block to its end; `url` is what the paths
    `/v1/chat/completions` and `/v1/messages` come behind. Past its last line a request fails and says so.
    """

    def __init__(self, *lines: Sendable) -> None:
        self.lines = sendable(lines)
        self.requests: list[Heard] = []
        """What it was asked, oldest first."""
        self.connections = 0
        """How many times somebody connected; fewer than requests where connections are used again."""
        self._loops = False
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._connections: set[socket.socket] = set()

    @classmethod
    def looping(cls, *lines: Sendable) -> ModelServer:
        """One that begins again behind its last line."""
        server = cls(*lines)
        if not lines:
            raise ConfigError("script", "no line", "at least one line to say again and again")
        server._loops = True
        return server

    @property
    def url(self) -> str:
        """Where it listens."""
        if self._listener is None:
            raise ConfigError("model server", "not open", "a with block around what asks it")
        return f"http://{_HOST}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        if self._listener is not None:
            raise ConfigError("model server", "open already", "one with block for each server")
        self._closing.clear()
        self._listener = socket.create_server((_HOST, 0))
        self._watch = _started(self._listen, self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._closing.set()
        with listener, socket.create_connection(listener.getsockname()[:2], _PATIENCE_S):  # wakes who listens
            self._watch.join(_PATIENCE_S)
        with self._lock:
            for connection in self._connections:
                _hang_up(connection)
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    def hear(self, path: str, headers: dict[str, str], body: object) -> tuple[int, Sent | Status]:
        """Remember a request; give its number and what is said to it."""
        with self._lock:
            number, count = len(self.requests), len(self.lines)
            self.requests.append(Heard(path, headers, body))
        if number >= count and not self._loops:
            script = "1 line" if count == 1 else f"{count} lines"
            message = f"the script has {script}, and this is request {number + 1}; add one, or use ModelServer.looping"
            return number, Status(400, message)
        return number, told(self.lines[number % count])

    def wait(self, seconds: float | None) -> None:
        """Let time pass, at most until the server closes."""
        if seconds is None or seconds > 0:
            self._closing.wait(seconds)

    def _listen(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            if self._closing.is_set():
                connection.close()
                return
            with self._lock:
                self.connections += 1
                self._connections.add(connection)
            alive = [thread for thread in self._threads if thread.is_alive()]
            self._threads = [*alive, _started(self._serve, connection)]

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client went away, or the server closes
            try:
                Connection(connection, self)
            finally:
                with self._lock:
                    self._connections.discard(connection)


def _started(work: Callable[[socket.socket], None], given: socket.socket) -> threading.Thread:
    thread = threading.Thread(target=work, args=(given,), name="flyball-model-server", daemon=True)
    thread.start()
    return thread


def _hang_up(connection: socket.socket) -> None:
    """End a connection whose thread waits for the next request, or for its client to read."""
    with suppress(OSError):  # its client was faster
        connection.shutdown(socket.SHUT_RDWR)
