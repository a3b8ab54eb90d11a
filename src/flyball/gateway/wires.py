"""Wires of the gateway's routes, and the filter for usage that a program did not ask for."""

from __future__ import annotations

from functools import lru_cache

from ..wire.chat import ChatWire
from ..wire.formats import ANTHROPIC, CHAT, GEMINI, find_wire
from ..wire.stream import ReadEvent
from ..wire.wire import Wire
from .providers import PROVIDERS

_BY_PROVIDER = {"anthropic": ANTHROPIC, "google": GEMINI}
_OFFICIAL = frozenset(provider.url for provider in PROVIDERS)
_COMPATIBLE = ChatWire("max_tokens")
"""Chat completions of compatible servers, which may know only the older name of the limit."""


@lru_cache(maxsize=100)
def choose_wire(path: str, url: str) -> Wire:
    """Return the wire of a governed path of a provider at this URL."""
    wire = find_wire(path.removesuffix("/compact")) or CHAT
    return _COMPATIBLE if wire is CHAT and url not in _OFFICIAL else wire


def guess_wire(path: str) -> Wire:
    """Return the wire of a path of the gateway that may be refused, for the form of the error."""
    by_name = next((wire for name, wire in _BY_PROVIDER.items() if f"/{name}/" in path), CHAT)
    return find_wire(path) or by_name


def drop_usage(event: ReadEvent) -> ReadEvent | None:
    """Return an event of chat completions without what `include_usage` adds. Other events keep their bytes."""
    data = event.json
    if data is None or "usage" not in data:
        return event
    if data["usage"] is not None:  # a chunk about nothing else, or usage that the server sends unasked
        return event if data.get("choices") else None
    return event._replace(raw=b"", json={key: value for key, value in data.items() if key != "usage"})
