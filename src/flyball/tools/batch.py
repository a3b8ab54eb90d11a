"""A batch: the calls of one turn, each with its outcome in the order asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from ..outcome import Cancelled, Failure, Outcome, Success
from ..request import Call
from .tool import Effects

if TYPE_CHECKING:
    from .executor import BoundedToolExecutor


class Batch:
    """Calls that a model asked for together. After `run`, or when it was cancelled, each has its outcome."""

    def __init__(self, executor: BoundedToolExecutor, calls: Sequence[Call]) -> None:
        self.calls = calls
        self._executor = executor
        self._outcomes: list[Outcome | None] = [None] * len(calls)

    @property
    def outcomes(self) -> list[Outcome]:
        """One for each call, in the order asked; cancelled for those that have none."""
        pairs = zip(self.calls, self._outcomes, strict=True)
        return [outcome or Cancelled(call_id=call.id, tool=call.name) for call, outcome in pairs]

    async def run(self) -> None:
        """Make the calls: reads that stand side by side together, each write alone."""
        for group in self._groups():
            try:
                if len(group) == 1:  # a task group around one call would cost more than the call
                    await self._make(group[0])
                else:
                    await self._make_together(group)
            finally:
                self._apply_changes(group)

    async def _make(self, index: int) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()  # nothing begins after a cancel
        call = self.calls[index]
        prepared = self._executor.prepare(call)
        if isinstance(prepared, Outcome):
            self._outcomes[index] = prepared
            return
        try:
            await prepared.perform(self._executor.workers)
        finally:
            self._outcomes[index] = prepared.outcome
            self._executor.note(prepared)

    async def _make_together(self, group: list[int]) -> None:
        limit = anyio.Semaphore(self._executor.parallel)

        async def one(index: int) -> None:
            async with limit:
                await self._make(index)

        async with anyio.create_task_group() as tasks:
            for index in group:
                tasks.start_soon(one, index)

    def _groups(self) -> Iterator[list[int]]:
        """Neighbours that only read, together; everything else alone."""
        group: list[int] = []
        for index, call in enumerate(self.calls):
            tool = self._executor.tools.get(call.name)
            if tool is not None and tool.effects is Effects.READ:
                group.append(index)
                continue
            if group:
                yield group
                group = []
            yield [index]
        if group:
            yield group

    def _apply_changes(self, group: list[int]) -> None:
        for index in group:
            outcome = self._outcomes[index]
            if not isinstance(outcome, Success):
                continue
            try:
                self._executor.apply(outcome.changes)
            except Exception as error:
                words = f"it succeeded, but what it set in the state could not be kept: {error}"
                self._outcomes[index] = Failure(
                    call_id=outcome.call_id,
                    tool=outcome.tool,
                    seconds=outcome.seconds,
                    kind=type(error).__name__,
                    error=words,
                )
