"""One call under way: made in the event loop or in a worker, and ended exactly once."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio

from ..clock import Clock
from ..deadline import DeadlineToken
from ..event import LateResultDropped, ToolEnded, ToolStarted
from ..outcome import Cancelled, Denied, Failure, Outcome, Reason, Success, Timeout
from ..recorder import Teller
from ..request import Call
from ..worker import Worker, WorkerPool, call_soon
from .context import State, ToolContext
from .excerpt import content_of, excerpt
from .gate import Gate
from .tool import Tool


class Act:
    """A call that was prepared: allowed, checked and bounded. Its gate has the outcome."""

    __slots__ = ("_bound", "_clock", "_started", "_teller", "call", "gate", "state", "token", "tool", "values")

    def __init__(
        self,
        call: Call,
        tool: Tool,
        values: dict[str, Any],
        *,
        token: DeadlineToken,
        state: State,
        clock: Clock,
        teller: Teller | None,
    ) -> None:
        self.call = call
        self.tool = tool
        self.values = values
        self.token = token
        self.state = state
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
        if self.tool.is_async:
            await self._made(self._in_the_loop(bound))
        elif worker := workers.take():
            await self._made(self._in_a_worker(bound, worker, workers))
        else:
            message = f"no worker is free; {workers.hung} hang"
            self._close(Denied(reason=Reason.OVERLOAD, message=message, **self._header()))
            self._tell_end()

    async def _made(self, making: Awaitable[None]) -> None:
        if self._teller is not None:
            shown = {name: "***" if name in self.tool.sensitive else value for name, value in self.values.items()}
            self._teller.tell(ToolStarted, self.call.id, self.tool.name, shown)
        try:
            await making
        finally:
            if self.outcome is None:  # only a cancel can leave it open
                self._close(Cancelled(**self._header()))
            self.token.cancel()
            self._tell_end()

    async def _in_the_loop(self, bound: Callable[[], Any]) -> None:
        with anyio.CancelScope(deadline=anyio.current_time() + self.token.remaining_s()) as scope:
            try:
                outcome = self._success(await cast("Callable[[], Awaitable[Any]]", bound)())
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:
                outcome = self._failure(error)
            if not scope.cancel_called:
                self._close(outcome)
        if scope.cancel_called:
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
            except RuntimeError:
                return  # the event loop is closed: nobody is left to tell

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
        content, artifact = excerpt(content_of(value), self.call.id)
        changes = self.state.changes
        return Success(content=content, value=value, artifact=artifact, changes=changes, **self._header())

    def _failure(self, error: BaseException) -> Failure:
        try:
            words = str(error)
        except Exception:
            words = "an error that cannot be shown"
        return Failure(kind=type(error).__name__, error=words, **self._header())

    def _timeout(self) -> Timeout:
        header = self._header()
        return Timeout(cap_s=round(header["seconds"], 3), **header)

    def _tell_end(self) -> None:
        outcome = self.outcome
        if self._teller is not None and outcome is not None:
            reason = outcome.reason.value if isinstance(outcome, Denied) else None
            self._teller.tell(ToolEnded, self.call.id, self.tool.name, outcome.status.value, reason, outcome.seconds)

    def _tell_late(self) -> None:
        if self._teller is not None:
            self._teller.tell(LateResultDropped, self.call.id, self.tool.name)
