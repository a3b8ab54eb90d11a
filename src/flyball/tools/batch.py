"""A batch: the calls of one turn, each with its outcome in the order asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio.lowlevel

from ..outcome import Cancelled, Denied, Failure, Outcome, Success
from ..request import Call
from .call import ToolAct

if TYPE_CHECKING:
    from .executor import BoundedToolExecutor


class Batch:
    """Calls that a model asked for together. After `run`, or when it was cancelled, each has its outcome."""

    def __init__(self, executor: BoundedToolExecutor, calls: Sequence[Call]) -> None:
        self.calls = calls
        self._executor = executor
        self._outcomes: list[Outcome] = []

    @property
    def outcomes(self) -> list[Outcome]:
        """One for each call, in the order asked; cancelled for those that have none."""
        outcomes = list(self._outcomes)
        if len(outcomes) < len(self.calls):
            missing = self.calls[len(outcomes) :]
            outcomes += [Cancelled(call_id=call.id, tool=call.name) for call in missing]
        return outcomes

    async def run(self) -> None:
        """Make the calls: reads that stand side by side together, each write alone."""
        for group in self._executor.groups(self.calls):
            await anyio.lowlevel.checkpoint_if_cancelled()  # nothing begins after a cancel
            prepared = [self._executor.prepare(call) for call in group]
            try:
                await self._executor.perform([one for one in prepared if type(one) is ToolAct])
            finally:
                for one in prepared:
                    self._outcomes.append(self._finalised(one))

    def _finalised(self, prepared: ToolAct | Denied) -> Outcome:
        """The outcome; what a call has set is in the state then."""
        if isinstance(prepared, Denied):
            return prepared
        outcome = prepared.outcome
        assert outcome is not None, "a call that was performed has its outcome"
        self._executor.note(prepared.tool.name, outcome)
        if not isinstance(outcome, Success) or not outcome.changes:
            return outcome
        try:
            self._executor.apply(outcome.changes)
        except Exception as error:
            words = f"it succeeded, but what it set in the state could not be kept: {error}"
            return Failure(
                call_id=outcome.call_id,
                tool=outcome.tool,
                seconds=outcome.seconds,
                kind=type(error).__name__,
                error=words,
            )
        return outcome
