"""Engine for clients of this process: the app of the gateway, on a thread of its own instead of a server."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from .._internal.workers import copy_context_for_thread
from ..errors import UsageError, describe_error
from ..history.stored_run import StoredRun
from ..wire.bodies import ErrorReply
from ..wire.formats import CHAT, find_wire
from .body import encode_json
from .desk import Desk
from .gateway_app import GatewayApp
from .pipe import Message, Pipe
from .provider_urls import ProviderUrls
from .serving_thread import ServingThread
from .transport_options import TransportOptions
from .upstream import open_upstream_client

_AGENT = "transport"
"""Name of such runs in a store."""
_END_S = 5.0
"""Seconds for requests in progress to be counted when the run ends."""
_REFUSED_STATUS = 403


class Engine:
    """Engine of one run on a thread of its own, which answers the requests of clients in this process."""

    def __init__(self, options: TransportOptions) -> None:
        self._options = options
        self._urls = ProviderUrls(os.environ, options.upstreams)
        self.desk = Desk(options)
        self._stored = StoredRun(options.store, options.run_id)
        self._pid = os.getpid()
        self._thread = ServingThread("flyball-transport", self._serve)
        self._lock = threading.Lock()
        self._app: GatewayApp | None = None
        self._pipes: dict[asyncio.Task[None], Pipe] = {}
        """Requests in progress. Only the thread uses it."""
        self.has_ended = False
        """True once the run ends, so that requests are refused."""

    def start(self) -> None:
        """Start the run. Raises ConfigError for an unknown address of a store."""
        from ..store import Start

        options, at = self._options, self._options.clock.wall()
        self._thread.start()
        try:
            self._stored.start(Start(at=at, agent=_AGENT, session=options.session_id, metadata=options.metadata))
            self.desk.run.start(options.rules, options.metadata)
        except BaseException:
            self._thread.stop()
            raise

    def submit(self, scope: Message, body: bytes) -> Pipe:
        """Begin to answer a request, on the thread of the engine."""
        if self._thread.is_current:
            raise UsageError("a rule or a sink of the run cannot wait for a request of the same run")
        pipe = Pipe(scope, body, self._thread.loop)
        if os.getpid() != self._pid:
            _refuse(pipe, "the transport was opened before this process was forked: open one in each process")
            return pipe
        with self._lock:
            if not self.has_ended:
                self._thread.loop.call_soon_threadsafe(self._begin, pipe, context=copy_context_for_thread())
                return pipe
        _refuse(pipe, "the run of this transport has ended: open another transport")
        return pipe

    def end(self, error: BaseException | None = None) -> None:
        """End the run. Requests in progress end as for clients that left. A second call changes nothing."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self.has_ended:
                return
            self.has_ended = True
        self._thread.stop()
        self.desk.finish(error)
        result = self.desk.run.result
        if result is not None:
            self._stored.finish(result)
            result.store_error = None if self._stored.error is None else describe_error(self._stored.error)

    @asynccontextmanager
    async def _serve(self) -> AsyncGenerator[None]:
        async with open_upstream_client(self._options.verify, self._options.proxy) as client:
            self._app = GatewayApp(self._options, self.desk, self._urls, client)
            yield
            await self._end_requests()

    async def _end_requests(self) -> None:
        for pipe in self._pipes.values():
            if not pipe.is_complete:
                pipe.leave()
        if self._pipes:
            _, late = await asyncio.wait(self._pipes, timeout=_END_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _begin(self, pipe: Pipe) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(pipe))
        self._pipes[task] = pipe
        task.add_done_callback(self._pipes.pop)

    async def _answer(self, pipe: Pipe) -> None:
        assert self._app is not None
        error = "the response broke off: the provider closed the connection, or the run has ended"
        try:
            await self._app(pipe.scope, pipe.receive, pipe.send)
        except ConnectionAbortedError:
            pass
        except Exception as unexpected:
            error = f"internal error of flyball: {type(unexpected).__name__}: {unexpected}"
        finally:
            pipe.end(error)


def _refuse(pipe: Pipe, message: str) -> None:
    """Answer a request with an error that clients do not retry."""
    wire = find_wire(pipe.scope["raw_path"].decode("latin-1")) or CHAT
    body = encode_json(wire.build_error(ErrorReply(_REFUSED_STATUS, f"flyball: {message}", "run_ended")))
    headers = [(b"content-type", b"application/json"), (b"x-should-retry", b"false")]
    pipe.answer(_REFUSED_STATUS, headers, body)
