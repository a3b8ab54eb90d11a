"""The bounded executor: every call gets exactly one outcome, in time. It never raises and never hangs."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import anyio.lowlevel

from .._internal.workers import PRIVATE_LOOP, WorkerPool
from ..budget.deadline import SYSTEM
from ..budget.run_budget import TurnBudget
from ..event import Event, Header, LateResultDropped, ToolEnded, ToolReported, ToolStarted
from ..outcome import Cancelled, Denied, Failure, Outcome, Reason, Success
from ..recorder import Fields, Teller
from ..request import Call
from .admission import Admission, apply_changes, build_denial
from .call import ToolCallRun
from .runner import ToolRunner
from .tool import Function, Tool, Toolset


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
                await self._executor.perform([one for one in prepared if type(one) is ToolCallRun])
            finally:
                for one in prepared:
                    self._outcomes.append(self._finalise(one))

    def _finalise(self, prepared: ToolCallRun | Denied) -> Outcome:
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


log = logging.getLogger(__name__)


class BoundedToolExecutor:
    """Makes the calls of one run. A `def` tool runs in a worker thread, an `async def` tool in the event loop.

    `envelope` bounds the calls in number and time; `state` is the run's, and gets the changes of calls that succeeded,
    in the order asked; `teller` is told what happens; `approved` is asked for tools that need it, and must not block.
    Each may be left out.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Function],
        *,
        envelope: TurnBudget | None = None,
        state: MutableMapping[str, Any] | None = None,
        teller: Teller | None = None,
        approved: Callable[[Tool, Mapping[str, Any]], bool] | None = None,
        run_id: str = "run",
        parallel: int = 8,
        workers: WorkerPool | None = None,
    ) -> None:
        self.tools = tools if isinstance(tools, Toolset) else Toolset(tools)
        self.envelope = envelope
        self.state: MutableMapping[str, Any] = {} if state is None else state
        self.workers = workers or WorkerPool()
        self._watcher = _Watcher(teller)
        self._approved = approved
        self._admission = Admission(self.tools, envelope)
        self._runner = ToolRunner(
            workers=self.workers,
            clock=SYSTEM if envelope is None else envelope.clock,
            run_id=run_id,
            state=self.state,
            watcher=None if teller is None else self._watcher,
            parallel=parallel,
        )

    @property
    def hung(self) -> int:
        """How many `def` tools were given up and are still at work."""
        return self.workers.hung

    def execute(self, *calls: Call) -> list[Outcome]:
        """Make calls and give their outcomes in the order asked; `aexecute` for callers without an event loop."""
        return PRIVATE_LOOP.run(lambda: self.aexecute(*calls), "`await aexecute(...)`")

    async def aexecute(self, *calls: Call) -> list[Outcome]:
        """Make calls and give their outcomes in the order asked.

        Reads that stand side by side run side by side; a write waits for all before it, and all behind it wait for it.
        """
        batch = self.batch(calls)
        await batch.run()
        return batch.outcomes

    def batch(self, calls: Sequence[Call]) -> Batch:
        """Calls to be made together, whose outcomes can be had even when making them is cancelled."""
        return Batch(self, calls)

    def groups(self, calls: Sequence[Call]) -> Iterable[Sequence[Call]]:
        """Neighbours that only read, together; everything else alone."""
        return self._admission.group_calls(calls)

    def prepare(self, call: Call) -> ToolCallRun | Denied:
        """Everything that is decided before a call is made: the call, ready, or why it is not made."""
        prepared = self._admission.read(call)
        if isinstance(prepared, ToolCallRun):
            prepared = self._check_approval(prepared) or self._admission.claim(prepared) or prepared
        if isinstance(prepared, Denied):
            self._watcher.emit_end(prepared)
        return prepared

    async def perform(self, tool_calls: Sequence[ToolCallRun]) -> None:
        """Make calls that are ready, side by side. Each has its outcome then, also when this is cancelled."""
        deadline = math.inf if self.envelope is None else self.envelope.work_at
        await self._runner.perform(tool_calls, deadline)

    def note(self, tool: str, outcome: Outcome) -> None:
        """Learn from a call that has ended: a tool that hung and may not be tried again is blocked."""
        self._admission.note(tool, outcome)

    def apply(self, changes: Mapping[str, Any]) -> None:
        """Keep what a call has set in the run's state; None deletes."""
        apply_changes(self.state, changes)

    def _check_approval(self, tool_call: ToolCallRun) -> Denied | None:
        """Only True means yes: an `async def`, whose coroutine would be true, must not open the gate."""
        if not tool_call.tool.needs_approval(tool_call.values):
            return None
        try:
            answer: object = self._approved is not None and self._approved(tool_call.tool, tool_call.values)
        except (Exception, SystemExit):
            answer = False
        if inspect.iscoroutine(answer):
            answer.close()
        message = f"{tool_call.tool.name} needs a person's approval, and has none"
        return None if answer is True else build_denial(tool_call.call, Reason.APPROVAL, message)


class _Watcher:
    """Tells on what becomes of calls. Who only watches can fail without changing one."""

    def __init__(self, teller: Teller | None) -> None:
        self._teller = teller

    def on_started(self, tool_call: ToolCallRun) -> None:
        self._emit(ToolStarted, tool_call.call.id, tool_call.tool.name, tool_call.redacted_arguments)

    def on_ended(self, tool_call: ToolCallRun) -> None:
        if tool_call.outcome is not None:
            self.emit_end(tool_call.outcome)

    def on_report(self, tool_call: ToolCallRun, text: str) -> None:
        self._emit(ToolReported, tool_call.call.id, tool_call.tool.name, text)

    def on_late_result(self, tool_call: ToolCallRun) -> None:
        self._emit(LateResultDropped, tool_call.call.id, tool_call.tool.name)

    def emit_end(self, outcome: Outcome) -> None:
        reason = outcome.reason.value if isinstance(outcome, Denied) else None
        self._emit(ToolEnded, outcome.call_id, outcome.tool, outcome.status.value, reason, outcome.seconds)

    def _emit(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        if self._teller is None:
            return
        try:
            self._teller.tell(kind, *fields)
        except Exception:
            log.exception("a teller failed")
