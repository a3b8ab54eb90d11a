"""Calls of toolbox tools as a run makes them, a folder next to one that must never be seen, and a web site."""

import ssl
import zlib
from collections.abc import Callable, Iterator
from email.message import Message
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest

from flyball.outcome import Outcome
from flyball.request import Call
from flyball.tools import BoundedToolExecutor, Tool

SECRET = "outside-and-never-shown"

Made = Callable[..., Outcome]


class House(NamedTuple):
    """A root, and what is next to it."""

    root: Path
    outside: Path


@pytest.fixture
def house(tmp_path: Path) -> House:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    (outside / "folder").mkdir()
    (outside / "folder" / "secret.txt").write_text(SECRET)
    return House(root, outside)


@pytest.fixture(scope="session")
def made() -> Callable[[list[Tool]], Made]:
    """What makes calls of some tools: `call = made(tools)`, then `call("read_file", path="a")`."""

    def with_tools(tools: list[Tool]) -> Made:
        executor = BoundedToolExecutor(tools)

        def call(name: str, **arguments: Any) -> Outcome:
            [outcome] = executor.execute(Call("c1", name, arguments))
            return outcome

        return call

    return with_tools


class Site:
    """A real server on this machine, with pages that behave and pages that do not."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.hosts: list[str] = []
        self.headers: list[Message] = []
        self.broken_off = Event()
        self.over = Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Page, self))
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


class _Page(BaseHTTPRequestHandler):
    def __init__(self, site: Site, *args: Any) -> None:
        self._site = site
        super().__init__(*args)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._site.hosts.append(self.headers["host"])
        self._site.headers.append(self.headers)
        name, _, rest = self.path[1:].partition("/")
        getattr(self, f"_{name}")(rest)

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _page(self, rest: str) -> None:
        self._send(200, b"<title>Socks</title><p>Warm &amp; cheap.", content_type="text/html", set_cookie="a=b")

    def _image(self, rest: str) -> None:
        self._send(200, b"\x89PNG\0", content_type="image/png")

    def _missing(self, rest: str) -> None:
        self._send(404, b"<h1>Not here</h1>", content_type="text/html")

    def _long(self, rest: str) -> None:
        self._send(200, b"x" * int(rest), content_type="text/plain")

    def _bomb(self, rest: str) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        body = b"".join(packer.compress(b" " * 2**20) for _ in range(32)) + packer.flush()
        self._send(200, body, content_type="text/plain", content_encoding="gzip")

    def _to(self, rest: str) -> None:
        self._send(302, b"this way", location=rest)

    def _round(self, rest: str) -> None:
        self._send(301, b"", location=f"/round/{int(rest) + 1}")

    def _slow(self, rest: str) -> None:
        """A drop now and then, until somebody has had enough."""
        try:
            self._send(200, b"", content_type="text/plain")
            while not self._site.over.wait(0.01):
                self.wfile.write(b".")
        except OSError:
            self._site.broken_off.set()

    def _silent(self, rest: str) -> None:
        self._site.over.wait(60)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def secure_site() -> Iterator[Site]:
    """The same over TLS, as page.example."""
    site = Site(Path(__file__).with_name("page.example.pem"))
    yield site
    site.close()
