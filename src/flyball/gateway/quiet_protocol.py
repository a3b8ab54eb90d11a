"""Protocol of the gateway's server."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Transport
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from .joined_writes import JoinedWrites

_SILENT = logging.getLogger("flyball.gateway.server")
_SILENT.setLevel(logging.CRITICAL)


class QuietProtocol(H11Protocol):
    """HTTP/1.1 that logs nothing and joins writes.

    Otherwise each client that leaves, such as by Esc, would print a traceback. The logger is its own, because the
    process may have another server.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = _SILENT

    def connection_made(self, transport: Transport) -> None:
        """Begin a connection, whose writes are joined."""
        super().connection_made(JoinedWrites(transport, self.loop.call_soon))
