"""Gateway: a loopback server that governs the requests of programs to their model providers."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, Self

from .._internal.distribution import format_install
from ..errors import UsageError
from ..result import Result
from .address import GatewayAddress
from .conversations import Chat
from .desk import Desk
from .door import LOOPBACK, Door
from .environment import build_environment
from .gateway_app import GatewayApp
from .gateway_options import GatewayOptions
from .providers import find_upstreams
from .serving_thread import ServingThread
from .upstream import open_upstream_client

_PACKAGES = ("uvicorn", "brotli", "zstandard")
_TOKEN_BYTES = 24
_BACKLOG = 2_048
_INTERRUPTED = 130
"""Exit code of a program that was ended by Ctrl-C."""


class Gateway:
    """Server on this machine that governs the requests of programs to model providers, within its `with` block.

    `environment` is what the programs need. After the block, `result` is that of the run.
    """

    def __init__(self, options: GatewayOptions) -> None:
        missing = [name for name in _PACKAGES if find_spec(name) is None]
        if missing:
            raise UsageError(
                f"the gateway needs the extra 'gateway' ({', '.join(missing)}): {format_install('gateway')}"
            )
        self._options = options
        named, variables = options.upstreams, options.variables
        self._upstreams = find_upstreams(
            options.environment, named, variables, options.own_keys, holds_keys=not options.pass_keys
        )
        self._desk: Desk | None = None
        self._door: Door | None = None
        self._thread: ServingThread | None = None
        self._raised: BaseException | None = None
        """Exception that left the `with` block."""
        self.exit_code: int | None = None
        """Exit code of the program, for the result of the run. None if it did not end by itself."""
        self.changes: Sequence[str] = ()
        """Phrases about what was done to the program's command, for people."""
        self.ended_by: str | None = None
        """`signal` if a person ended the program, `gateway` if the gateway did, None if it ended by itself."""

    @property
    def desk(self) -> Desk:
        """Desk that admits the requests."""
        if self._desk is None:
            raise UsageError("the gateway is not open: use it in a with block")
        return self._desk

    @property
    def environment(self) -> dict[str, str]:
        """Environment for the programs to govern."""
        return build_environment(self._options.environment, self._upstreams, self._require_door())

    @property
    def addresses(self) -> dict[str, GatewayAddress]:
        """Gateway in the place of each provider, by its name."""
        door = self._require_door()
        return {upstream.name: door.build_address_for(upstream) for upstream in self._upstreams}

    @property
    def result(self) -> Result:
        """Result of the run, after the `with` block."""
        result = self.desk.run.result
        if result is None:
            raise UsageError("the result of a gateway is available after its with block")
        return result

    @property
    def chats(self) -> list[Chat]:
        """Conversations of the run."""
        return self.desk.conversations.all

    def _require_door(self) -> Door:
        if self._door is None:
            raise UsageError("the gateway is not open: use it in a with block")
        return self._door

    def __enter__(self) -> Self:
        # With the protocol named, asyncio sets TCP_NODELAY. Without it each request would take 40 ms longer.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.bind((LOOPBACK, 0))
            listener.listen(_BACKLOG)
            self._door = Door(self._upstreams, secrets.token_hex(_TOKEN_BYTES), listener.getsockname()[1])
            self._desk = Desk(self._options)
            self._desk.plan.is_used = self._options.is_plan
        except BaseException:
            listener.close()
            raise
        self._desk.run.start(self._options.rules, self._options.metadata)
        self._thread = ServingThread("flyball-gateway", partial(self._serve, listener))
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._raised = error
        self.close()

    def close(self) -> None:
        """Close the server and end the run. A second call changes nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.stop()
        if self.ended_by == "signal" or self.exit_code == _INTERRUPTED:
            self.desk.finish(KeyboardInterrupt())
        else:
            self.desk.finish(f"the program ended with exit code {self.exit_code}" if self.exit_code else self._raised)

    @asynccontextmanager
    async def _serve(self, listener: socket.socket) -> AsyncGenerator[None]:
        import uvicorn

        from .quiet_protocol import QuietProtocol

        with listener:
            async with open_upstream_client() as client:
                app: Any = GatewayApp(self._options, self.desk, self._require_door(), client)
                config = uvicorn.Config(
                    app,
                    http=QuietProtocol,
                    ws="none",
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    date_header=False,
                    proxy_headers=False,
                    timeout_keep_alive=300,
                    timeout_graceful_shutdown=1,
                )
                config.load()
                server = uvicorn.Server(config)
                server.lifespan = config.lifespan_class(config)
                server.force_exit = True
                await server.startup(sockets=[listener])
                yield  # server.serve() would look every 0.1 s
                await server.shutdown(sockets=[listener])
