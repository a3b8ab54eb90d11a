"""Door of the gateway: which requests come in, and where they lead."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..wire.wire import Wire
from .address import TOKEN_HEADER, GatewayAddress
from .body import Refused
from .providers import Upstream
from .wires import choose_wire

LOOPBACK = "127.0.0.1"
_HOSTS = frozenset({LOOPBACK, "localhost"})
KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
"""Headers that carry keys."""


class Access(StrEnum):
    """Handling of a path."""

    GOVERNED = "governed"
    """Request to a model: it counts as a turn, and its tokens and money are limited."""
    COUNTED = "counted"
    """Request that costs tokens and is no turn, such as embeddings."""
    FREE = "free"
    """Request that costs nothing. It is passed on unread."""
    UNKNOWN = "unknown"
    """Request that could run agents unseen. It is refused, unless the program is only observed."""


@dataclass(frozen=True, slots=True)
class Route:
    """Destination of a request."""

    upstream: Upstream
    path: str
    """Path below the address of the upstream."""
    access: Access
    wire: Wire
    """Format of the bodies, and of errors."""


_GOVERNED = re.compile(
    r"/chat/completions|/responses(/compact)?|/messages|/models/[\w.-]+:(generateContent|streamGenerateContent)"
)
_FREE_POSTS = re.compile(
    r"/messages/count_tokens|/responses/input_tokens|/responses/[\w-]+/cancel|/conversations(/[\w/-]+)?|/files"
    r"|/moderations|/models/[\w.-]+:countTokens"
)
_OVERRIDES = frozenset({"x-http-method-override", "x-http-method", "x-method-override"})
"""Headers that some servers read the method from."""
_READS = frozenset({"GET", "HEAD", "DELETE"})


class Door:
    """Checks requests before anything of them is read."""

    def __init__(self, upstreams: Sequence[Upstream], token: str, port: int) -> None:
        self._upstreams = {upstream.name: upstream for upstream in upstreams}
        self._token = token
        self._port = port

    def build_address(self, upstream: Upstream) -> str:
        """Return the address of an upstream for the program.

        The token is in its stand-in keys, or in the path if the gateway holds no key of it.
        """
        secret = "" if upstream.keys else f"/{self._token}"
        version = upstream.version if upstream.shows_version else ""
        return f"http://{LOOPBACK}:{self._port}{secret}/{upstream.name}{version}"

    def build_address_for(self, upstream: Upstream) -> GatewayAddress:
        """Return what a program needs to reach an upstream, if it can send a header."""
        root = f"http://{LOOPBACK}:{self._port}"
        return GatewayAddress(
            root=root,
            url=f"{root}/{upstream.name}",
            full_url=self.build_address(upstream),
            version=upstream.version,
            token=self._token,
            stand_ins={key: stand_in for stand_in, key in upstream.keys.items()},
        )

    def check(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[Route, dict[str, str]]:
        """Return where a request leads, and the key headers to send. Raises `Refused`."""
        self._check_host(headers.get("host", ""))
        path = check_plain(scope["raw_path"], headers)
        token, path = (
            (True, path.removeprefix(f"/{self._token}")) if path.startswith(f"/{self._token}/") else (False, path)
        )
        _, name, *_ = path.split("/")
        upstream = self._upstreams.get(name)
        if upstream is None:
            raise Refused(404, "upstream_unknown", f"this gateway has {', '.join(self._upstreams)}, and not {name!r}")
        upstream, rest = upstream.split_path(path.removeprefix(f"/{name}"))
        token = token or secrets.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self._token.encode())
        keys = self._exchange_keys(upstream, headers, has_token=token)
        return find_route(upstream, scope["method"], rest), keys

    def _check_host(self, host: str) -> None:
        name, _, port = host.partition(":")
        if name not in _HOSTS or port != str(self._port):
            raise Refused(403, "host_refused", "the gateway answers requests to its own address only")

    def _exchange_keys(self, upstream: Upstream, headers: Mapping[str, str], *, has_token: bool) -> dict[str, str]:
        """Return the key headers with the real key, or refuse a request without a stand-in or the token."""
        sent = {name: headers[name] for name in KEY_HEADERS if name in headers}
        real: dict[str, str] = {}
        for name, value in sent.items():
            scheme, separator, key = value.rpartition(" ")
            if key in upstream.keys:
                real[name] = f"{scheme}{separator}{upstream.keys[key]}"
        if real:
            return real
        if not has_token:
            raise Refused(
                401, "key_refused", "this key is not the one that flyball exec gave to the program (see --pass-keys)"
            )
        return sent


def check_plain(raw_path: bytes, headers: Mapping[str, str]) -> str:
    """Return the path of a request without its query. Refuses websockets, and what could mean another request."""
    if "upgrade" in headers:
        raise Refused(426, "websocket_refused", "the gateway has no websockets: use HTTP requests")
    if not _OVERRIDES.isdisjoint(headers):
        raise Refused(403, "method_refused", "the method of the request may not be replaced by a header")
    path = raw_path.partition(b"?")[0].decode("latin-1")
    lowered = path.lower()
    if not path.startswith("/") or "/.." in path or "//" in path or "%2e" in lowered or "%2f" in lowered:
        raise Refused(403, "path_refused", "the path of the request is not plain")
    return path


def find_route(upstream: Upstream, method: str, path: str) -> Route:
    """Return the handling of a path. All that is not listed is unknown."""
    wire = choose_wire(path, upstream.url)
    if method == "POST" and _GOVERNED.fullmatch(path):
        return Route(upstream, path, Access.GOVERNED, wire)
    if method == "POST" and path == "/embeddings":
        return Route(upstream, path, Access.COUNTED, wire)
    if method in _READS or (method == "POST" and _FREE_POSTS.fullmatch(path)):
        return Route(upstream, path, Access.FREE, wire)
    return Route(upstream, path, Access.UNKNOWN, wire)
