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

from .._internal.workers import call_soon
from ..errors import SourceError
from ..loop.effects import Effect
from ..loop.ending import described
from ..loop.loop import converse
from ..loop.state import LoopClock
from ..result import Result
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
        self.left = False
        self.scope = anyio.CancelScope(shield=True)
        """Nobody else's cancel comes through: a source that is open is closed, not cut."""


class OpenSources:
    """The sources of one run. They are opened side by side, and closed so."""

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        self._seats = [_Source(source) for source in sources]
        self._settled = anyio.Event()
        self._release = anyio.Event()

    @property
    def missing(self) -> str:
        """The names of those that are not open."""
        return ", ".join(seat.source.name for seat in self._seats if seat.tools is None)

    async def open(self, tasks: TaskGroup) -> list[Sequence[Tool]]:
        """Their tools, when all are open; it raises what the first that cannot be opened raises."""
        for seat in self._seats:
            tasks.start_soon(self._hold, seat)
        await self._settled.wait()
        for seat in self._seats:
            if seat.error is not None:
                raise seat.error
        return [seat.tools or () for seat in self._seats]

    def close(self) -> None:
        """Have them all closed, whatever is being cancelled; their task group waits for that.

        What is still being opened is cut, and so is what takes too long to close.
        """
        self._release.set()
        late = anyio.current_time() + _CLOSING_S
        for seat in self._seats:
            if seat.tools is None:
                seat.scope.cancel()
            else:
                seat.scope.deadline = late

    async def _hold(self, seat: _Source) -> None:
        try:
            with seat.scope:
                async with seat.source.open() as tools:
                    seat.tools = tuple(tools)
                    self._settle()
                    await self._release.wait()
        except Exception as error:
            if seat.tools is None:
                seat.error = error
            else:
                log.debug("%s went wrong while it was open", seat.source.name, exc_info=True)
        finally:
            seat.left = True
            self._settle()

    def _settle(self) -> None:
        seats = self._seats
        if any(seat.error is not None for seat in seats) or all(seat.tools is not None or seat.left for seat in seats):
            self._settled.set()


class SourcedDriver(Driver):
    """Opens the sources of a run, drives it, and closes them before it gives the result.

    Opening takes the run's own time. A source that cannot be opened is why the run fails, before anybody is asked; one
    that is paused stays so then, and may be resumed later.
    """

    __slots__ = ()

    async def _driven(self) -> Result:
        self._soon, self._thread = call_soon(), get_ident()
        self.mailbox.on_cut(self._want_cut)
        holding, raised = OpenSources(self._plan.shared.sources), list[BaseException]()
        async with anyio.create_task_group() as tasks:
            try:
                await self._with_open(holding, tasks)
            except BaseException as error:  # kept from the task group, which would wrap it
                raised.append(error)
            finally:
                holding.close()
        if raised:
            raise raised[0]
        assert self.result is not None, "a loop that has ended has its result"
        return self.result

    async def _with_open(self, holding: OpenSources, tasks: TaskGroup) -> None:
        try:
            error = await self._open(holding, tasks)
        except BaseException:  # the task is cancelled: the run closes as it does later on
            self.mailbox.post(self._cancelled)
            await super()._driven()
            raise
        if error is not None and self._goes_on:
            if self._paused is not None:
                self._paused.give_back()
            self._part()
            raise error
        await super()._driven()

    async def _open(self, holding: OpenSources, tasks: TaskGroup) -> Exception | None:
        """Have the plan with the tools of the sources; or why that cannot be, where nobody has ended the run."""
        plan, error = self._plan, None
        limit_s = math.inf if self._goes_on else self._work_s()
        with anyio.CancelScope(deadline=anyio.current_time() + limit_s) as scope:
            self._scope = scope
            try:
                if limit_s > 0 and not self.mailbox.cutting:  # else the loop ends it at once
                    assert plan.shared.offering is not None, "who has sources can offer their tools"
                    plan = replace(plan, shared=plan.shared.offering(plan.shared, await holding.open(tasks)))
            except Exception as found:
                error = found
        if self.mailbox.cutting:
            return None
        if scope.cancelled_caught:
            error = SourceError(holding.missing, f"not open within {limit_s:g} s, all the time that this run may work")
        if not self._goes_on:
            plan = replace(plan, spent_s=self.pace.now(), obstacle=None if error is None else described(error))
        self._plan, self._loop = plan, converse(plan, self.recorder)
        return error

    @property
    def _goes_on(self) -> bool:
        """Whether it was left before: then nothing of it is lost where a source cannot be opened now."""
        return self._paused is not None or (self._keeper is not None and self._keeper.past is not None)

    def _work_s(self) -> float:
        """The seconds that the run has for its work."""
        plan = self._plan
        with plan.shared.terms.open(LoopClock(plan.started_at), plan.most_s, plan.most) as envelope:
            return envelope.work_at

    def _played(self, pause: PausedRun) -> Effect[Any]:
        """Play it again, and go on with what opening took off its time."""
        opened_s = self.pace.now()
        effect = super()._played(pause)
        self.pace.begin_at(pause.at + opened_s)
        return effect
