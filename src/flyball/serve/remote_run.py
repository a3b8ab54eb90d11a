"""Runner of a child run that takes place at another service.

`RemoteRunner` sends the task and turns the response into a result. `RemoteBudget` reserves part of the shared budgets
for it. `RemoteEvents` forwards the events of the remote runs to the sinks here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio

from .._internal.workers import get_call_soon, loop_time
from ..budget.budget import Hold
from ..budget.budget_set import narrow
from ..budget.deadline import Clock
from ..budget.remedy import describe_refusal_remedy
from ..budget.run_budget import Refusal, TurnBudget
from ..chain.caller import COUNTED_BUDGETS, Position, find_position
from ..errors import ConfigError, RemoteError, describe_error
from ..event import BudgetRefused, Event, Header, RunEnded, RunStarted, ToolReported
from ..loop.child_task import SHARED_BUDGETS, ChildTask, subtract_end_margin
from ..loop.effects import Cancel, Stalled
from ..loop.plan import Plan
from ..record import from_record, parse_event
from ..recorder import Recorder
from ..result import Result, Stop
from ..runtime import Runner, SignalQueue
from ..unit import Unit
from .request import has_valid_size

_MAX_RUNS = 1_000
"""Maximum number of runs that one request may report."""
_NOT_ASKED = "The remote agent was not asked: the shared budget has nothing left."
RemoteAsk = Callable[
    [Mapping[str, Any], Position, Callable[[dict[str, Any]], None], Mapping[str, str]], Awaitable[Mapping[str, Any]]
]
"""Function that sends a body and returns the record of the run; see `RemoteAgent.ask`."""


class RemoteRunner:
    """Runner that drives one run at another service to its result.

    Failures become part of the result. For sinks it is a run of its own that starts and ends here, with the run at the
    service as its child.
    """

    def __init__(
        self, ask: RemoteAsk, task: ChildTask, plan: Plan, recorder: Recorder, clock: Clock, shared: TurnBudget | None
    ) -> None:
        self.agent = task.spec.name
        self.recorder = recorder
        self.signals = SignalQueue()
        self.signals.in_grace_turn = True  # refuses steering: the model is elsewhere
        self.children: Mapping[str, Runner] = {}
        self.result: Result | None = None
        self._ask = ask
        self._task = task
        self._plan = plan
        self._clock = clock
        self._budget = RemoteBudget(shared)
        self._envelope: TurnBudget | None = None
        """Limits that the service was sent. None before the run has started."""
        self._started_at = self._last_progress_at = clock.now()
        self._cancel_scope: anyio.CancelScope | None = None
        self._call_soon: Callable[[Callable[[], object]], object] | None = None
        self._stalled_s: float | None = None
        self._remote_events = RemoteEvents(task.run_id, find_position().run_id or task.parent_run_id, self._emit)

    @property
    def idle_s(self) -> float:
        """Seconds since the last event arrived. Reports of tools do not count."""
        return self._clock.now() - self._last_progress_at

    def stall(self, idle_s: float) -> None:
        """Close the request because the run makes no progress."""
        self._stalled_s = idle_s
        if self.signals.send(Stalled(idle_s)):
            self._close_request()

    async def drive(self) -> Result:
        """Send the task, wait for the run and return its result.

        If the calling task is cancelled, the request is closed first.
        """
        self._call_soon = get_call_soon()
        self.signals.on_cancel = self._request_cancel
        try:
            envelope = self._open_budget()
            self.result = envelope if isinstance(envelope, Result) else await self._request_run(envelope)
        except BaseException:
            self.result = self._finish_unknown(Stop.CANCELLED, stopped_by="parent")
            raise
        finally:
            self.signals.ended = True
            self.signals.on_cancel = None
        return self.result

    def _open_budget(self) -> TurnBudget | Result:
        """Return the run's limits, narrowed by its parent and shared budgets."""
        limits, plan = self._plan.spec.limits, self._plan
        own = limits.open(self._clock, plan.max_seconds, plan.max_amounts, plan.level)
        refusal = self._budget.reserve({name: own.budgets[name].ceiling for name in COUNTED_BUDGETS})
        max_amounts = narrow(plan.max_amounts or {}, self._budget.amounts)
        envelope = self._envelope = limits.open(self._clock, plan.max_seconds, max_amounts, plan.level)
        self.recorder.emit(RunStarted, envelope.snapshot(), self.agent)
        if refusal is not None:
            self._emit_refusal(refusal, envelope)
            return self._finish(
                self._build_result(
                    Stop.BUDGET, envelope, flags=(refusal.flag,), warning=refusal.warning, text=_NOT_ASKED
                )
            )
        return envelope

    async def _request_run(self, envelope: TurnBudget) -> Result:
        remaining_s = envelope.hard.remaining
        with anyio.CancelScope(deadline=loop_time() + remaining_s) as self._cancel_scope:
            if not self.signals.is_cancelling:
                try:
                    body, position = self._build_body(envelope, remaining_s), self._build_position(envelope)
                    record = await self._ask(body, position, self._receive_event, self.recorder.build_headers())
                    return self._finish_with_record(record, envelope)
                except RemoteError as error:
                    return self._finish_failed(error, envelope)
                except Exception as error:  # for example from the caller's own settings
                    return self._finish_unknown(Stop.FAILED, error=describe_error(error))
        return self._finish_interrupted(envelope)

    def _finish_failed(self, error: RemoteError, envelope: TurnBudget) -> Result:
        if error.began:
            return self._finish_unknown(Stop.FAILED, error=describe_error(error))
        self._budget.release()
        return self._finish(self._build_result(Stop.FAILED, envelope, error=describe_error(error)))

    def _build_body(self, envelope: TurnBudget, remaining_s: float) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        for name in COUNTED_BUDGETS:
            budget = envelope.budgets[name]
            if budget.ceiling is not None:
                limits[name] = budget.unit.outer(budget.ceiling)
        if remaining_s != math.inf:
            # The run must end at the service before the request times out here.
            limits["seconds"] = subtract_end_margin(remaining_s)
        return {"message": self._task.prompt, "metadata": dict(self._plan.metadata), "limits": limits}

    def _build_position(self, envelope: TurnBudget) -> Position:
        """Return the request's position in the chain and the budgets it carries."""
        here = find_position()
        caller = here.caller
        if caller is not None and set(caller.left) <= set(self._budget.amounts):
            caller = replace(caller, envelope=None)  # already reserved, and part of `envelope`
        position = replace(here, caller=caller)
        return position.for_call(self._task.parent_run_id, envelope, envelope.hard_at, self._clock)

    def _finish_with_record(self, record: Mapping[str, Any], envelope: TurnBudget) -> Result:
        """Return the received result if it can be parsed, otherwise a failure."""
        try:
            result = from_record(record, f"the record of {self.agent}")
        except ConfigError as error:
            return self._finish_unknown(Stop.FAILED, error=describe_error(RemoteError(self.agent, str(error))))
        self._budget.settle(result)
        return self._finish(self._cap_usage(result, envelope))

    def _cap_usage(self, result: Result, envelope: TurnBudget) -> Result:
        """Limit the reported usage to what the run was allowed."""
        budgets, pool = dict(result.budgets), self._task.pool or {}
        for name in SHARED_BUDGETS:
            ceilings = [bound for bound in (envelope.budgets[name].ceiling, pool.get(name)) if bound is not None]
            if name in budgets and ceilings:
                budgets[name] = replace(budgets[name], used=min(budgets[name].used, *ceilings))
        return replace(result, budgets=budgets)

    def _finish_interrupted(self, envelope: TurnBudget) -> Result:
        """Return the result of a request closed here.

        It was cancelled, stalled or out of time.
        """
        cancelled_by = next((signal.by for signal in self.signals.pending if isinstance(signal, Cancel)), None)
        if cancelled_by is not None:
            return self._finish_unknown(Stop.CANCELLED, stopped_by=cancelled_by)
        if self._stalled_s is not None:
            warning = f"No progress for {Unit.SECONDS.show(self._stalled_s)}."
            return self._finish_unknown(Stop.STALLED, warning=warning)
        refusal = envelope.refuse("seconds")
        self.recorder.at = self._clock.now() - self._started_at
        self._emit_refusal(refusal, envelope)
        return self._finish_unknown(Stop.DEADLINE, flags=(refusal.flag,), warning=refusal.warning)

    def _emit_refusal(self, refusal: Refusal, envelope: TurnBudget) -> None:
        remedy = describe_refusal_remedy(refusal, envelope)
        self.recorder.emit(BudgetRefused, refusal.budget, refusal.flag, remedy, refusal.is_shared)

    def _finish_unknown(self, stop: Stop, **fields: Any) -> Result:
        """Return a result for unknown usage. All that the service was lent counts as used, and nothing beyond that."""
        self._budget.settle(None)
        result = self._build_result(stop, self._envelope, **fields)
        lent = {
            name: replace(snapshot, used=snapshot.ceiling or 0)
            for name, snapshot in result.budgets.items()
            if name in COUNTED_BUDGETS and snapshot.ceiling is not None
        }
        children = {name: snapshot for name, snapshot in result.budgets.items() if name == "children"}
        return self._finish(replace(result, budgets={**lent, **children}))  # no child runs are lent to a service

    def _build_result(self, stop: Stop, envelope: TurnBudget | None, **fields: Any) -> Result:
        """Build a result made here; `envelope` is None if the run has not started."""
        budgets = {} if envelope is None else envelope.snapshots()
        ids = {"run_id": self._task.run_id, "metadata": self._plan.metadata}
        return Result(stop=stop, budgets=budgets, seconds=self._clock.now() - self._started_at, **ids, **fields)

    def _finish(self, result: Result) -> Result:
        """Emit the end of the run.

        A result made here also gets the recorded events.
        """
        self._remote_events.close(result.stop.value)
        recorder = self.recorder
        recorder.at = max(recorder.at, self._clock.now() - self._started_at)
        recorder.ended = True
        end = (result.stop.value, result.stopped_by, result.flags, result.turns, result.requests, result.budgets)
        recorder.emit(RunEnded, *end)
        if result.run_id != self._task.run_id:
            return result
        return replace(
            result, events=recorder.recorded_events, events_dropped=recorder.dropped, sink_errors=recorder.sink_errors
        )

    def _receive_event(self, data: Mapping[str, Any]) -> None:
        if data.get("event") != ToolReported.kind:
            self._last_progress_at = self._clock.now()
        self._remote_events.receive_event(data)

    def _emit(self, event: Event) -> None:
        for sink in self.recorder.sinks:
            try:
                sink(event)
            except Exception:
                self.recorder.sink_errors += 1

    def _request_cancel(self) -> None:
        """Close the request, from any thread."""
        if self._call_soon is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, so the run has ended
                self._call_soon(self._close_request)

    def _close_request(self) -> None:
        if self._cancel_scope is not None:
            self._cancel_scope.cancel()


