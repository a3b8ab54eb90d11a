"""The middleware: every request to a service is checked as a hop of a chain before anything of the service runs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from .caller import POSITION, Position
from .chain import Chain
from .refusal import ChainRefusal

log = logging.getLogger(__name__)

App = Callable[[Any, Any, Any], Awaitable[None]]
"""Scope, receive, send: every framework has types of its own for these three."""
_POLICY_VIOLATION = 1008


class ChainDepthMiddleware:
    """Pure ASGI, for any framework: `app.add_middleware(ChainDepthMiddleware, chain=chain)`, or around the app.

    It reads no body. What it serves has its `Caller` as the current one, which every run inside takes by itself.
    Without a chain it is one of the settings.
    """

    def __init__(self, app: App, chain: Chain | None = None) -> None:
        self.app = app
        self.chain = Chain() if chain is None else chain

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the request, or answer with the refusal."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        found = self.chain.check(scope["headers"])
        if isinstance(found, ChainRefusal):
            log.info("refused a hop: %s: %s", found.code, found.message)
            await _send_refusal(found, scope, send)
            return
        token = POSITION.set(Position(found, self.chain))
        try:
            await self.app(scope, receive, send)
        finally:
            POSITION.reset(token)


async def _send_refusal(refusal: ChainRefusal, scope: Any, send: Any) -> None:
    kind = "http.response"
    if scope["type"] == "websocket":
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": refusal.code})
            return
        kind = "websocket.http.response"
    body = refusal.body
    fields = {**refusal.headers, "content-length": str(len(body))}
    pairs = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": f"{kind}.start", "status": refusal.status, "headers": pairs})
    await send({"type": f"{kind}.body", "body": body})
