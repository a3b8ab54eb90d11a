"""A driver for runs whose tools are known only when their sources are open."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from threading import get_ident
from typing import Any

import anyio
from anyio.abc import TaskGroup

from .._internal.workers import get_call_soon
from ..errors import SourceError
from ..loop.effects import Effect
from ..loop.ending import End, describe_error
from ..loop.loop import converse
from ..loop.state import LoopClock
from ..result import Result, Stop
from ..tools import Tool, ToolSource
from .driver import Driver
from .history import PausedRun

log = logging.getLogger(__name__)

_CLOSING_S = 5.0
"""How long a source may take to close by itself."""


class _Source:
    """One source, and what became of it."""

    def __init__(self, source: ToolSource) -> None:
        self.source = source
        self.tools: Sequence[Tool] | None = None
        self.error: Exception | None = None
        self.is_closed = False
        self.scope = anyio.CancelScope(shield=True)
        """Nobody else's cancel comes through: a source that is open is closed, not cut."""


class OpenSources:
    """The sources of one run. They are opened side by side, and closed so."""

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        self._sources = [_Source(source) for source in sources]
        self._settled = anyio.Event()
        self._release = anyio.Event()

    @property
    def missing(self) -> str:
        """The names of those that are not open."""
        return ", ".join(seat.source.name for seat in self._sources if seat.tools is None)

    async def open(self, tasks: TaskGroup) -> list[Sequence[Tool]]:
        """Their tools, when all are open; it raises what the first that cannot be opened raises."""
        for seat in self._sources:
            tasks.start_soon(self._open_source, seat)
        await self._settled.wait()
        for seat in self._sources:
            if seat.error is not None:
                raise seat.error
        return [seat.tools or () for seat in self._sources]

    def close(self) -> None:
        """Have them all closed, whatever is being cancelled; their task group waits for that.

        What is still being opened is cut, and so is what takes too long to close.
        """
        self._release.set()
        late = anyio.current_time() + _CLOSING_S
        for seat in self._sources:
            if seat.tools is None:
                seat.scope.cancel()
            else:
                seat.scope.deadline = late

    async def _open_source(self, source: _Source) -> None:
        try:
            with source.scope:
                async with source.source.open() as tools:
                    source.tools = tuple(tools)
                    self._settle()
                    await self._release.wait()
        except Exception as error:
            if source.tools is None:
                source.error = error
            else:
                log.debug("%s failed while it was open", source.source.name, exc_info=True)
        finally:
            source.is_closed = True
            self._settle()

    def _settle(self) -> None:
        seats = self._sources
        if any(seat.error is not None for seat in seats) or all(
            seat.tools is not None or seat.is_closed for seat in seats
        ):
            self._settled.set()


class SourcedDriver(Driver):
    """Opens the sources of a run, drives it, and closes them before it gives the result.

    Opening takes the run's own time. A source that cannot be opened is why the run fails, before anybody is asked; one
    that is paused stays so then, and may be resumed later.
    """

    __slots__ = ()

    async def _drive(self) -> Result:
        self._call_soon, self._thread = get_call_soon(), get_ident()
        self.signals.on_cancel(self._request_cancel)
        holding, raised = OpenSources(self._plan.spec.tools.sources), list[BaseException]()
        async with anyio.create_task_group() as tasks:
            try:
                await self._drive_open(holding, tasks)
            except BaseException as error:  # kept from the task group, which would wrap it
                raised.append(error)
            finally:
                holding.close()
        if raised:
            raise raised[0]
        assert self.result is not None, "a loop that has ended has its result"
        return self.result

    async def _drive_open(self, sources: OpenSources, tasks: TaskGroup) -> None:
        try:
            error = await self._open(sources, tasks)
        except BaseException:  # the task is cancelled: the run closes as it does later on
            self.signals.send(self._cancelled)
            await super()._drive()
            raise
        if error is not None and self._is_resumed:
            if self._paused is not None:
                self._paused.release()
            self._break_cycles()
            raise error
        await super()._drive()

    async def _open(self, sources: OpenSources, tasks: TaskGroup) -> Exception | None:
        """Have the plan with the tools of the sources; or why that cannot be, where nobody has ended the run."""
        plan, error = self._plan, None
        limit_s = math.inf if self._is_resumed else self._compute_work_s()
        with anyio.CancelScope(deadline=anyio.current_time() + limit_s) as scope:
            self._scope = scope
            try:
                if limit_s > 0 and not self.signals.is_cancelling:  # else the loop ends it at once
                    assert plan.spec.tools.resolve is not None, "who has sources can offer their tools"
                    plan = replace(plan, spec=plan.spec.tools.resolve(plan.spec, await sources.open(tasks)))
            except Exception as found:
                error = found
        if self.signals.is_cancelling:
            return None
        if scope.cancelled_caught:
            error = SourceError(sources.missing, f"not open within {limit_s:g} s, the time limit of this run")
        if not self._is_resumed:
            not_started = None if error is None else End(Stop.FAILED, error=describe_error(error))
            plan = replace(plan, elapsed_s=self.timer.now(), not_started=not_started)
        self._plan, self._loop = plan, converse(plan, self.recorder)
        return error

    @property
    def _is_resumed(self) -> bool:
        """Whether it was left before: then nothing of it is lost where a source cannot be opened now."""
        return self._paused is not None or (self._journal is not None and self._journal.history is not None)

    def _compute_work_s(self) -> float:
        """The seconds that the run has for its work."""
        plan = self._plan
        with plan.spec.limits.open(LoopClock(plan.started_at), plan.max_seconds, plan.max_amounts) as envelope:
            return envelope.work_at

    def _replay_pause(self, pause: PausedRun) -> Effect[Any]:
        """Play it again, and go on with what opening took off its time."""
        opened_s = self.timer.now()
        effect = super()._replay_pause(pause)
        self.timer.set_elapsed(pause.at + opened_s)
        return effect
