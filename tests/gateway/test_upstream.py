"""Requests of the gateway to the provider."""

import httpx2
import pytest

from flyball.gateway.door import Access, Route
from flyball.gateway.inbound import Inbound
from flyball.gateway.providers import Upstream
from flyball.gateway.upstream import build_upstream_request, open_upstream_client, select_headers
from flyball.wire.formats import CHAT

HEADERS = {
    "host": "127.0.0.1:1",
    "connection": "keep-alive",
    "content-type": "application/json",
    "x-flyball-run": "1",
    "user-agent": "program/1",
    "x-own": "a, b",
}


@pytest.mark.parametrize("headers", [HEADERS, {}], ids=["a program's headers", "no headers"])
@pytest.mark.parametrize("cookie", [None, "given by the provider"])
def test_request_to_the_provider_is_the_one_that_the_client_would_build(
    headers: dict[str, str], cookie: str | None
) -> None:
    upstream = Upstream("openai", "https://api.example.com:8443/v1", "/v1")
    route, content = Route(upstream, "/chat/completions", Access.GOVERNED, CHAT), b'{"model": "gpt-4o"}'
    body = {"model": "gpt-4o"}
    keys = {"authorization": "Bearer real"}
    inbound = Inbound(route, headers, content, body, CHAT.parse_request(body), "?beta=a%20b", keys)
    client = open_upstream_client()
    if cookie is not None:
        client.cookies.set("session", cookie, domain="api.example.com")
    request = build_upstream_request(client, inbound, content)
    expected = client.build_request(
        "POST", f"{upstream.url}{route.path}?beta=a%20b", content=content, headers=select_headers(headers, keys)
    )
    assert _describe(request) == _describe(expected)
    assert request.headers["accept-encoding"] == "identity"
    assert request.read() == content


def _describe(request: httpx2.Request) -> tuple[object, ...]:
    return request.method, request.url, request.extensions, sorted(request.headers.multi_items())
