"""The middleware, bare and in frameworks: what is refused never reaches the app, what is served knows its caller."""

from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import pytest
from fastapi import FastAPI
from litestar import Litestar
from litestar import get as litestar_get
from litestar.middleware import DefineMiddleware
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from flyball.chain import Chain, ChainDepthMiddleware, current

Making = Callable[..., Chain]
BOUND_S = 60.0
DEPTH = "X-Flyball-Chain-Depth"


def told() -> dict[str, Any]:
    caller = current()
    return {} if caller is None else {"depth": caller.depth, "agent": caller.agent}


async def bare_app(scope: Any, receive: Any, send: Any) -> None:
    await JSONResponse(told())(scope, receive, send)


def bare(chain: Chain) -> Any:
    return ChainDepthMiddleware(bare_app, chain)


def starlette(chain: Chain) -> Any:
    async def endpoint(request: Any) -> JSONResponse:
        return JSONResponse(told())

    app = Starlette(routes=[Route("/", endpoint)])
    app.add_middleware(ChainDepthMiddleware, chain=chain)
    return app


def fastapi(chain: Chain) -> Any:
    app = FastAPI()
    app.add_middleware(ChainDepthMiddleware, chain=chain)
    app.get("/")(told)  # a `def` endpoint: FastAPI calls it in a thread
    return app


def litestar(chain: Chain) -> Any:
    @litestar_get("/")
    async def endpoint() -> dict[str, Any]:
        return told()

    return Litestar([endpoint], middleware=[DefineMiddleware(ChainDepthMiddleware, chain=chain)], openapi_config=None)


@pytest.fixture(params=[bare, starlette, fastapi, litestar], ids=lambda make: str(make.__name__))
def framework(request: pytest.FixtureRequest) -> Callable[[Chain], Any]:
    return request.param


def asked(app: Any, headers: Any) -> httpx2.Response:
    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        with anyio.fail_after(BOUND_S):
            async with httpx2.AsyncClient(transport=transport, base_url="http://b.example") as client:
                return await client.get("/", headers=headers)

    return anyio.run(ask)


def test_without_a_header_it_is_the_top_of_a_chain(framework: Callable[[Chain], Any], service: Making) -> None:
    response = asked(framework(service("b")), {})
    assert (response.status_code, response.json()) == (200, {"depth": 0, "agent": ""})
    assert current() is None


def test_what_is_served_knows_its_caller(framework: Callable[[Chain], Any], service: Making) -> None:
    response = asked(framework(service("b")), service("a").headers())
    assert (response.status_code, response.json()) == (200, {"depth": 1, "agent": "a"})


def test_a_refusal_is_json_and_says_nothing_of_trying_again(framework: Callable[[Chain], Any], service: Making) -> None:
    response = asked(framework(service("b", keys=None)), {DEPTH: "2", "X-Flyball-Chain-Root": "r"})
    assert response.status_code == 429
    assert response.headers["content-type"] == "application/json"
    assert "retry-after" not in response.headers
    body = response.json()
    assert body.pop("message")
    assert body == {
        "code": "chain_depth_exceeded",
        "data": {"status": 429, "chain_depth": 3, "ceiling": 3, "chain_root": "r"},
    }


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(DEPTH, "x")], 400),
        ([(DEPTH, "0"), (DEPTH, "0")], 400),
        ([(DEPTH, "0")], 401),
        ([("X-Flyball-Chain", "1.k.p.s")], 401),
    ],
)
def test_bad_input_never_reaches_the_app(
    framework: Callable[[Chain], Any], service: Making, headers: list[tuple[str, str]], status: int
) -> None:
    chain = service("b") if status == 401 else service("b", keys=None)
    response = asked(framework(chain), headers)
    assert response.status_code == status
    assert set(response.json()) == {"code", "message", "data"}
    assert ("www-authenticate" in response.headers) == (status == 401)


def test_a_service_without_a_chain_of_its_own_is_one_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_MAX_CHAIN_DEPTH", "1")
    app = ChainDepthMiddleware(bare_app)
    assert asked(app, {}).status_code == 200
    assert asked(app, {DEPTH: "0"}).status_code == 429


def messages_of(scope: dict[str, Any], chain: Chain) -> tuple[list[dict[str, Any]], bool]:
    """What the middleware sends, and whether it has read anything."""
    sent, read = list[dict[str, Any]](), False

    async def receive() -> dict[str, Any]:
        nonlocal read
        read = True
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "served", "caller": current()})

    anyio.run(ChainDepthMiddleware(app, chain), scope, receive, send)
    return sent, read


def test_no_body_is_read(service: Making) -> None:
    for headers in ([], [(DEPTH.encode(), b"9")]):
        _, read = messages_of({"type": "http", "headers": headers}, service("b"))
        assert not read


def test_a_websocket_is_refused_before_it_is_open(service: Making) -> None:
    scope: dict[str, Any] = {"type": "websocket", "headers": [(DEPTH.encode(), b"9")]}
    [closed], _ = messages_of(scope, service("b", keys=None))
    assert closed == {"type": "websocket.close", "code": 1008, "reason": "chain_depth_exceeded"}
    [start, body], _ = messages_of({**scope, "extensions": {"websocket.http.response": {}}}, service("b", keys=None))
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    assert b"chain_depth_exceeded" in body["body"]


def test_the_caller_is_current_for_its_request_only(service: Making) -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        assert current() is not None
        raise RuntimeError("the app is broken")

    async def one_after_the_other() -> None:
        with pytest.raises(RuntimeError, match="broken"):
            await ChainDepthMiddleware(failing, service("b"))({"type": "http", "headers": []}, None, None)
        assert current() is None

    anyio.run(one_after_the_other)


def test_what_is_no_request_passes_by(service: Making) -> None:
    assert messages_of({"type": "lifespan"}, service("b")) == ([{"type": "served", "caller": None}], False)
