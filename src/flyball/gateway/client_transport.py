"""Transport for clients of httpx and httpx2, sync and async, that hands their requests to the engine."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..errors import UsageError
from .pipe import Message, Pipe, PipeBroken

if TYPE_CHECKING:
    import httpx
    import httpx2

    class _AnyTransport(httpx2.BaseTransport, httpx2.AsyncBaseTransport, httpx.BaseTransport, httpx.AsyncBaseTransport):
        def handle_request(self, request: Any) -> Any: ...
        async def handle_async_request(self, request: Any) -> Any: ...
        def __enter__(self) -> Self: ...
        async def __aenter__(self) -> Self: ...

else:
    _AnyTransport = object  # both libraries call methods and look at no type, and httpx may not be installed

_LIBRARIES = frozenset({"httpx", "httpx2"})
_SETTLE_S = 5.0
"""Seconds to wait until a response that was closed early is counted."""

Submit = Callable[[Message, bytes], Pipe]


class ClientTransport(_AnyTransport):
    """Transport that one client or several may use. Closing a client leaves the run open."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit

    def handle_request(self, request: Any) -> Any:
        """Send a request of a sync client through the engine."""
        pipe = self._submit(_build_scope(request), request.read())
        exchange = ClientExchange(request, pipe)
        return exchange.build_response(exchange.read())

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request of an async client through the engine."""
        pipe = self._submit(_build_scope(request), await request.aread())
        exchange = ClientExchange(request, pipe)
        return exchange.build_response(await exchange.aread())

    def close(self) -> None:
        """Do nothing, because other clients may use the transport."""

    async def aclose(self) -> None:
        """Do nothing, because other clients may use the transport."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        pass


class ClientExchange:
    """Request of a client and its response, with the errors and types of the client's library."""

    def __init__(self, request: Any, pipe: Pipe) -> None:
        self._library = find_library(request)
        self._pipe = pipe
        timeouts: Any = request.extensions.get("timeout") or {}
        self._timeout_s: float | None = timeouts.get("read")

    def read(self) -> Message:
        """Return the next part of the response."""
        try:
            return self._pipe.read(self._timeout_s)
        except BaseException as error:  # also Ctrl-C: the engine must know that nobody waits
            self._pipe.leave()
            raise self._translate(error) from None

    async def aread(self) -> Message:
        """Return the next part of the response without blocking the event loop."""
        try:
            return await self._pipe.aread(self._timeout_s)
        except BaseException as error:
            self._pipe.leave()
            raise self._translate(error) from None

    def build_response(self, start: Message) -> Any:
        """Return the response whose first part is this one."""
        return self._library.Response(
            start["status"],
            headers=start["headers"],
            stream=_build_stream_type(self._library)(self),
            extensions={"http_version": b"HTTP/1.1"},
        )

    @property
    def is_complete(self) -> bool:
        """Whether the client has the whole response."""
        return self._pipe.is_complete

    def close(self) -> None:
        """Leave the response, and wait until it is counted."""
        if not self.is_complete:
            self._pipe.leave()
            self._pipe.wait_for_end(_SETTLE_S)

    async def aclose(self) -> None:
        """Leave the response, and wait until it is counted, without blocking the event loop."""
        if not self.is_complete:
            self._pipe.leave()
            await self._pipe.await_end(_SETTLE_S)

    def leave(self) -> None:
        """Leave the response without waiting."""
        self._pipe.leave()

    def _translate(self, error: BaseException) -> BaseException:
        if isinstance(error, TimeoutError):
            return self._library.ReadTimeout("the read timeout of the client is over")
        return self._library.RemoteProtocolError(str(error)) if isinstance(error, PipeBroken) else error


class ResponseStream:
    """Body of a response, for either library."""

    def __init__(self, exchange: ClientExchange) -> None:
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        while not self._exchange.is_complete:
            body = self._exchange.read().get("body", b"")
            if body:
                yield body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._exchange.is_complete:
            body = (await self._exchange.aread()).get("body", b"")
            if body:
                yield body

    def close(self) -> None:
        """Close the response. If it is not complete, it counts as for a client that left."""
        self._exchange.close()

    async def aclose(self) -> None:
        """Close the response. If it is not complete, it counts as for a client that left."""
        await self._exchange.aclose()

    def __del__(self) -> None:
        self._exchange.leave()


def find_library(request: Any) -> ModuleType:
    """Return the library of a request: httpx or httpx2."""
    for base in type(request).__mro__:
        name = base.__module__.partition(".")[0]
        if name in _LIBRARIES:
            return sys.modules[name]
    raise UsageError(f"the governed transport is for requests of httpx and httpx2, not of {type(request).__module__}")


@cache
def _build_stream_type(library: ModuleType) -> type[ResponseStream]:
    """Return the stream as a subclass of those of the library, which checks that."""
    bases = (ResponseStream, library.SyncByteStream, library.AsyncByteStream)
    return type("GovernedStream", bases, {})


def _build_scope(request: Any) -> Message:
    url = request.url
    return {
        "type": "http",
        "method": request.method,
        "scheme": url.scheme,
        "server": (url.raw_host.decode("ascii").strip("[]").lower(), url.port),
        "raw_path": url.raw_path.partition(b"?")[0],
        "query_string": url.query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
    }
