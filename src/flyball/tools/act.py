"""One call under way: made in the event loop or in a worker, and ended exactly once."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio

from ..clock import Clock
from ..deadline import DeadlineToken
from ..event import LateResultDropped, ToolEnded, ToolStarted
from ..jsonable import jsonable
from ..outcome import Cancelled, Denied, Failure, Outcome, Reason, Success, Timeout
from ..recorder import Teller
from ..request import Call
from ..worker import Worker, WorkerPool, call_soon, is_being_cancelled
from .context import State, ToolContext
from .excerpt import content_of, excerpt
from .gate import Gate
from .tool import Tool


class Act:
    """A call that was prepared: allowed, checked and bounded. Its gate has the outcome."""

    __slots__ = (
        "_bound",
        "_cap_s",
        "_clock",
        "_started",
        "_teller",
        "call",
        "gate",
        "key",
        "state",
        "token",
        "tool",
        "values",
    )

    def __init__(
        self,
        call: Call,
        tool: Tool,
        values: dict[str, Any],
        *,
        key: str,
        token: DeadlineToken,
        state: State,
        clock: Clock,
        teller: Teller | None,
    ) -> None:
        self.call = call
        self.tool = tool
        self.values = values
        self.key = key
        self.token = token
        self.state = state
        self._cap_s = token.remaining_s()
        self.gate = Gate()
        self._teller = teller
        self._clock = clock
        self._started = clock.now()
        self._bound: Callable[[], Any] | None = None

    def told(self, context: ToolContext) -> None:
        """Give the tool the context that it asks for."""
        self._bound = self.tool.bound(self.values, context)

    @property
    def outcome(self) -> Outcome | None:
        """What it came to, or None while it is under way."""
        return self.gate.outcome

    async def perform(self, workers: WorkerPool) -> None:
        """Make the call. It raises only when it is cancelled, and has its outcome then too."""
        bound = self._bound or self.tool.bound(self.values)
        try:
            if self.tool.is_async:
                self._tell_start()
                await self._in_the_loop(bound)
            elif worker := await self._worker(workers):
                self._tell_start()
                await self._in_a_worker(bound, worker, workers)
            else:
                message = f"no worker came free in time; {workers.hung} hang"
                self._close(Denied(reason=Reason.OVERLOAD, message=message, **self._header()))
        finally:
            if self.outcome is None:
                self._close(Cancelled(**self._header()))
            self.token.cancel()
            self._tell_end()

    async def _worker(self, workers: WorkerPool) -> Worker | None:
        """A worker as soon as one is free; none once the call's time is over or too many hang."""
        while (worker := workers.take()) is None:
            if workers.exhausted or self.token.is_expired():
                return None
            await anyio.sleep(0.001)
        return worker

    async def _in_the_loop(self, bound: Callable[[], Any]) -> None:
        with anyio.CancelScope(deadline=anyio.current_time() + self.token.remaining_s()) as scope:
            try:
                outcome = self._success(await cast("Callable[[], Awaitable[Any]]", bound)())
            except anyio.get_cancelled_exc_class() as error:
                if scope.cancel_called or is_being_cancelled():
                    raise
                outcome = self._failure(error)
            except BaseException as error:
                outcome = self._failure(error)
            if not self.token.is_expired():
                self._close(outcome)
        if scope.cancel_called or self.token.is_expired():
            self._close(self._timeout())

    async def _in_a_worker(self, bound: Callable[[], Any], worker: Worker, workers: WorkerPool) -> None:
        done, soon, context = anyio.Event(), call_soon(), contextvars.copy_context()

        def work() -> None:
            try:
                outcome = self._success(context.run(bound))
            except BaseException as error:
                outcome = self._failure(error)
            then = done.set if self._close(outcome) else self._tell_late
            try:
                soon(then)
            except RuntimeError:  # the event loop is closed: a late result is told from here
                then()

        worker.start(work)
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self.token.remaining_s()) as scope:
                await done.wait()
            if scope.cancelled_caught and self._close(self._timeout()):
                workers.give_up(worker)
        except BaseException:
            if self._close(Cancelled(**self._header())):
                workers.give_up(worker)
            raise

    def _close(self, outcome: Outcome) -> bool:
        return self.gate.close(outcome)

    def _header(self) -> dict[str, Any]:
        return {"call_id": self.call.id, "tool": self.tool.name, "seconds": self._clock.now() - self._started}

    def _success(self, value: Any) -> Success:
        content, artifact = excerpt(content_of(value), self.key)
        return Success(content=content, value=value, artifact=artifact, changes=self.state.changes, **self._header())

    def _failure(self, error: BaseException) -> Failure:
        try:
            words = str(error)
        except (Exception, SystemExit):
            words = "an error that cannot be shown"
        return Failure(kind=type(error).__name__, error=words, **self._header())

    def _timeout(self) -> Timeout:
        return Timeout(cap_s=round(self._cap_s, 3), **self._header())

    def _tell_start(self) -> None:
        if self._teller is not None:
            shown = {name: "***" if name in self.tool.sensitive else value for name, value in self.values.items()}
            self._teller.tell(ToolStarted, self.call.id, self.tool.name, jsonable(shown))

    def _tell_end(self) -> None:
        outcome = self.outcome
        if self._teller is not None and outcome is not None:
            reason = outcome.reason.value if isinstance(outcome, Denied) else None
            self._teller.tell(ToolEnded, self.call.id, self.tool.name, outcome.status.value, reason, outcome.seconds)

    def _tell_late(self) -> None:
        if self._teller is not None:
            self._teller.tell(LateResultDropped, self.call.id, self.tool.name)
