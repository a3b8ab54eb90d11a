"""Addresses of providers, which tell where the requests of a client in this process lead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from ..wire.formats import ANTHROPIC, GEMINI, find_wire
from ..wire.wire import Wire
from .body import Refused
from .door import Route, check_plain, find_route
from .providers import PROVIDERS, Upstream, check_name, check_url, find_upstreams

Origin = tuple[str, str, int | None]
"""Scheme, host and port."""

_PORTS = {"https": 443, "http": 80}
_VERSIONS = (
    "",
    *sorted({version for provider in PROVIDERS for version in (provider.version, *provider.other_versions)}),
)
_OWNERS: Mapping[str, str] = {ANTHROPIC.name: "anthropic", GEMINI.name: "google"}
"""Providers whose wires these are. The others are those of OpenAI."""
_KNOWN_NAMES = frozenset(provider.name for provider in PROVIDERS)


class ProviderUrls:
    """Checks requests by their URL. One to an address that is not known is refused, because nothing could govern it."""

    def __init__(self, environment: Mapping[str, str], named: Mapping[str, str]) -> None:
        """Know the providers that the user named by URL, those of the environment, and the official ones."""
        where = "transport, upstreams"
        self._places: list[tuple[Origin, str, Upstream]] = []
        """Origin and path of each upstream. The first of equal ones counts."""
        for name, url in named.items():
            address = check_url(where, url)
            for version in _VERSIONS:
                self._add(Upstream(check_name(where, name), f"{address}{version}"))
        for upstream in (*_find_known(environment), *_find_known({})):
            self._add(upstream)

    def check(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[Route, dict[str, str]]:
        """Return where a request leads. It keeps its own keys. Raises `Refused`."""
        path = check_plain(scope["raw_path"], headers)
        host, port = scope["server"]
        origin = (scope["scheme"], host, port or _PORTS.get(scope["scheme"]))
        fitting = [
            (len(prefix), upstream)
            for place, prefix, upstream in self._places
            if place == origin and path.startswith(f"{prefix}/")
        ]
        if not fitting:
            raise Refused(403, "upstream_unknown", _describe_unknown(scope["scheme"], host, port, path))
        longest = max(length for length, _ in fitting)
        upstream = _choose([upstream for length, upstream in fitting if length == longest], find_wire(path))
        return find_route(upstream, scope["method"], path[longest:]), {}

    def _add(self, upstream: Upstream) -> None:
        parts = urlsplit(upstream.url)
        origin = (parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme])
        self._places.append((origin, parts.path, upstream))


def _find_known(environment: Mapping[str, str]) -> Iterator[Upstream]:
    for upstream in find_upstreams(environment, {}, {}, holds_keys=False):
        yield upstream
        yield from map(upstream.at_version, upstream.other_versions)


def _choose(upstreams: list[Upstream], wire: Wire | None) -> Upstream:
    """Return the upstream at an address. A server that stands for several providers is the one of the wire."""
    owner = "openai" if wire is None else _OWNERS.get(wire.name, "openai")
    named = next((upstream for upstream in upstreams if upstream.name not in _KNOWN_NAMES), None)
    return named or next((upstream for upstream in upstreams if upstream.name == owner), upstreams[0])


def _describe_unknown(scheme: str, host: str, port: int | None, path: str) -> str:
    address = f"{scheme}://{host}" if port is None else f"{scheme}://{host}:{port}"
    labels = [label for label in host.split(".") if label.isalpha()]
    name = labels[-2] if len(labels) > 1 else "name"
    base = path.rpartition("/chat/completions")[0] or path.rpartition("/")[0]
    return (
        f"{address}{path} is not at the address of a known provider, so the request is refused: name the provider, "
        f'such as transport(..., upstreams={{"{name}": "{address}{base}"}})'
    )
