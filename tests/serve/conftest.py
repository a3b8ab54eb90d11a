"""Real servers on this machine, and a client that speaks ASGI."""

import json
import socket
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
import uvicorn

BOUND_S = 60.0


@dataclass
class Answer:
    """What an app has said."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    whole: bool = False

    @property
    def record(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        rows = [part.split("\n") for part in self.body.decode().split("\n\n") if part and not part.startswith(":")]
        return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in rows]


@dataclass
class Request:
    """One request to an app. `gone` is when the client goes away."""

    body: Any = None
    path: str = "/chat"
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    parts: tuple[bytes, ...] | None = None
    """The body piece by piece; None behind the last is a client that never ends."""
    endless: bool = False
    root_path: str = ""
    gone: anyio.Event | None = None
    when_whole: Callable[[Answer], Awaitable[None]] | None = None
    """What the client does as soon as it has the whole answer."""

    async def sent_to(self, app: Any) -> Answer:
        answer, gone = Answer(), self.gone or anyio.Event()
        written = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        parts = [written] if self.parts is None else list(self.parts)

        async def receive() -> dict[str, Any]:
            if parts:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts) or self.endless}
            await (anyio.sleep_forever() if self.endless else gone.wait())
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                assert not answer.whole, "more is sent behind the end"
                answer.body += message.get("body", b"")
                answer.whole = not message.get("more_body", False)
                if answer.whole and self.when_whole is not None:
                    await self.when_whole(answer)

        given = {"content-type": "application/json", **self.headers}
        raw = [(name.encode(), value.encode()) for name, value in given.items()]
        scope = {"type": "http", "method": self.method, "path": self.path, "root_path": self.root_path, "headers": raw}
        await app(scope, receive, send)
        return answer


def _ask(app: Any, body: Any = None, **options: Any) -> Answer:
    async def bounded() -> Answer:
        with anyio.fail_after(BOUND_S):
            return await Request({"message": "Go."} if body is None else body, **options).sent_to(app)

    return anyio.run(bounded)


@pytest.fixture
def ask() -> Callable[..., Answer]:
    """Sends one request to an app and gives its answer."""
    return _ask


@pytest.fixture
def request_of() -> type[Request]:
    """Makes requests, for tests that send several in one event loop."""
    return Request


def _listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@contextmanager
def _served(app: Any, listening: socket.socket | None = None) -> Generator[str]:
    listening = listening or _listening()
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    with listening:
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(BOUND_S)
            assert not thread.is_alive(), "the server does not end"


@pytest.fixture(scope="session")
def served() -> Callable[..., Any]:
    """Serves an app on a port of this machine, for as long as its `with` block lasts; gives the URL.

    For apps that must know of each other before they are made, the socket may be given.
    """
    return _served


async def _live(receive: Any, send: Any) -> None:
    for _ in range(2):
        await send({"type": f"{(await receive())['type']}.complete"})


class _Silent:
    """A service that takes a request and never says anything."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        while (await receive())["type"] != "http.disconnect":
            pass


class _Saying:
    """A service that says to everybody what a test wants."""

    status = 0
    body = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        kind = b"text/event-stream" if self.body.startswith(b"data:") else b"application/json"
        await send({"type": "http.response.start", "status": self.status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": self.body})


@pytest.fixture(scope="session")
def saying() -> Generator[Callable[[int, bytes], str]]:
    """Has a service say something; gives its URL."""
    app = _Saying()
    with _served(app) as url:

        def say_it(status: int, body: bytes) -> str:
            app.status, app.body = status, body
            return url

        yield say_it


@pytest.fixture
def silent() -> _Silent:
    """A service that takes a request and never says anything."""
    return _Silent()
