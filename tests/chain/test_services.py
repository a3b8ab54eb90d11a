"""Three services in one process, whose agents call each other: what arrives where, and what is refused."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from flyball import Agent, Limits, tool
from flyball.chain import Caller, Chain, ChainDepthMiddleware, current
from flyball.testing import ScriptedModel, call, say

Making = Callable[..., Chain]
BOUND_S = 60.0


class Service:
    """An agent behind HTTP that asks the next one, and notes who has called it."""

    def __init__(self, chain: Chain, next_: str, **limits: Any) -> None:
        self.chain, self.next, self.limits = chain, next_, limits
        self.callers: list[Caller] = []
        self.client: httpx2.AsyncClient | None = None
        self.app = Starlette(routes=[Route("/chat", self.chat, methods=["POST"])])
        self.app.add_middleware(ChainDepthMiddleware, chain=chain)

    async def chat(self, request: Any) -> JSONResponse:
        caller = current()
        assert caller is not None
        self.callers.append(caller)

        @tool
        async def ask_the_next() -> str:
            assert self.client is not None
            response = await self.client.post(f"http://{self.next}.example/chat")
            return f"{response.status_code} {response.text}"

        model = ScriptedModel(call("ask_the_next"), say("done"))
        result = await Agent(model=model, tools=[ask_the_next], limits=Limits(**self.limits)).arun("go")
        return JSONResponse({"heard": result.tool_results[0].text, "turns": result.turns})


class Network(httpx2.AsyncBaseTransport):
    """Brings a request to the service of that host, in this process."""

    def __init__(self, services: dict[str, Service]) -> None:
        self.services = {name: httpx2.ASGITransport(app=service.app) for name, service in services.items()}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self.services[request.url.host.partition(".")[0]].handle_async_request(request)


def asked(services: dict[str, Service]) -> httpx2.Response:
    """The answer of the first of them."""

    async def ask() -> httpx2.Response:
        async with AsyncExitStack() as stack:
            network = Network(services)
            for service in services.values():
                hooks = {"request": [service.chain.ahook]}
                client = httpx2.AsyncClient(transport=network, event_hooks=hooks)
                service.client = await stack.enter_async_context(client)
            outside = await stack.enter_async_context(httpx2.AsyncClient(transport=network))
            with anyio.fail_after(BOUND_S):
                return await outside.post("http://a.example/chat")

    return anyio.run(ask)


@pytest.mark.parametrize(("ceiling", "code"), [(3, "chain_depth_exceeded"), (4, "chain_cycle_detected")])
def test_a_chain_that_comes_back_is_refused_where_it_must_be(service: Making, ceiling: int, code: str) -> None:
    ring = {"a": "b", "b": "c", "c": "a"}
    services = {name: Service(service(name, ceiling=ceiling), to, turns=20) for name, to in ring.items()}
    response = asked(services)
    assert response.status_code == 200
    assert "429" in response.text
    assert code in response.text
    assert [len(one.callers) for one in services.values()] == [1, 1, 1]


def test_depth_grows_and_all_else_shrinks_at_each_hop(service: Making) -> None:
    ring = {"a": "b", "b": "c", "c": "a"}
    services = {name: Service(service(name), to, turns=20, tokens=90_000) for name, to in ring.items()}
    asked(services)
    top, first, second = (one.callers[0] for one in services.values())
    assert (top.depth, first.depth, second.depth) == (0, 1, 2)
    assert top.root == first.root == second.root
    assert second.path == ("a@a.example", "b@b.example")
    assert second.deadline.at < first.deadline.at < top.deadline.at
    assert second.left["turns"] < first.left["turns"] < 20
    assert second.left["tokens"] < first.left["tokens"] < 90_000


def test_a_service_that_may_do_more_does_no_more_than_the_chain_leaves(service: Making) -> None:
    services = {"a": Service(service("a"), "b", turns=3), "b": Service(service("b"), "c", turns=90)}
    services["c"] = Service(service("c"), "a", turns=90)
    asked(services)
    b, c = services["b"].callers[0], services["c"].callers[0]
    assert b.left == {"turns": 0}
    assert (c.envelope is not None, c.left) == (True, {"turns": 0})