class RemoteBudget:
    """Share of the budgets that a remote run may use.

    A remote run cannot claim here before each turn, so its share is reserved when it starts: its own limit, or half of
    what is available, so that other runs can continue. At its end, the usage of the run and of all runs below it is
    settled and the rest released. If the usage is unknown, the whole reservation counts. Usage above the reservation is
    not charged, so that a service cannot take from other runs here.
    """

    def __init__(self, shared: TurnBudget | None) -> None:
        self._shared = shared
        self._holds: dict[str, Hold] = {}

    def reserve(self, own_ceilings: Mapping[str, int | None]) -> Refusal | None:
        """Reserve the run's share, or return the refusal of an empty budget."""
        shared = self._shared
        if shared is None:
            return None
        with shared.lock:
            for name in COUNTED_BUDGETS:
                budget = shared.budgets[name]
                if budget.available == math.inf:
                    continue
                half, ceiling = (int(budget.available) + 1) // 2, own_ceilings.get(name)
                amount = half if ceiling is None else min(half, ceiling)
                if amount < 1:
                    self.release()
                    return replace(shared.refuse(name), is_shared=True)
                self._holds[name] = budget.hold(amount)
        return None

    @property
    def amounts(self) -> dict[str, int]:
        """Reserved amount by budget."""
        return {name: hold.amount for name, hold in self._holds.items()}

    def release(self) -> None:
        """Release everything; no run took place."""
        for hold in self._holds.values():
            hold.release()
        self._holds = {}

    def settle(self, result: Result | None) -> None:
        """Settle the reservation to the usage; None means unknown."""
        for name in COUNTED_BUDGETS:
            used = None if result is None else _count_used(result, name)
            hold = self._holds.get(name)
            if hold is not None:
                hold.settle(hold.amount if used is None else min(used, hold.amount))
            elif used and self._shared is not None:
                self._shared.budgets[name].increment(used)
        self._holds = {}


