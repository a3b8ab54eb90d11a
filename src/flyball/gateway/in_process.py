"""Governed transport: the gateway's engine for model clients of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload
from weakref import finalize

import httpx2

from ..errors import UsageError
from ..result import Result
from .client_transport import ClientTransport
from .engine import Engine
from .pipe import Message, Pipe
from .transport_options import TransportOptions

if TYPE_CHECKING:
    from types import TracebackType

    from ..budget.run_budget import TurnBudget

C = TypeVar("C")


class transport(TransportOptions, ClientTransport):  # noqa: N801  (reads as a verb: `with transport(limits) as governed`)
    """Govern the model clients of this process: `with flyball.gateway.transport(limits) as governed`.

    Give its clients to the libraries: `OpenAI(http_client=governed.http_client())`. Clients of your own take it as
    their transport: `httpx2.Client(transport=governed)`, with httpx or httpx2, sync or async. All requests belong to
    one run. It ends with the `with` block, or with `end()`. All methods are thread-safe.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._engine: Engine | None = None
        self._lock = threading.Lock()
        self._depth = 0
        """Number of `with` blocks that are open: those of clients are inside the first one."""
        ClientTransport.__init__(self, self._submit_to_engine)

    @overload
    def http_client(self) -> httpx2.Client: ...
    @overload
    def http_client(self, kind: Callable[..., C]) -> C: ...
    def http_client(self, kind: Callable[..., Any] = httpx2.Client) -> Any:
        """Return a governed client of this class: a sync or async one of httpx or httpx2, or a subclass."""
        return kind(transport=ClientTransport(self._submit_to_engine))

    def async_http_client(self) -> httpx2.AsyncClient:
        """Return a governed async client of httpx2. For httpx, use `http_client(httpx.AsyncClient)`."""
        return self.http_client(httpx2.AsyncClient)

    def end(self) -> None:
        """End the run. Requests in progress end as for clients that left. A second call changes nothing."""
        self._end(None)

    @property
    def result(self) -> Result:
        """Result of the run, after its end."""
        result = None if self._engine is None else self._engine.desk.run.result
        if result is None:
            raise UsageError("the result of a transport is available after its with block, or after end()")
        return result

    @property
    def envelope(self) -> TurnBudget:
        """Budgets and deadlines of the run, such as for `govern(within=...)`."""
        return self._open().desk.run.envelope

    @property
    def hints(self) -> list[str]:
        """Sentences for the user about the run. With `observe`, what would have been refused."""
        if self._engine is None:
            return []
        desk = self._engine.desk
        return desk.content.hints if desk.observer is None else desk.observer.notes

    def __enter__(self) -> Self:
        if self._open().has_ended:
            raise UsageError("the run of this transport has ended: open another transport")
        with self._lock:
            self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        with self._lock:
            self._depth -= 1
            is_inner = self._depth > 0
        if not is_inner:
            self._end(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None = None, error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:  # fmt: skip
        self.__exit__(kind, error, traceback)

    def _open(self) -> Engine:
        """Return the engine of the run, and start it with the first use."""
        with self._lock:
            if self._engine is None:
                # Without a reference to this object, so that a forgotten one ends its run, at the latest at the exit.
                own: dict[str, Any] = {option.name: getattr(self, option.name) for option in fields(TransportOptions)}
                engine = Engine(TransportOptions(**own))
                engine.start()
                self._engine = engine
                finalize(self, engine.end)
            return self._engine

    def _submit_to_engine(self, scope: Message, body: bytes) -> Pipe:
        return self._open().submit(scope, body)

    def _end(self, error: BaseException | None) -> None:
        if self._engine is not None:
            self._engine.end(error)
