"""Outgoing calls: a chain's headers on the requests of an HTTP client, and on no other host than the one it meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_ORIGIN_KEY = "flyball_chain_for"
"""Where a request remembers whom it was made for; a client copies that into the requests of redirects."""
_PREFIXES = ("x-flyball-chain", "x-datamachine-chain")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def attach_headers(request: Any, headers: Callable[[], Mapping[str, str]]) -> None:
    """Put the headers on a request of httpx2 or httpx; whoever made the request has no say in them."""
    for name in [name for name in request.headers if name.lower().startswith(_PREFIXES)]:
        del request.headers[name]
    here = _origin(request.url)
    meant = request.extensions.setdefault(_ORIGIN_KEY, here)
    if here == meant or _is_upgrade(meant, here):
        request.headers.update(headers())


def _origin(url: Any) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _DEFAULT_PORTS.get(url.scheme)


def _is_upgrade(intended: tuple[str, str, int | None], actual: tuple[str, str, int | None]) -> bool:
    """The same host, now with TLS."""
    return intended == ("http", actual[1], 80) and actual == ("https", actual[1], 443)
