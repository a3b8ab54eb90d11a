"""Holding sources open: each in a task of its own, because whoever enters a session must be the one to leave it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio
from anyio.abc import TaskGroup

from ..tools import Tool, ToolSource

log = logging.getLogger(__name__)

_CLOSING_S = 5.0
"""How long a source may take to close by itself."""


class _Seat:
    """One source, and what became of it."""

    def __init__(self, source: ToolSource) -> None:
        self.source = source
        self.tools: Sequence[Tool] | None = None
        self.error: Exception | None = None
        self.left = False
        self.scope = anyio.CancelScope(shield=True)
        """Nobody else's cancel comes through: a source that is open is closed, not cut."""


class Holding:
    """The sources of one run. They are opened side by side, and closed so."""

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        self._seats = [_Seat(source) for source in sources]
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

    async def _hold(self, seat: _Seat) -> None:
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
