"""Formats of the bodies that the gateway reads and writes."""

from __future__ import annotations

from ..wire.anthropic import MessagesWire
from ..wire.chat import ChatWire
from ..wire.responses import ResponsesWire
from ..wire.wire import Wire
from .providers import PROVIDERS, Upstream

_OFFICIAL = frozenset(provider.url for provider in PROVIDERS)
_COMPATIBLE = ChatWire("max_tokens")
"""Format of compatible servers, which may know only the older name of the limit."""
WIRES: dict[str, Wire] = {"chat": ChatWire(), "responses": ResponsesWire(), "messages": MessagesWire()}


def find_wire(name: str, upstream: Upstream) -> Wire:
    """Return the format of a route's bodies."""
    return _COMPATIBLE if name in ("", "chat") and upstream.url not in _OFFICIAL else WIRES[name or "chat"]
