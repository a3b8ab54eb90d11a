"""The tool runner, which makes admitted calls.

Each call ends with exactly one outcome, at its deadline at the latest.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import current_thread, main_thread
from typing import Any, Protocol

import anyio

from .._internal.detach import run_detachable
from .._internal.jsonable import to_jsonable
from .._internal.workers import (
    WorkerPool,
    copy_context_for_thread,
    is_being_cancelled,
    run_and_wait,
    wait_for_worker,
)
from ..budget.deadline import SYSTEM, Clock, Deadline, DeadlineToken
from ..chain.caller import POSITION, Position, find_position
from ..errors import UsageError
from ..outcome import Outcome, Reason
from ..result import Result
from .call import ToolCallRun
from .context import ToolContext, ToolState


class Watcher(Protocol):
    """Observer of tool calls. It must neither block nor raise."""

    def on_started(self, tool_call: ToolCallRun) -> None:
        """Handle the start of a call."""
        ...

    def on_ended(self, tool_call: ToolCallRun) -> None:
        """Handle the end of a call, which has its outcome."""
        ...

    def on_report(self, tool_call: ToolCallRun, text: str) -> None:
        """Handle a progress report. Called on the tool's thread."""
        ...

    def on_late_result(self, tool_call: ToolCallRun) -> None:
        """Handle a result that came after the call was closed.

        Called in the event loop, if that still runs.
        """
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class ToolRunner:
    """Makes the calls of one run.

    An `async def` tool runs in the event loop, a `def` tool in a worker thread.
    """

    workers: WorkerPool
    clock: Clock = SYSTEM
    run_id: str = "run"
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    watcher: Watcher | None = None
    may_write: Callable[[], bool] = lambda: True
    """Returns False if the run has lost its session to another run, or may have."""
    owner: object = None
    """Identity of the agent, for its share of the workers."""
    parallel: int = 8
    """Maximum number of calls of one group in progress at a time."""
    _position: Position | None = field(default=None, init=False)
    """Position of the run. None until its first call."""

    @property
    def running_children(self) -> Mapping[str, Any]:
        """Return the drivers of running children by run id."""
        return {}

    async def perform(self, tool_calls: Sequence[ToolCallRun], deadline: float) -> None:
        """Make calls in parallel, each within its timeout.

        All have their outcome afterwards, even on a cancel.
        """
        try:
            if len(tool_calls) <= 1:  # a task group for one call would cost more than the call
                for tool_call in tool_calls:
                    await self._run_bounded(tool_call, deadline)
                return
            limit = anyio.Semaphore(self.parallel)

            async def run_limited(tool_call: ToolCallRun) -> None:
                async with limit:
                    await self._run_bounded(tool_call, deadline)

            async with anyio.create_task_group() as tasks:
                for tool_call in tool_calls:
                    tasks.start_soon(run_limited, tool_call)
        finally:
            self.interrupt(tool_calls)  # closes calls that had not started

    async def _run_bounded(self, tool_call: ToolCallRun, deadline: float) -> None:
        tool_call.start(self.clock.now(), deadline)
        if self.watcher is not None:
            self.watcher.on_started(tool_call)
        try:
            if tool_call.tool.is_async:
                await run_detachable(
                    partial(self._run_in_loop, tool_call),
                    tool_call.deadline - tool_call.started_at,
                    lambda: self.interrupt((tool_call,), timed_out=self.clock.now() >= tool_call.deadline, hung=True),
                )
                if tool_call.outcome is None:
                    self.interrupt((tool_call,), timed_out=True)
            else:  # no cancel scope: a thread cannot be interrupted
                await self._run_in_worker(tool_call, tool_call.deadline)
        finally:
            self.interrupt((tool_call,))
            if self.watcher is not None:
                self.watcher.on_ended(tool_call)

    def run_call(self, tool_call: ToolCallRun) -> Awaitable[Sequence[Outcome | None]]:
        """Run a started call and return its outcome.

        The caller enforces the deadline. The call raises only if it is cancelled; the caller must then `interrupt` it.
        """
        return self._run_in_loop(tool_call) if tool_call.tool.is_async else self._run_in_worker(tool_call, math.inf)

    def interrupt(self, tool_calls: Sequence[ToolCallRun], *, timed_out: bool = False, hung: bool = False) -> None:
        """Close calls that are still open, as timed out or cancelled. `hung` says that they ignore it."""
        for tool_call in tool_calls:
            if tool_call.outcome is None:
                now = self.clock.now()
                was_open = tool_call.time_out(now, hung) if timed_out else tool_call.cancel(now, hung)
                if was_open and tool_call.worker is not None:
                    self.workers.abandon(tool_call.worker)
            if tool_call.token is not None:
                tool_call.token.cancel()

    async def _run_in_loop(self, tool_call: ToolCallRun) -> Sequence[Outcome | None]:
        tool = tool_call.tool
        token = POSITION.set(self._place(tool_call))
        try:
            value = await (tool.function(**tool_call.values) if tool.is_plain else self.bind(tool_call)())
            now = self.clock.now()
            if now < tool_call.deadline:
                is_late = not tool_call.succeed(value, now, self.run_id)
            else:
                is_late = not tool_call.time_out(now)
        except anyio.get_cancelled_exc_class() as error:
            if is_being_cancelled():
                raise
            is_late = not tool_call.fail(error, self.clock.now(), self.run_id)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
                raise  # a real Ctrl-C, which trio may raise in any task of the main thread
            is_late = not tool_call.fail(error, self.clock.now(), self.run_id)
        finally:
            POSITION.reset(token)
        if is_late and self.watcher is not None:  # it was left behind
            self.watcher.on_late_result(tool_call)
        return (tool_call.outcome,)

    async def _run_in_worker(self, tool_call: ToolCallRun, deadline: float) -> Sequence[Outcome | None]:
        bound, context = self.bind(tool_call), copy_context_for_thread()
        context.run(POSITION.set, self._place(tool_call))
        tool_call.worker = self.workers.acquire(self.owner) or await wait_for_worker(
            self.workers, lambda: self.clock.now() >= tool_call.deadline, self.owner
        )
        if tool_call.worker is None:
            tool_call.deny(
                Reason.OVERLOAD, f"no worker thread became free in time; {self.workers.hung} hang", self.clock.now()
            )
            return (tool_call.outcome,)

        def work() -> Callable[[], None] | None:
            try:
                closed = tool_call.succeed(context.run(bound), self.clock.now(), self.run_id)
            except BaseException as error:
                closed = tool_call.fail(error, self.clock.now(), self.run_id)
            return None if closed or self.watcher is None else partial(self.watcher.on_late_result, tool_call)

        if not await run_and_wait(tool_call.worker, work, deadline - self.clock.now()):
            self.interrupt((tool_call,), timed_out=True)
        return (tool_call.outcome,)

    def bind(self, tool_call: ToolCallRun) -> Callable[[], Any]:
        """Return the tool bound to its arguments and context.

        The call must have started.
        """
        if tool_call.tool.signature.context is None:
            return tool_call.tool.bind(tool_call.values)
        tool_call.token = DeadlineToken(Deadline(tool_call.deadline, self.clock))
        tool_call.state = ToolState(self.state)
        return tool_call.tool.bind(tool_call.values, self._build_context(tool_call, tool_call.token, tool_call.state))

    def _place(self, tool_call: ToolCallRun) -> ToolCallRun:
        """Tell a call the position of its run. It builds its own from that if its tool asks for it."""
        if self._position is None:
            self._position = find_position().for_call(self.run_id, None, math.inf, self.clock)
        tool_call.run_position = self._position
        return tool_call

    def _build_context(self, tool_call: ToolCallRun, token: DeadlineToken, state: ToolState) -> ToolContext:
        seconds = token.remaining_s()

        def report(text: str) -> None:
            if self.watcher is not None and tool_call.outcome is None:
                self.watcher.on_report(tool_call, str(text))

        return ToolContext(
            # Reserve the last tenth, at most half a second, for a cooperative tool to return partial results.
            token=token.within(seconds - min(0.5, seconds / 10)),
            run_id=self.run_id,
            call_id=tool_call.call.id,
            idempotency_key=tool_call.idempotency_key(self.run_id),
            metadata=to_jsonable(self.metadata),
            budgets={} if tool_call.envelope is None else tool_call.envelope.snapshots(),
            answer=tool_call.answer,
            state=state,
            gate=tool_call,
            may_write=self.may_write,
            report=report,
            delegating=partial(self.delegate, tool_call),
            position=self._place(tool_call).position,
        )

    async def wait_for_children(self, run_ids: Sequence[str], seconds: float, *, cancel: bool = False) -> None:
        """Do nothing: this class starts no child runs."""

    async def close_background(self) -> None:
        """Do nothing: this class starts no child runs."""

    async def delegate(self, tool_call: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """Run a child agent for a tool.

        Only the runner of an agent's run supports it.
        """
        raise UsageError(
            f"{tool_call.tool.name} cannot use ctx.delegate: it needs an async tool that the run of an Agent calls"
        )
