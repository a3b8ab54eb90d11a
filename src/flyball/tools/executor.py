"""The bounded executor: every call gets exactly one outcome, in time. It never raises and never hangs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Concatenate, ParamSpec

from ..clock import SYSTEM
from ..deadline import Deadline, DeadlineToken
from ..envelope import TurnBudget
from ..errors import ArgumentError, UnknownTool
from ..event import Event, Header, ToolEnded, ToolReported
from ..outcome import Denied, Outcome, Reason, Timeout
from ..recorder import Teller
from ..request import Call
from ..worker import LoopThread, WorkerPool
from .act import Act
from .batch import Batch
from .context import State, ToolContext
from .tool import Function, Tool, Toolset

_LOOP = LoopThread()
log = logging.getLogger(__name__)

P = ParamSpec("P")


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
        self.parallel = parallel
        self.workers = workers or WorkerPool()
        self._teller = None if teller is None else _Quiet(teller)
        self._approved = approved
        self._run_id = run_id
        self._blocked: set[str] = set()
        self._calls: dict[str, int] = {}

    @property
    def hung(self) -> int:
        """How many `def` tools were given up and are still at work."""
        return self.workers.hung

    def execute(self, *calls: Call) -> list[Outcome]:
        """Make calls and give their outcomes in the order asked; `aexecute` for callers without an event loop."""
        return _LOOP.run(lambda: self.aexecute(*calls), "aexecute(...)")

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

    def prepare(self, call: Call) -> Act | Denied:
        """Everything that is decided before a call is made: the call, ready, or why it is not made."""
        try:
            tool = self.tools[call.name]
            values = tool.read(call.arguments)
        except UnknownTool as error:
            return self._denied(call, Reason.UNKNOWN, str(error))
        except ArgumentError as error:
            return self._denied(call, Reason.VALIDATION, str(error))
        refusal = self._refusal(tool, values)
        if refusal is not None:
            return self._denied(call, *refusal)
        self._calls[tool.name] = self._calls.get(tool.name, 0) + 1
        return self._act(call, tool, values)

    def apply(self, changes: Mapping[str, Any]) -> None:
        """Keep what a call has set in the run's state; None deletes."""
        for key, value in changes.items():
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value

    def note(self, act: Act) -> None:
        """Learn from a call that has ended: a tool that hung and may not be tried again is blocked."""
        if isinstance(act.outcome, Timeout) and not act.tool.retry_on_timeout:
            self._blocked.add(act.tool.name)

    def _refusal(self, tool: Tool, values: Mapping[str, Any]) -> tuple[Reason, str] | None:
        """In this order, so that only a call that will be made is counted."""
        if tool.name in self._blocked:
            return Reason.BLOCKED, f"{tool.name} timed out before, and what it did is not known"
        if self.envelope is not None and self.envelope.is_expired():
            self.envelope.refuse("seconds")
            return Reason.DEADLINE, "the time for work is over"
        if tool.needs_approval(values) and not self._is_approved(tool, values):
            return Reason.APPROVAL, f"{tool.name} needs a person's approval, and has none"
        if tool.max_calls is not None and self._calls.get(tool.name, 0) >= tool.max_calls:
            return Reason.BUDGET, f"{tool.name} may be called {tool.max_calls} times in one run"
        if self.envelope is not None and not self.envelope.claim_tool_call(tool.name):
            own = self.envelope.budgets.get(f"calls.{tool.name}")
            return Reason.BUDGET, own.warning if own is not None and own.exceeded else "no tool call is left"
        return None

    def _is_approved(self, tool: Tool, values: Mapping[str, Any]) -> bool:
        """Only True means yes: an `async def`, whose coroutine would be true, must not open the gate."""
        try:
            answer: object = self._approved is not None and self._approved(tool, values)
        except (Exception, SystemExit):
            return False
        if inspect.iscoroutine(answer):
            answer.close()
        return answer is True

    def _act(self, call: Call, tool: Tool, values: dict[str, Any]) -> Act:
        envelope = self.envelope
        if envelope is None:
            clock, token = SYSTEM, DeadlineToken(Deadline.after(tool.timeout))
        else:
            clock, token = envelope.clock, DeadlineToken.from_budget(envelope, tool.timeout, tool.name)
        key = f"{self._run_id}:{call.id}"
        act = Act(call, tool, values, key=key, token=token, state=State(self.state), clock=clock, teller=self._teller)
        if tool.signature.context is not None:
            act.told(self._context(act))
        return act

    def _context(self, act: Act) -> ToolContext:
        call, teller = act.call, self._teller
        seconds = act.token.remaining_s()

        def report(text: str) -> None:
            if teller is not None and act.outcome is None:
                teller.tell(ToolReported, call.id, call.name, str(text))

        return ToolContext(
            # A cooperative tool gets the last tenth, half a second at most, to return what it has.
            token=act.token.within(seconds - min(0.5, seconds / 10)),
            run_id=self._run_id,
            call_id=call.id,
            idempotency_key=act.key,
            budgets={} if self.envelope is None else self.envelope.readings(),
            state=act.state,
            gate=act.gate,
            report=report,
        )

    def _denied(self, call: Call, reason: Reason, message: str) -> Denied:
        if self._teller is not None:
            self._teller.tell(ToolEnded, call.id, call.name, "denied", reason.value, 0.0)
        return Denied(call_id=call.id, tool=call.name, reason=reason, message=message)


class _Quiet:
    """Who only watches can fail without changing a call."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller

    def tell(
        self, kind: Callable[Concatenate[int, float, int, Header, P], Event], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Tell it on."""
        try:
            self._teller.tell(kind, *args, **kwargs)
        except Exception:
            log.exception("a teller failed")
