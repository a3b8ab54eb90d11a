"""ASGI middleware that checks each request as a hop before the service sees it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from .caller import POSITION, Position
from .chain import Chain
from .refusal import ChainRefusal

log = logging.getLogger(__name__)

App = Callable[[Any, Any, Any], Awaitable[None]]
"""ASGI application: scope, receive, send. Untyped, because each framework has its own types."""
_POLICY_VIOLATION = 1008


class ChainDepthMiddleware:
    """ASGI middleware for any framework.

    Use `app.add_middleware(ChainDepthMiddleware, chain=chain)`, or wrap the app. It does not read the body. While the
    app handles the request, `current()` returns its `Caller`, and every run inside uses the caller's budget. Without
    `chain`, it creates a `Chain` from the settings.
    """

    def __init__(self, app: App, chain: Chain | None = None) -> None:
        self.app = app
        self.chain = Chain() if chain is None else chain

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the request, or answer with the refusal."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        caller_or_refusal = self.chain.check(scope["headers"])
        if isinstance(caller_or_refusal, ChainRefusal):
            log.info("refused a hop: %s [%s]", caller_or_refusal.message, caller_or_refusal.code)
            await _send_refusal(caller_or_refusal, scope, send)
            return
        token = POSITION.set(Position(caller_or_refusal, self.chain))
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
