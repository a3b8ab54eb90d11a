"""The hooks of HTTP clients: the headers are on each request, and on no other host than the one that was meant."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import anyio
import httpx
import httpx2
import pytest

from flyball import Limits
from flyball.chain import Caller, Chain, serving

Making = Callable[..., Chain]
BOUND_S = 60.0
VALUE, DEPTH = "X-Flyball-Chain", "X-Flyball-Chain-Depth"


class Server(ThreadingHTTPServer):
    """Answers everything, redirects `/to` where it is told, and keeps the headers of every request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[dict[str, str]] = []
        self.target = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.seen.append(dict(self.headers.items()))
        self.send_response(307 if self.path == "/to" else 200)
        if self.path == "/to":
            self.send_header("location", server.target)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@contextmanager
def served() -> Generator[Server]:
    with Server() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(BOUND_S)


def get_sync(library: Any, chain: Chain, url: str, **options: Any) -> None:
    with library.Client(event_hooks={"request": [chain.hook]}, follow_redirects=True, trust_env=False) as client:
        client.get(url, **options)


def get_async(library: Any, chain: Chain, url: str, **options: Any) -> None:
    async def get() -> None:
        hooks = {"request": [chain.ahook]}
        with anyio.fail_after(BOUND_S):
            async with library.AsyncClient(event_hooks=hooks, follow_redirects=True, trust_env=False) as client:
                await client.get(url, **options)

    anyio.run(get)


@pytest.fixture(params=["httpx2", "httpx2 async", "httpx", "httpx async"])
def get(request: pytest.FixtureRequest) -> Callable[..., None]:
    library, _, way = str(request.param).partition(" ")
    module = {"httpx": httpx, "httpx2": httpx2}[library]
    return partial(get_async if way else get_sync, module)


def test_every_request_has_the_headers_of_the_chain(get: Callable[..., None], service: Making) -> None:
    with served() as server:
        get(service("a"), server.url)
    found = service("b").check(server.seen[0])
    assert isinstance(found, Caller)
    assert (found.agent, found.depth, found.signed) == ("a", 1, True)


def test_who_makes_the_request_cannot_override_them(get: Callable[..., None], service: Making) -> None:
    a, b = service("a"), service("b")
    caller = b.check(a.headers(within=Limits(turns=3).open()))
    assert isinstance(caller, Caller)
    own = {"x-flyball-chain": "mine", "X-FLYBALL-CHAIN-DEPTH": "0", "X-Datamachine-Chain-Depth": "0"}
    with served() as server, serving(caller, b):
        get(b, server.url, headers=own)
    [seen] = server.seen
    found = service("c").check(seen)
    assert isinstance(found, Caller)
    assert (found.depth, found.left) == (2, {"turns": 3})
    assert "datamachine" not in str(seen).lower()


def test_a_redirect_to_another_host_gets_none_of_them(get: Callable[..., None], service: Making) -> None:
    with served() as first, served() as second:
        first.target = f"{second.url}/elsewhere"
        get(service("a"), f"{first.url}/to")
    assert VALUE in first.seen[0]
    assert [name for name in second.seen[0] if "chain" in name.lower()] == []


def test_a_redirect_on_the_same_host_keeps_them(get: Callable[..., None], service: Making) -> None:
    with served() as server:
        server.target = f"{server.url}/there"
        get(service("a"), f"{server.url}/to")
    assert len(server.seen) == 2
    assert isinstance(service("b").check(server.seen[1]), Caller)


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("http://a.example/x", "https://a.example/y", True),
        ("https://a.example/x", "http://a.example/y", False),
        ("http://a.example/x", "http://a.example:8080/y", False),
        ("http://a.example/x", "http://a.example.evil/y", False),
        ("http://a.example:80/x", "http://a.example/y", True),
    ],
)
def test_whose_headers_they_are_is_a_matter_of_scheme_host_and_port(
    service: Making, first: str, second: str, kept: bool
) -> None:
    chain = service("a")
    request = httpx2.Request("GET", first)
    chain.hook(request)
    redirected = httpx2.Request("GET", second, headers=request.headers, extensions=request.extensions)
    chain.hook(redirected)
    assert (VALUE in redirected.headers, DEPTH in redirected.headers) == (kept, kept)
