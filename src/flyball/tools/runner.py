"""The performer: makes admitted calls, in the event loop or in a worker, and sees that each one ends once."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import current_thread, main_thread
from typing import Any, Protocol

import anyio

from .._internal.jsonable import jsonable
from .._internal.workers import WorkerPool, context_elsewhere, free_worker, hand_over, is_being_cancelled, loop_time
from ..budget.deadline import SYSTEM, Clock, Deadline, DeadlineToken
from ..chain.caller import POSITION, Position
from ..errors import ConfigError
from ..outcome import Outcome, Reason
from ..result import Result
from .call import ToolCallRun
from .context import ToolContext, ToolState


class Watcher(Protocol):
    """Who is told what becomes of calls. It must neither block nor raise."""

    def started(self, act: ToolCallRun) -> None:
        """A call is being made."""
        ...

    def ended(self, act: ToolCallRun) -> None:
        """It has its outcome."""
        ...

    def reported(self, act: ToolCallRun, text: str) -> None:
        """A tool tells how far it is; on the tool's thread."""
        ...

    def late(self, act: ToolCallRun) -> None:
        """A call ended after it was declared dead; in the event loop, if that still runs."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Performer:
    """Makes the calls of one run: an `async def` tool in the event loop, a `def` tool in a worker thread."""

    workers: WorkerPool
    clock: Clock = SYSTEM
    run_id: str = "run"
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    watcher: Watcher | None = None
    may_write: Callable[[], bool] = lambda: True
    """Whether the run still holds its session."""
    parallel: int = 8
    """The most calls of one group that are under way at a time."""

    @property
    def under_way(self) -> Mapping[str, Any]:
        """The drivers of children that go on now, by the ids of their runs."""
        return {}

    async def perform(self, acts: Sequence[ToolCallRun], deadline: float) -> None:
        """Make calls side by side, each within its own seconds. All have their outcome then, also after a cancel."""
        try:
            if len(acts) <= 1:  # a task group around one call would cost more than the call
                for act in acts:
                    await self._bounded(act, deadline)
                return
            limit = anyio.Semaphore(self.parallel)

            async def one(act: ToolCallRun) -> None:
                async with limit:
                    await self._bounded(act, deadline)

            async with anyio.create_task_group() as tasks:
                for act in acts:
                    tasks.start_soon(one, act)
        finally:
            self.cut(acts)  # those that had not begun

    async def _bounded(self, act: ToolCallRun, deadline: float) -> None:
        act.begin(self.clock.now(), deadline)
        if self.watcher is not None:
            self.watcher.started(act)
        try:
            if act.tool.is_async:
                with anyio.CancelScope(deadline=loop_time() + act.until - act.began):
                    await self._in_the_loop(act)
                if act.gate.outcome is None:
                    self.cut((act,), timed_out=True)
            else:  # needs no scope: nothing can interrupt a thread
                await self._in_a_worker(act, act.until)
        finally:
            self.cut((act,))
            if self.watcher is not None:
                self.watcher.ended(act)

    def make(self, act: ToolCallRun) -> Awaitable[Sequence[Outcome | None]]:
        """Make one call that has begun; whoever awaits it keeps its time, and hears what it came to.

        It raises only when it is cut; then it must be `cut`.
        """
        return self._in_the_loop(act) if act.tool.is_async else self._in_a_worker(act, math.inf)

    def cut(self, acts: Sequence[ToolCallRun], *, timed_out: bool = False) -> None:
        """Close what is still open: its time is over, or nobody wants it any more."""
        for act in acts:
            if act.gate.outcome is None:
                now = self.clock.now()
                was_open = act.time_out(now) if timed_out else act.cancel(now)
                if was_open and act.worker is not None:
                    self.workers.give_up(act.worker)
            if act.token is not None:
                act.token.cancel()

    async def _in_the_loop(self, act: ToolCallRun) -> Sequence[Outcome | None]:
        tool = act.tool
        token = POSITION.set(self._position(act))
        try:
            value = await (tool.function(**act.values) if tool.is_plain else self.bound(act)())
            now = self.clock.now()
            if now < act.until:
                act.succeed(value, now, self.run_id)
            else:
                act.time_out(now)
        except anyio.get_cancelled_exc_class() as error:
            if is_being_cancelled():
                raise
            act.fail(error, self.clock.now())
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
                raise  # a real Ctrl-C, which trio raises wherever its main task is
            act.fail(error, self.clock.now())
        finally:
            POSITION.reset(token)
        return (act.gate.outcome,)

    async def _in_a_worker(self, act: ToolCallRun, until: float) -> Sequence[Outcome | None]:
        bound, context = self.bound(act), context_elsewhere()
        context.run(POSITION.set, self._position(act))
        act.worker = await free_worker(self.workers, lambda: self.clock.now() >= act.until)
        if act.worker is None:
            act.deny(Reason.OVERLOAD, f"no worker came free in time; {self.workers.hung} hang", self.clock.now())
            return (act.outcome,)

        def work() -> Callable[[], None] | None:
            try:
                closed = act.succeed(context.run(bound), self.clock.now(), self.run_id)
            except BaseException as error:
                closed = act.fail(error, self.clock.now())
            return None if closed or self.watcher is None else partial(self.watcher.late, act)

        if not await hand_over(act.worker, work, until - self.clock.now()):
            self.cut((act,), timed_out=True)
        return (act.outcome,)

    def bound(self, act: ToolCallRun) -> Callable[[], Any]:
        """The tool with its arguments, and with its context where it wants one; the call has begun."""
        if act.tool.signature.context is None:
            return act.tool.bound(act.values)
        act.token = DeadlineToken(Deadline(act.until, self.clock))
        act.state = ToolState(self.state)
        return act.tool.bound(act.values, self._context(act, act.token, act.state))

    def _position(self, act: ToolCallRun) -> Position:
        """Where in a chain of agents the call is."""
        here = POSITION.get()
        return Position(here.caller, here.chain, here.run_id or self.run_id, act.envelope, act.until, self.clock)

    def _context(self, act: ToolCallRun, token: DeadlineToken, state: ToolState) -> ToolContext:
        seconds = token.remaining_s()

        def report(text: str) -> None:
            if self.watcher is not None and act.outcome is None:
                self.watcher.reported(act, str(text))

        return ToolContext(
            # A cooperative tool gets the last tenth, half a second at most, to return what it has.
            token=token.within(seconds - min(0.5, seconds / 10)),
            run_id=self.run_id,
            call_id=act.call.id,
            idempotency_key=act.key(self.run_id),
            metadata=jsonable(self.metadata),
            budgets={} if act.envelope is None else act.envelope.readings(),
            answer=act.answer,
            state=state,
            gate=act.gate,
            may_write=self.may_write,
            report=report,
            delegating=partial(self.hired, act),
            position=self._position(act),
        )

    async def hired(self, act: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """Have a child do a task for a tool; who makes the calls of an agent's run can."""
        raise ConfigError("ctx.delegate", f"the tool {act.tool.name}", "an `async def` tool in the run of an Agent")