def _count_used(result: Result, name: str) -> int | None:
    """Return the usage of a run and all runs below it.

    None if one of them does not report it. The run's budget may or may not include its children, and the facts may lack
    an estimate. The larger number is right.
    """
    if not _is_reported(result, name):
        return None
    return max(result.budgets[name].used, _count_actual(result, name))


def _is_reported(result: Result, name: str) -> bool:
    return name in result.budgets and all(_is_reported(child, name) for child in result.children)


def _count_actual(result: Result, name: str) -> int:
    match name:
        case "tokens":
            return result.usage_with_children.total
        case "usd":
            return sum(result.cost_with_children.values())
        case _:
            return result.turns + sum(_count_actual(child, name) for child in result.children)


class RemoteEvents:
    """Filter for the events that a service sends about its runs.

    The service is not trusted. Accepted are the requested run, which becomes a child of the own run, and runs below it.
    Events about any other run, including runs of this process, are dropped. Runs whose end never arrived are ended by
    `close`.
    """

    def __init__(self, own_id: str, root_id: str, emit: Callable[[Event], None]) -> None:
        self._own_id = own_id
        self._root_id = root_id
        self._emit = emit
        self._open_runs: dict[str, _RemoteRunState] = {}
        self._known_ids: set[str] = set()

    def receive_event(self, data: Mapping[str, Any]) -> None:
        """Check an event from the service and forward it."""
        try:
            event = parse_event(data)
        except (KeyError, TypeError, ValueError, ArithmeticError):  # from a newer version, or not from Flyball
            return
        run_id = event.header.run_id
        if isinstance(event, RunStarted) and self._is_new(event.header):
            parent_id = event.header.parent_run_id if self._known_ids else self._own_id
            metadata = event.header.metadata if has_valid_size(event.header.metadata) else None
            header = replace(event.header, parent_run_id=parent_id, metadata=metadata)
            self._open_runs[run_id] = _RemoteRunState(header, event)
            self._known_ids.add(run_id)
        elif isinstance(event, RunStarted) or run_id not in self._open_runs:
            return
        run = self._open_runs[run_id]
        event.header, run.last_event = run.header, event  # sinks recognize a run by its header object
        run.last_seq = max(run.last_seq, event.seq)  # the number of a streamed event is below 0
        if isinstance(event, RunEnded):
            del self._open_runs[run_id]
        self._emit(event)

    def close(self, stop: str) -> None:
        """End all open runs, newest first, so that every start has its end."""
        for run in reversed(self._open_runs.values()):
            last = run.last_event
            self._emit(RunEnded(run.last_seq + 1, last.at, last.turn, run.header, stop, None, (), last.turn, 0, {}))
        self._open_runs.clear()

    def _is_new(self, header: Header) -> bool:
        """Check whether a run may start.

        It must have a fresh id that is not from this process, and be the first run or the child of an open one.
        """
        prefix = f"{header.run_id}."
        is_ours = prefix.startswith(f"{self._root_id}.") or f"{self._own_id}.".startswith(prefix)
        if is_ours or header.run_id in self._known_ids or len(self._known_ids) >= _MAX_RUNS:
            return False
        return not self._known_ids or header.parent_run_id in self._open_runs


@dataclass(slots=True)
class _RemoteRunState:
    """Remote run that has started and not ended."""

    header: Header
    """Header that all its events share."""
    last_event: Event
    last_seq: int = 0
