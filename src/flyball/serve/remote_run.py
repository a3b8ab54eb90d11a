"""The runner of a remote run: asks the service, hears of the run as it goes on, and brings its result home."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio

from .._internal.workers import get_call_soon, loop_time
from ..budget.budget import Hold
from ..budget.deadline import Clock
from ..budget.run_budget import Refusal, TurnBudget
from ..chain.caller import COUNTED_BUDGETS, POSITION, Position
from ..errors import ConfigError, RemoteError
from ..event import BudgetRefused, Event, Header, RunEnded, RunStarted
from ..loop.child_task import SHARED_BUDGETS, ChildTask, subtract_end_margin
from ..loop.effects import Cancel, Stalled
from ..loop.ending import describe_error
from ..loop.plan import Plan
from ..record import parse_event, result_of
from ..recorder import Recorder
from ..result import Result, Stop
from ..runtime import Runner, SignalQueue
from ..unit import Unit

_MAX_RUNS = 1_000
"""No run here has more children in all."""


@dataclass(slots=True)
class _RemoteRunState:
    """A run at the service that has begun: its header, which all its events share, and its newest event."""

    header: Header
    last_event: Event


class RemoteEvents:
    """The runs of which one request tells: the one that was asked for, below ours, and those below that.

    Whoever tells is not trusted. A run is one of those from its beginning to its end; what is told of any other, and
    so of a run here, is passed over. A run whose end was not heard is ended when nothing more can be.
    """

    def __init__(self, own_id: str, root_id: str, emit: Callable[[Event], None]) -> None:
        self._own_id = own_id
        self._root_id = root_id
        self._emit = emit
        self._open_runs: dict[str, _RemoteRunState] = {}
        self._known_ids: set[str] = set()

    def receive_event(self, data: Mapping[str, Any]) -> None:
        """Take an event from there."""
        try:
            event = parse_event(data)
        except (KeyError, TypeError, ValueError, ArithmeticError):  # of a newer Flyball, or of no Flyball
            return
        run_id = event.header.run_id
        if isinstance(event, RunStarted) and self._is_new(event.header):
            below = event.header.parent_run_id if self._known_ids else self._own_id
            self._open_runs[run_id] = _RemoteRunState(replace(event.header, parent_run_id=below), event)
            self._known_ids.add(run_id)
        elif isinstance(event, RunStarted) or run_id not in self._open_runs:
            return
        run = self._open_runs[run_id]
        event.header, run.last_event = run.header, event  # by which sinks know that it is the same run
        if isinstance(event, RunEnded):
            del self._open_runs[run_id]
        self._emit(event)

    def close(self, stop: str) -> None:
        """End what is open, the newest first, in the way in which the request has ended: every pair closes."""
        for run in reversed(self._open_runs.values()):
            last = run.last_event
            self._emit(RunEnded(last.seq + 1, last.at, last.turn, run.header, stop, None, (), last.turn, 0, {}))
        self._open_runs.clear()

    def _is_new(self, header: Header) -> bool:
        """Whether a run may begin: the first that is told, or one below a run that goes on, with a name of its own."""
        name = f"{header.run_id}."
        is_ours = name.startswith(f"{self._root_id}.") or f"{self._own_id}.".startswith(name)
        if is_ours or header.run_id in self._known_ids or len(self._known_ids) >= _MAX_RUNS:
            return False
        return not self._known_ids or header.parent_run_id in self._open_runs


class RemoteBudget:
    """A run elsewhere cannot ask here before each turn, so what it may take is held when it begins.

    That is its own limit, or half of what others leave, so that they can go on beside it. When it has ended, what it
    and all runs below it have used is booked, and the rest given back; if nobody knows what it used, all is booked. It
    is never more than was lent: what a service says to have used beyond that takes nothing from others here.
    """

    def __init__(self, shared: TurnBudget | None) -> None:
        self._shared = shared
        self._holds: dict[str, Hold] = {}

    def reserve(self, own_ceilings: Mapping[str, int | None]) -> Refusal | None:
        """Hold what it may take, at most its own ceilings; or the refusal of a budget of which nothing is left."""
        within = self._shared
        if within is None:
            return None
        with within.lock:
            for name in COUNTED_BUDGETS:
                budget = within.budgets.get(name)
                if budget is None or budget.available == math.inf:
                    continue
                half, ceiling = (int(budget.available) + 1) // 2, own_ceilings.get(name)
                amount = half if ceiling is None else min(half, ceiling)
                if amount < 1:
                    self.release()
                    return within.refuse(name)
                self._holds[name] = budget.hold(amount)
        return None

    @property
    def amounts(self) -> dict[str, int]:
        """What is held, by budget."""
        return {name: hold.amount for name, hold in self._holds.items()}

    def release(self) -> None:
        """Nothing was run."""
        for hold in self._holds.values():
            hold.release()
        self._holds = {}

    def settle(self, result: Result | None) -> None:
        """Book what was used; None where nobody knows."""
        for name in COUNTED_BUDGETS:
            used = None if result is None else _count_used(result, name)
            hold = self._holds.get(name)
            if hold is not None:
                hold.settle(hold.amount if used is None else min(used, hold.amount))
            elif used and self._shared is not None and name in self._shared.budgets:
                self._shared.budgets[name].increment(used)
        self._holds = {}


def _count_used(result: Result, name: str) -> int | None:
    """By a run and all below it; None where one of them does not tell.

    Its own budget may have counted those below it, or not, and the facts may lack an estimate: the greater is right.
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


