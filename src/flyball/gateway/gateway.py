"""Gateway: a loopback server that governs the requests of programs to their model providers."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, Self

import httpx2

from .._internal.distribution import format_install
from ..errors import UsageError
from ..result import Result
from .conversations import Chat
from .desk import Desk
from .door import LOOPBACK, Door
from .endpoint import Endpoint
from .environment import build_environment
from .gateway_app import GatewayApp
from .gateway_options import GatewayOptions
from .providers import find_upstreams

_PACKAGES = ("uvicorn", "brotli", "zstandard")
_TOKEN_BYTES = 24
_START_S = 30.0
_CONNECT_S = 30.0
_BACKLOG = 2_048


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
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] | None = None
        """Function that ends the server, from any thread. None before it has started."""
        self._started = threading.Event()
        self._error: BaseException | None = None
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
        if self._door is None:
            raise UsageError("the gateway is not open: use it in a with block")
        return build_environment(self._options.environment, self._upstreams, self._door)

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Gateway in the place of each provider, by its name."""
        if self._door is None:
            raise UsageError("the gateway is not open: use it in a with block")
        return {upstream.name: self._door.build_endpoint(upstream) for upstream in self._upstreams}

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

    def __enter__(self) -> Self:
        # With the protocol named, asyncio sets TCP_NODELAY. Without it each request would take 40 ms longer.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.bind((LOOPBACK, 0))
            listener.listen(_BACKLOG)
            self._door = Door(self._upstreams, secrets.token_hex(_TOKEN_BYTES), listener.getsockname()[1])
            self._desk = Desk(self._options)
        except BaseException:
            listener.close()
            raise
        self._desk.run.start(self._options.rules, self._options.metadata)
        self._thread = threading.Thread(target=self._run, args=(listener,), name="flyball-gateway", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_S) or self._error is not None:
            raise self._error or UsageError("the gateway did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the server and end the run. A second call changes nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._stop is not None:
            with suppress(RuntimeError):  # the event loop ended by an error
                self._stop()
        thread.join(_START_S)
        self.desk.finish(self.exit_code, ended_by=self.ended_by)

    def _run(self, listener: socket.socket) -> None:
        try:
            with listener:
                asyncio.run(self._serve(listener))
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _serve(self, listener: socket.socket) -> None:
        import uvicorn

        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        timeout = httpx2.Timeout(None, connect=_CONNECT_S)
        async with httpx2.AsyncClient(limits=limits, timeout=timeout, follow_redirects=False) as client:
            assert self._desk is not None
            assert self._door is not None
            app: Any = GatewayApp(self._options, self._desk, self._door, client)
            config = uvicorn.Config(
                app,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # it warns of each websocket that is refused
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=300,
                timeout_graceful_shutdown=1,
            )
            config.load()
            server, stopped = uvicorn.Server(config), asyncio.Event()
            server.lifespan = config.lifespan_class(config)
            server.force_exit = True
            await server.startup(sockets=[listener])
            self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, stopped.set)
            self._started.set()
            await stopped.wait()  # server.serve() would look every 0.1 s
            await server.shutdown(sockets=[listener])
