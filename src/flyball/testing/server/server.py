"""The model server: its script, its received requests, and its threads."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol, Self, cast

from ..._internal.text import pluralize
from ...errors import UsageError
from ...wire import CHAT, GEMINI, ErrorReply, Wire, find_wire
from ...wire.bodies import Json
from .faults import Sendable, Sent, StatusReply, check_lines, resolve_line
from .reply import ConnectionFault, ResponseBody, build_draft

_PATHS = "/chat/completions or /responses or /messages or /models/NAME:generateContent"
_RESET = struct.pack("ii", 1, 0)
_HOST = "127.0.0.1"
_JOIN_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """Received request, with lower-case header names and parsed JSON body."""

    path: str
    headers: dict[str, str]
    body: Any


class ModelServer:
    """Server that answers each request with the next line of its script.

    It speaks OpenAI's, Anthropic's and Gemini's API, for tests of clients. It listens on this machine only, within its
    `with` block. `url` is the base of the paths `/v1/chat/completions`, `/v1/responses`, `/v1/messages` and
    `/v1beta/models/NAME:generateContent`. A request after the last line fails with a message that says so.
    """

    def __init__(self, *lines: Sendable) -> None:
        self.lines = check_lines(lines)
        self.requests: list[ReceivedRequest] = []
        """Received requests, oldest first."""
        self.connections = 0
        """Number of connections. It is lower than the number of requests if clients reuse connections."""
        self._loops = False
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._connections: set[socket.socket] = set()

    @classmethod
    def looping(cls, *lines: Sendable) -> ModelServer:
        """Create a server that starts over after its last line."""
        server = cls(*lines)
        if not lines:
            raise UsageError("ModelServer.looping needs at least one line")
        server._loops = True
        return server

    @property
    def url(self) -> str:
        """Base URL of the server."""
        if self._listener is None:
            raise UsageError("the model server is not open: use it in a with block")
        return f"http://{_HOST}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        if self._listener is not None:
            raise UsageError("the model server is already open: use one with block per server")
        self._closing.clear()
        self._listener = socket.create_server((_HOST, 0))
        self._listener_thread = _start_thread(self._listen, self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._closing.set()
        with listener, socket.create_connection(listener.getsockname()[:2], _JOIN_TIMEOUT_S):  # wakes the listener
            self._listener_thread.join(_JOIN_TIMEOUT_S)
        with self._lock:
            for connection in self._connections:
                _shut_down(connection)
        for thread in self._threads:
            thread.join(_JOIN_TIMEOUT_S)

    def receive_request(self, path: str, headers: dict[str, str], body: object) -> tuple[int, Sent | StatusReply]:
        """Record a request, and return its number and response."""
        with self._lock:
            number, count = len(self.requests), len(self.lines)
            self.requests.append(ReceivedRequest(path, headers, body))
        if number >= count and not self._loops:
            script = pluralize(count, "line")
            message = f"the script has {script}, but this is request {number + 1}: add one or use ModelServer.looping"
            return number, StatusReply(400, message)
        return number, resolve_line(self.lines[number % count])

    def answer_other(self, method: str, path: str, body: object) -> object:
        """Return the JSON document of a path that asks for no reply of a model. None means status 404."""
        return None

    def wait(self, seconds: float | None) -> None:
        """Wait for these seconds, or until the server closes."""
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
            self._threads = [*alive, _start_thread(self._serve, connection)]

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client went away, or the server closes
            try:
                Connection(connection, self)
            finally:
                with self._lock:
                    self._connections.discard(connection)


def _start_thread(target: Callable[[socket.socket], None], connection: socket.socket) -> threading.Thread:
    thread = threading.Thread(target=target, args=(connection,), name="flyball-model-server", daemon=True)
    thread.start()
    return thread


def _shut_down(connection: socket.socket) -> None:
    """Shut down a connection whose thread waits for a request or for its client."""
    with suppress(OSError):  # the client has closed it already
        connection.shutdown(socket.SHUT_RDWR)


class Host(Protocol):
    """Interface of the server for its connections."""

    def receive_request(self, path: str, headers: dict[str, str], body: object) -> tuple[int, Sent | StatusReply]:
        """Record a request, and return its number and response."""
        ...

    def answer_other(self, method: str, path: str, body: object) -> object:
        """Return the JSON document of a path that asks for no reply of a model. None means status 404."""
        ...

    def wait(self, seconds: float | None) -> None:
        """Wait for these seconds, or until the server closes."""
        ...


class Connection(BaseHTTPRequestHandler):
    """Handler that answers the requests of a connection in order."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, request: socket.socket, host: Host) -> None:
        self._host = host
        super().__init__(request, request.getpeername(), None)  # pyright: ignore[reportArgumentType]

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because a test reads its client's output."""

    def do_POST(self) -> None:
        """Read a request and answer it."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body: object = json.loads(raw)
        except ValueError:
            body = raw.decode("utf-8", "replace")
        path, _, query = self.path.partition("?")
        if find_wire(path) is None and self._answer_other(body):
            return
        number, line = self._host.receive_request(
            path, {name.lower(): value for name, value in self.headers.items()}, body
        )
        wire = find_wire(path)
        if wire is None:
            self._refuse(StatusReply(404, f"unknown path {path}; expected one with {_PATHS}"), CHAT)
        elif isinstance(line, StatusReply):
            self._refuse(line, wire)
        else:
            request = wire.parse_request(cast("Json", body) if isinstance(body, dict) else {}, path)
            is_array, draft = wire is GEMINI and "alt=sse" not in query, build_draft(line, number, request)
            self._reply(ResponseBody(line, draft, wire, stream=request.stream, is_array=is_array))

    def do_GET(self) -> None:
        """Answer with the document of the path, or 404. A websocket is refused with 426, so that clients use HTTP."""
        if "Upgrade" in self.headers:
            self._refuse(StatusReply(426, "this server has no websockets"), CHAT)
        elif not self._answer_other(None):
            self._refuse(StatusReply(404, f"unknown path {self.path}"), CHAT)

    def _answer_other(self, body: object) -> bool:
        document = self._host.answer_other(self.command, self.path.partition("?")[0], body)
        if document is not None:
            self._refuse(StatusReply(200, body=document), CHAT)
        return document is not None

    def _refuse(self, status: StatusReply, wire: Wire) -> None:
        body = (
            status.body
            if status.body is not None
            else wire.build_error(ErrorReply(status.status, status.message, status.code))
        )
        text, kind = (body, "text/html") if isinstance(body, str) else (json.dumps(body), "application/json")
        data = text.encode()
        self._send_headers(status.status, {"Content-Type": kind, "Content-Length": str(len(data))}, status.headers)
        self.wfile.write(data)

    def _reply(self, body: ResponseBody) -> None:
        try:
            if body.fails_before_headers:
                next(body.iter_pieces())
            headers = body.headers
            chunked = "Transfer-Encoding" in headers
            self._send_headers(200, headers, body.options.get("headers", {}))
            for piece in self._wait_for_pieces(body.iter_pieces()):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
        except ConnectionFault as fault:
            self._break_connection(fault)

    def _wait_for_pieces(self, pieces: Iterator[tuple[float, bytes]]) -> Iterator[bytes]:
        elapsed = 0.0
        for at, piece in pieces:
            self._host.wait(at - elapsed)
            elapsed = at
            if piece:
                yield piece

    def _send_headers(self, status: int, default_headers: dict[str, str], extra_headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        replaced = {name.lower() for name in extra_headers}
        headers = {name: value for name, value in default_headers.items() if name.lower() not in replaced} | dict(
            extra_headers
        )
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _break_connection(self, fault: ConnectionFault) -> None:
        self.close_connection = True
        if fault.fault == "hang":
            self._host.wait(None)
        elif fault.fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