_NOT_ASKED = "The remote agent was not asked: nothing is left for it of what it shares with others."

RemoteAsk = Callable[[Mapping[str, Any], Position, Callable[[dict[str, Any]], None]], Awaitable[Mapping[str, Any]]]
"""Sends a body from a place in a chain, has the events of the run heard, and gives its record."""


class RemoteRunner:
    """Brings one run at another service to its end. What goes wrong with it is its result.

    To those who watch it is a run of its own, which begins and ends here; below it is the one at the service.
    """

    def __init__(
        self, ask: RemoteAsk, task: ChildTask, plan: Plan, recorder: Recorder, clock: Clock, shared: TurnBudget | None
    ) -> None:
        self.agent = task.spec.name
        self.recorder = recorder
        self.signals = SignalQueue()
        self.signals.in_grace_turn = True  # nothing can be said to a model elsewhere: who tries is told so
        self.children: Mapping[str, Runner] = {}
        self.result: Result | None = None
        self._ask = ask
        self._task = task
        self._plan = plan
        self._clock = clock
        self._budget = RemoteBudget(shared)
        self._started_at = self._last_event_at = clock.now()
        self._cancel_scope: anyio.CancelScope | None = None
        self._call_soon: Callable[[Callable[[], object]], object] | None = None
        self._stalled_s: float | None = None
        self._remote_events = RemoteEvents(task.run_id, POSITION.get().run_id or task.parent_run_id, self._emit)

    @property
    def idle_s(self) -> float:
        """For how long nothing has come of it."""
        return self._clock.now() - self._last_event_at

    def stall(self, idle_s: float) -> None:
        """Close the request, as nothing comes of it."""
        self._stalled_s = idle_s
        if self.signals.send(Stalled(idle_s)):
            self._close_request()

    async def drive(self) -> Result:
        """Ask, wait, and give the result. If the task is cancelled meanwhile, the request is closed first."""
        self._call_soon = get_call_soon()
        self.signals.on_cancel(self._request_cancel)
        try:
            envelope = self._open_budget()
            self.result = envelope if isinstance(envelope, Result) else await self._request_run(envelope)
        except BaseException:
            self.result = self._finish_unknown(Stop.CANCELLED, stopped_by="parent")
            raise
        finally:
            self.signals.ended = True
            self.signals.on_cancel(None)
        return self.result

    def _open_budget(self) -> TurnBudget | Result:
        """What the run may take: its own limits, what its parent leaves, and of what is shared, what it was lent."""
        terms, plan = self._plan.spec.limits, self._plan
        own = terms.open(self._clock, plan.max_seconds, plan.max_amounts, plan.level)
        refusal = self._budget.reserve({name: own.budgets[name].ceiling for name in COUNTED_BUDGETS})
        lent, most = self._budget.amounts, dict(plan.max_amounts or {})
        narrowed = {name: min(amount, most.get(name, amount)) for name, amount in lent.items()}
        envelope = terms.open(self._clock, plan.max_seconds, {**most, **narrowed}, plan.level)
        self.recorder.emit(RunStarted, envelope.snapshot(), self.agent)
        if refusal is not None:
            self.recorder.emit(BudgetRefused, refusal.budget, refusal.flag)
            return self._finish(
                self._build_result(
                    Stop.BUDGET, envelope, flags=(refusal.flag,), warning=refusal.warning, text=_NOT_ASKED
                )
            )
        return envelope

    async def _request_run(self, envelope: TurnBudget) -> Result:
        left_s = envelope.hard.remaining
        with anyio.CancelScope(deadline=loop_time() + left_s) as self._cancel_scope:
            if not self.signals.is_cancelling:
                try:
                    body, position = self._build_body(envelope, left_s), self._build_position(envelope)
                    return self._finish_with_record(await self._ask(body, position, self._receive_event), envelope)
                except RemoteError as error:
                    return self._finish_failed(error, envelope)
                except Exception as error:  # of our own settings, say
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
            limits["seconds"] = subtract_end_margin(remaining_s)  # its end must be heard before the request is given up
        return {"message": self._task.prompt, "metadata": dict(self._plan.metadata), "limits": limits}

    def _build_position(self, envelope: TurnBudget) -> Position:
        """Where in a chain the request is made, and what it may take along."""
        here = POSITION.get()
        caller = here.caller
        if caller is not None and set(caller.left) <= set(self._budget.amounts):
            caller = replace(caller, envelope=None)  # what it leaves was lent, and is in the run's own envelope
        place = replace(here, caller=caller)
        return place.for_call(self._task.parent_run_id, envelope, envelope.hard_at, self._clock)

    def _finish_with_record(self, record: Mapping[str, Any], envelope: TurnBudget) -> Result:
        """The result that came, if it makes sense."""
        try:
            result = result_of(record, f"the record of {self.agent}")
        except ConfigError as error:
            return self._finish_unknown(Stop.FAILED, error=describe_error(RemoteError(self.agent, str(error))))
        self._budget.settle(result)
        return self._finish(self._cap_usage(result, envelope))

    def _cap_usage(self, result: Result, envelope: TurnBudget) -> Result:
        """The result with what it was allowed, at most, as used: it was told, and its parent lends it no more."""
        budgets, pool = dict(result.budgets), self._task.pool or {}
        for name in SHARED_BUDGETS:
            most = [bound for bound in (envelope.budgets[name].ceiling, pool.get(name)) if bound is not None]
            if name in budgets and most:
                budgets[name] = replace(budgets[name], used=min(budgets[name].used, *most))
        return replace(result, budgets=budgets)

    def _finish_interrupted(self, envelope: TurnBudget) -> Result:
        """The request was closed here: somebody wanted that, or its time was over."""
        by = next((letter.by for letter in self.signals.pending if isinstance(letter, Cancel)), None)
        if by is not None:
            return self._finish_unknown(Stop.CANCELLED, stopped_by=by)
        if self._stalled_s is not None:
            warning = f"Nothing came of it for {Unit.SECONDS.show(self._stalled_s)}."
            return self._finish_unknown(Stop.STALLED, warning=warning)
        refusal = envelope.refuse("seconds")
        self.recorder.at = self._clock.now() - self._started_at
        self.recorder.emit(BudgetRefused, refusal.budget, refusal.flag)
        return self._finish_unknown(Stop.DEADLINE, flags=(refusal.flag,), warning=refusal.warning)

    def _finish_unknown(self, stop: Stop, **fields: Any) -> Result:
        """The end of a run of which nobody here knows what it used: the worst is booked."""
        self._budget.settle(None)
        return self._finish(self._build_result(stop, None, **fields))

    def _build_result(self, stop: Stop, envelope: TurnBudget | None, **fields: Any) -> Result:
        """A result that is made here; `envelope` has what was used, which is nothing, where that is known."""
        budgets = {} if envelope is None else envelope.readings()
        ids = {"run_id": self._task.run_id, "metadata": self._plan.metadata}
        return Result(stop=stop, budgets=budgets, seconds=self._clock.now() - self._started_at, **ids, **fields)

    def _finish(self, result: Result) -> Result:
        """Tell the end; a result of our own has the events of it."""
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
        """An event from there: something comes of the run, and who watches here may see it."""
        self._last_event_at = self._clock.now()
        self._remote_events.receive_event(data)

    def _emit(self, event: Event) -> None:
        for sink in self.recorder.sinks:
            try:
                sink(event)
            except Exception:
                self.recorder.sink_errors += 1

    def _request_cancel(self) -> None:
        """From any thread: close the request."""
        if self._call_soon is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and the run with it
                self._call_soon(self._close_request)

    def _close_request(self) -> None:
        if self._cancel_scope is not None:
            self._cancel_scope.cancel()
