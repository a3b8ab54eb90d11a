"""One connection to a server: it hears requests, and answers as a line says."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Protocol, cast

from .anthropic_wire import AnthropicWire
from .body import Body, Break
from .faults import Sent, Status
from .openai_wire import OpenAIWire
from .reply import Json, Spoken, Wire

WIRES: Mapping[str, Wire] = {"/chat/completions": OpenAIWire(), "/messages": AnthropicWire()}
"""What a path ends with, and who is spoken to there."""

_RESET = struct.pack("ii", 1, 0)


class Host(Protocol):
    """What a connection needs of its server."""

    def hear(self, path: str, headers: dict[str, str], body: object) -> tuple[int, Sent | Status]:
        """Remember a request; give its number and what is said to it."""
        ...

    def wait(self, seconds: float | None) -> None:
        """Let time pass, at most until the server closes."""
        ...


class Connection(BaseHTTPRequestHandler):
    """Answers the requests of one connection, one behind the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, request: socket.socket, host: Host) -> None:
        self._host = host
        super().__init__(request, request.getpeername(), None)  # pyright: ignore[reportArgumentType]

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a test reads what its client says."""

    def do_POST(self) -> None:
        """Hear a request and answer it."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body: object = json.loads(raw)
        except ValueError:
            body = raw.decode("utf-8", "replace")
        path = self.path.partition("?")[0]
        number, line = self._host.hear(path, {name.lower(): value for name, value in self.headers.items()}, body)
        wire = next((wire for end, wire in WIRES.items() if path.endswith(end)), None)
        asked = cast("Json", body) if isinstance(body, dict) else {}
        if wire is None:
            self._refuse(
                Status(404, f"there is no {path} here; expected a path with {' or '.join(WIRES)}"), OpenAIWire()
            )
        elif isinstance(line, Status):
            self._refuse(line, wire)
        else:
            self._reply(Body(line, Spoken(line, number, asked), wire, stream=bool(asked.get("stream"))))

    def do_GET(self) -> None:
        """Say that nothing is to be got here."""
        self._refuse(Status(404, f"there is no {self.path} to get here"), OpenAIWire())

    def _refuse(self, status: Status, wire: Wire) -> None:
        body = status.body if status.body is not None else wire.error(status)
        text, kind = (body, "text/html") if isinstance(body, str) else (json.dumps(body), "application/json")
        data = text.encode()
        self._begin(status.status, {"Content-Type": kind, "Content-Length": str(len(data))}, status.headers)
        self.wfile.write(data)

    def _reply(self, body: Body) -> None:
        try:
            if body.breaks_at_once:
                next(body.pieces())
            headers = body.headers
            chunked = "Transfer-Encoding" in headers
            self._begin(200, headers, body.manner.get("headers", {}))
            for piece in self._in_time(body.pieces()):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
        except Break as broken:
            self._break(broken)

    def _in_time(self, pieces: Iterator[tuple[float, bytes]]) -> Iterator[bytes]:
        passed = 0.0
        for at, piece in pieces:
            self._host.wait(at - passed)
            passed = at
            if piece:
                yield piece

    def _begin(self, status: int, ours: dict[str, str], given: Mapping[str, str]) -> None:
        self.send_response_only(status)
        replaced = {name.lower() for name in given}
        headers = {name: value for name, value in ours.items() if name.lower() not in replaced} | dict(given)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _break(self, broken: Break) -> None:
        self.close_connection = True
        if broken.fault == "hang":
            self._host.wait(None)
        elif broken.fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
