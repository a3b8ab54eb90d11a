"""The tool executor: every call gets exactly one outcome in time.

It neither raises nor hangs, whatever the tools do.
"""

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
from ..errors import describe_error
from ..event import Event, Header, LateResultDropped, ToolEnded, ToolReported, ToolStarted
from ..outcome import Cancelled, Denied, Failure, Outcome, Reason, Success
from ..progress import apply_changes
from ..recorder import Fields, Teller
from ..request import Call
from .admission import Admission, build_denial
from .call import ToolCallRun
from .definition import Function, Tool, Toolset
from .runner import ToolRunner

log = logging.getLogger(__name__)


class BoundedToolExecutor:
    """Makes the tool calls of one run.

    A `def` tool runs in a worker thread, an `async def` tool in the event loop.

    Args:
        tools: the tools that may be called.
        envelope: bounds the number of calls and their time. None means no bounds but the tools' own.
        state: state of the run, which gets the changes of successful calls in order. None means an empty one.
        teller: receives events. None means that no events are emitted.
        approved: decides about calls that need approval; it must not block. None means that they are denied.
        run_id: part of the idempotency keys.
        parallel: maximum number of calls in progress at a time.
        workers: threads for `def` tools. None means a pool of its own.
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
        self.admission = Admission(self.tools, envelope)
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
        """Number of abandoned `def` tools that are still running."""
        return self.workers.hung

    def execute(self, *calls: Call) -> list[Outcome]:
        """Make calls and return their outcomes; the sync `aexecute`."""
        return PRIVATE_LOOP.run(lambda: self.aexecute(*calls), "`await aexecute(...)`")

    async def aexecute(self, *calls: Call) -> list[Outcome]:
        """Make calls and return their outcomes in order.

        Adjacent reads run in parallel. A write waits for all calls before it, and all later calls wait for the write.
        """
        batch = self.batch(calls)
        await batch.run()
        return batch.outcomes

    def batch(self, calls: Sequence[Call]) -> Batch:
        """Return a batch, which has all outcomes even if cancelled."""
        return Batch(self, calls)

    def prepare(self, call: Call) -> ToolCallRun | Denied:
        """Return the call ready to be made, or the denial."""
        prepared = self.admission.read(call)
        if isinstance(prepared, ToolCallRun):
            prepared = self._check_approval(prepared) or self.admission.claim(prepared) or prepared
        if isinstance(prepared, Denied):
            self._watcher.emit_end(prepared)
        return prepared

    async def perform(self, tool_calls: Sequence[ToolCallRun]) -> None:
        """Make prepared calls in parallel.

        Each gets its outcome, even on a cancel.
        """
        deadline = math.inf if self.envelope is None else self.envelope.work_at
        await self._runner.perform(tool_calls, deadline)

    def _check_approval(self, tool_call: ToolCallRun) -> Denied | None:
        name = tool_call.tool.name
        if tool_call.tool.is_client:
            message = f"{name} runs at the client, which only an agent's run can wait for: give it a function here"
            return build_denial(tool_call.call, Reason.APPROVAL, message)
        # Only True approves: the coroutine of an `async def` callback is truthy, and must not count as approval.
        if not tool_call.tool.needs_approval(tool_call.values):
            return None
        try:
            answer: object = self._approved is not None and self._approved(tool_call.tool, tool_call.values)
        except (Exception, SystemExit):
            answer = False
        if inspect.iscoroutine(answer):
            answer.close()
        message = f"{name} needs approval by a person, which it does not have"
        return None if answer is True else build_denial(tool_call.call, Reason.APPROVAL, message)


class Batch:
    """Tool calls of one model answer.

    Each has its outcome after `run`, even if `run` was cancelled.
    """

    def __init__(self, executor: BoundedToolExecutor, calls: Sequence[Call]) -> None:
        self.calls = calls
        self._executor = executor
        self._outcomes: list[Outcome] = []

    @property
    def outcomes(self) -> list[Outcome]:
        """Return one outcome for each call, in order.

        Calls that did not start are cancelled.
        """
        outcomes = list(self._outcomes)
        if len(outcomes) < len(self.calls):
            missing = self.calls[len(outcomes) :]
            outcomes += [Cancelled(call_id=call.id, tool=call.name) for call in missing]
        return outcomes

    async def run(self) -> None:
        """Make the calls: adjacent reads in parallel, each write alone."""
        for group in self._executor.admission.group_calls(self.calls):
            await anyio.lowlevel.checkpoint_if_cancelled()  # no call starts after a cancel
            prepared = [self._executor.prepare(call) for call in group]
            try:
                await self._executor.perform([item for item in prepared if type(item) is ToolCallRun])
            finally:
                for item in prepared:
                    self._outcomes.append(self._finalise(item))

    def _finalise(self, prepared: ToolCallRun | Denied) -> Outcome:
        """Return the outcome, after applying the call's state changes."""
        if isinstance(prepared, Denied):
            return prepared
        outcome = prepared.outcome
        assert outcome is not None, "a call that was performed has its outcome"
        self._executor.admission.note(prepared.tool.name, outcome)
        if not isinstance(outcome, Success) or not outcome.changes:
            return outcome
        try:
            apply_changes(self._executor.state, outcome.changes)
        except Exception as error:
            reason = describe_error(error)["message"]
            message = f"the call succeeded, but its changes to the state could not be stored: {reason}"
            return Failure(
                call_id=outcome.call_id,
                tool=outcome.tool,
                seconds=outcome.seconds,
                kind=type(error).__name__,
                error=message,
            )
        return outcome


class _Watcher:
    """Emits events about calls.

    An error of the event sink never affects a call.
    """

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
            log.exception("a sink of tool events failed")
