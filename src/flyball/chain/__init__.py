"""Chains of calls between agents of different services: counted, signed and limited.

chain = Chain(name="planner", host="planner.example.org", keys=Keys("a secret of at least 16 characters"))
app = ChainDepthMiddleware(app, chain)                    # incoming requests
client = httpx2.Client(event_hooks={"request": [chain.hook]})     # outgoing; `chain.ahook` for async clients
"""

from typing import TYPE_CHECKING

from .caller import Caller, current, serving
from .chain import Chain, headers
from .http import ChainDepthMiddleware
from .keys import Keys
from .refusal import ChainRefusal

__all__ = ["Caller", "Chain", "ChainDepthMiddleware", "ChainRefusal", "Keys", "current", "headers", "serving"]


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        from .._deprecated import find_old_name

        return globals().setdefault(name, find_old_name(__name__, name))
