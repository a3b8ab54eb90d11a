"""Requests to the provider, and its responses as they come."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache

import httpx2

from .body import MAX_BODY_BYTES
from .inbound import Inbound

HOP_HEADERS = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade", "host", "content-length", "accept-encoding", "expect",
    }
)  # fmt: skip
"""Headers of one connection, which are not passed on."""
_HOP_NAMES = frozenset(name.encode() for name in HOP_HEADERS | {"content-encoding"})  # an encoded body is decoded
_CONNECT_S = 30.0


def open_upstream_client(verify: ssl.SSLContext | bool = True, proxy: str | None = None) -> httpx2.AsyncClient:
    """Return a client for requests to providers. Deadlines are those of the run, so only connecting has a timeout."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    timeout = httpx2.Timeout(None, connect=_CONNECT_S)
    return httpx2.AsyncClient(limits=limits, timeout=timeout, follow_redirects=False, verify=verify, proxy=proxy)


def build_upstream_request(client: httpx2.AsyncClient, inbound: Inbound, content: bytes) -> httpx2.Request:
    """Return the request to the provider: the program's headers, with the real key.

    `client.build_request` would give the same in four times the time.
    """
    url, host = _parse_url(f"{inbound.route.upstream.url}{inbound.route.path}{inbound.query}")
    sent = select_headers(inbound.headers, inbound.keys)
    added = [(name, value) for name, value in client.headers.items() if name not in sent]
    return httpx2.Request(
        "POST",
        url,
        headers=[("host", host), *added, *sent.items(), ("content-length", str(len(content)))],
        cookies=client.cookies,
        stream=httpx2.ByteStream(content),
        extensions={"timeout": client.timeout.as_dict()},
    )


@lru_cache(maxsize=100)
def _parse_url(url: str) -> tuple[httpx2.URL, str]:
    """Return an address with its host as in a header. A run has few of them."""
    parsed = httpx2.URL(url)
    return parsed, parsed.netloc.decode("ascii")


def select_headers(headers: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, str]:
    """Return the headers to send to the provider."""
    kept = {
        name: value
        for name, value in headers.items()
        if name not in HOP_HEADERS and name != "content-encoding" and not name.startswith("x-flyball-")
    }
    return {**kept, **keys, "accept-encoding": "identity"}


def copy_headers(response: httpx2.Response) -> list[tuple[bytes, bytes]]:
    """Return the headers of the provider's reply for the program."""
    return [(key, value) for name, value in response.headers.raw if (key := name.lower()) not in _HOP_NAMES]


def is_stream(response: httpx2.Response, inbound: Inbound) -> bool:
    """Check whether a reply is a stream of events."""
    return inbound.is_array or response.headers.get("content-type", "").startswith("text/event-stream")


def iter_bytes(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the body as it comes, decoded if the provider encoded it in spite of our wish."""
    return response.aiter_bytes() if "content-encoding" in response.headers else response.aiter_raw()


async def read_bounded(response: httpx2.Response) -> bytes:
    """Return the whole body. Raises DecodingError if it is too long."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in iter_bytes(response):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise httpx2.DecodingError(f"it has more than {MAX_BODY_BYTES:,} bytes")
    return b"".join(chunks)
