"""Chain headers on the requests of an HTTP client, kept off redirects to other hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_ORIGIN_KEY = "flyball_chain_for"
"""Request extension with the original target; clients copy it into redirected requests."""
_PREFIXES = (
    "x-flyball-chain", "x-datamachine-chain", "x-datamachine-caller", "x-agents-api-chain", "x-agents-api-caller",
)  # fmt: skip
_DEFAULT_PORTS = {"http": 80, "https": 443}


def attach_headers(request: Any, headers: Callable[[], Mapping[str, str]]) -> None:
    """Set the chain headers on a request of httpx2 or httpx.

    Chain headers already on the request are removed. A redirect to another host gets none.
    """
    for name in [name for name in request.headers if name.lower().startswith(_PREFIXES)]:
        del request.headers[name]
    origin = _origin(request.url)
    intended = request.extensions.setdefault(_ORIGIN_KEY, origin)
    if origin == intended or _is_upgrade(intended, origin):
        request.headers.update(headers())


def _origin(url: Any) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _DEFAULT_PORTS.get(url.scheme)


def _is_upgrade(intended: tuple[str, str, int | None], actual: tuple[str, str, int | None]) -> bool:
    """Check whether a redirect leads to the same host with TLS."""
    return intended == ("http", actual[1], 80) and actual == ("https", actual[1], 443)
