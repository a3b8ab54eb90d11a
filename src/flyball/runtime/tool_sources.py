"""Tool sources of one run: opened before it starts, closed after it has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from .._internal.detach import CHECK_EVERY_S, CHECKS, leave_behind
from ..tools import Tool, ToolSource

log = logging.getLogger(__name__)

_CLOSING_S = 5.0
"""Seconds that a source may take to close before it is cancelled."""


@asynccontextmanager
async def open_sources(sources: Sequence[ToolSource]) -> AsyncGenerator[OpenSources]:
    """Yield the sources of a run, to be opened. All are closed at the end of the block, even on a cancel."""
    if asyncio._get_running_loop() is None:  # trio
        async with _open_in_group(sources) as opening:
            yield opening
        return
    opening = OpenSources(sources)
    try:
        yield opening
    finally:
        opening.close()
        with anyio.CancelScope(shield=True):
            await opening.wait_closed()


@asynccontextmanager
async def _open_in_group(sources: Sequence[ToolSource]) -> AsyncGenerator[OpenSources]:
    raised = list[BaseException]()
    async with anyio.create_task_group() as tasks:
        opening = OpenSources(sources, tasks)
        try:
            yield opening
        except BaseException as error:  # raised after the group, which would wrap it
            raised.append(error)
        finally:
            opening.close()
    if raised:
        raise raised[0]


class _Source:
    """One source, with its tools or its error."""

    def __init__(self, source: ToolSource) -> None:
        self.source = source
        self.tools: Sequence[Tool] | None = None
        self.error: Exception | None = None
        self.is_closed = False
        self.scope = anyio.CancelScope(shield=True)
        """Shielded: when the run is cancelled, an open source is closed, not cancelled."""
        self.task: asyncio.Task[None] | None = None
        self.checks_left = CHECKS
        """Checks that the source has to end after its cancel."""

    def is_over(self) -> bool:
        """Return True if the task has ended, or was left behind just now."""
        assert self.task is not None
        if self.task.done():
            return True
        self.checks_left -= self.scope.cancel_called
        if self.checks_left > 0:
            return False
        leave_behind(self.task, self.scope)
        return True


class OpenSources:
    """Sources of one run. They are opened and closed in parallel.

    Without a task group, each has an asyncio task of its own, which is left behind if it ignores its cancellation.
    """

    def __init__(self, sources: Sequence[ToolSource], tasks: TaskGroup | None = None) -> None:
        self._sources = [_Source(source) for source in sources]
        self._tasks = tasks
        self._settled = anyio.Event()
        self._release = anyio.Event()

    @property
    def missing(self) -> str:
        """Names of the sources that are not open."""
        return ", ".join(source.source.name for source in self._sources if source.tools is None)

    async def open(self) -> list[Sequence[Tool]]:
        """Open all sources and return their tools. Raises the error of the first source that cannot be opened."""
        for source in self._sources:
            if self._tasks is not None:
                self._tasks.start_soon(self._open_source, source)
            else:
                source.task = asyncio.create_task(self._open_source(source))
        await self._settled.wait()
        for source in self._sources:
            if source.error is not None:
                raise source.error
        return [source.tools or () for source in self._sources]

    def close(self) -> None:
        """Start to close all sources. `wait_closed` or the task group waits for them.

        A source that is not open yet is cancelled, and so is one that takes too long to close.
        """
        self._release.set()
        deadline = anyio.current_time() + _CLOSING_S
        for source in self._sources:
            if source.tools is None:
                source.scope.cancel()
            else:
                source.scope.deadline = deadline

    async def wait_closed(self) -> None:
        """Wait for the tasks of the sources, and leave those behind that ignore their cancellation."""
        pending: list[_Source] = [source for source in self._sources if source.task is not None]
        cancelled: asyncio.CancelledError | None = None
        while pending:
            try:
                await asyncio.wait([source.task for source in pending if source.task], timeout=CHECK_EVERY_S)
            except asyncio.CancelledError as error:  # raised when all are closed
                cancelled = error
            pending = [source for source in pending if not source.is_over()]
        if cancelled is not None:
            raise cancelled

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
        has_failed = any(source.error is not None for source in self._sources)
        if has_failed or all(source.tools is not None or source.is_closed for source in self._sources):
            self._settled.set()
