"""The runner of a remote run: asks the service, hears of the run as it goes on, and brings its result home."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio

from .._internal.workers import call_soon, loop_time
from ..budget.budget import Hold
from ..budget.deadline import Clock
from ..budget.run_budget import Refusal, TurnBudget
from ..chain.caller import COUNTED, POSITION, Position
from ..errors import ConfigError, RemoteError
from ..event import BudgetRefused, Event, Header, RunEnded, RunStarted
from ..loop.child_task import POOLED, ChildTask, spared
from ..loop.effects import Cancel, Stalled
from ..loop.ending import described
from ..loop.plan import Plan
from ..record import event_of, result_of
from ..recorder import Recorder
from ..result import Result, Stop
from ..runtime import Mailbox, Runner
from ..unit import Unit

_MOST_RUNS = 1_000
"""No run here has more children in all."""


@dataclass(slots=True)
class _Run:
    """A run at the service that has begun: its header, which all its events share, and its newest event."""

    header: Header
    newest: Event


class RemoteEvents:
    """The runs of which one request tells: the one that was asked for, below ours, and those below that.

    Whoever tells is not trusted. A run is one of those from its beginning to its end; what is told of any other, and
    so of a run here, is passed over. A run whose end was not heard is ended when nothing more can be.
    """

    def __init__(self, own_id: str, top_id: str, tell: Callable[[Event], None]) -> None:
        self._own_id = own_id
        self._top_id = top_id
        self._tell = tell
        self._open: dict[str, _Run] = {}
        self._known: set[str] = set()

    def hear(self, told: Mapping[str, Any]) -> None:
        """Take an event from there."""
        try:
            event = event_of(told)
        except (KeyError, TypeError, ValueError, ArithmeticError):  # of a newer Flyball, or of no Flyball
            return
        run_id = event.header.run_id
        if isinstance(event, RunStarted) and self._is_new(event.header):
            below = event.header.parent_run_id if self._known else self._own_id
            self._open[run_id] = _Run(replace(event.header, parent_run_id=below), event)
            self._known.add(run_id)
        elif isinstance(event, RunStarted) or run_id not in self._open:
            return
        run = self._open[run_id]
        event.header, run.newest = run.header, event  # by which sinks know that it is the same run
        if isinstance(event, RunEnded):
            del self._open[run_id]
        self._tell(event)

    def close(self, stop: str) -> None:
        """End what is open, the newest first, in the way in which the request has ended: every pair closes."""
        for run in reversed(self._open.values()):
            last = run.newest
            self._tell(RunEnded(last.seq + 1, last.at, last.turn, run.header, stop, None, (), last.turn, 0, {}))
        self._open.clear()

    def _is_new(self, header: Header) -> bool:
        """Whether a run may begin: the first that is told, or one below a run that goes on, with a name of its own."""
        name = f"{header.run_id}."
        is_ours = name.startswith(f"{self._top_id}.") or f"{self._own_id}.".startswith(name)
        if is_ours or header.run_id in self._known or len(self._known) >= _MOST_RUNS:
            return False
        return not self._known or header.parent_run_id in self._open


class RemoteBudget:
    """A run elsewhere cannot ask here before each turn, so what it may take is held when it begins.

    That is its own limit, or half of what others leave, so that they can go on beside it. When it has ended, what it
    and all runs below it have used is booked, and the rest given back; if nobody knows what it used, all is booked. It
    is never more than was lent: what a service says to have used beyond that takes nothing from others here.
    """

    def __init__(self, within: TurnBudget | None) -> None:
        self._within = within
        self._holds: dict[str, Hold] = {}

    def take(self, own: Mapping[str, int | None]) -> Refusal | None:
        """Hold what it may take, at most its own ceilings; or the refusal of a budget of which nothing is left."""
        within = self._within
        if within is None:
            return None
        with within.lock:
            for name in COUNTED:
                budget = within.budgets.get(name)
                if budget is None or budget.available == math.inf:
                    continue
                half, ceiling = (int(budget.available) + 1) // 2, own.get(name)
                amount = half if ceiling is None else min(half, ceiling)
                if amount < 1:
                    self.give_back()
                    return within.refuse(name)
                self._holds[name] = budget.hold(amount)
        return None

    @property
    def amounts(self) -> dict[str, int]:
        """What is held, by budget."""
        return {name: hold.amount for name, hold in self._holds.items()}

    def give_back(self) -> None:
        """Nothing was run."""
        for hold in self._holds.values():
            hold.release()
        self._holds = {}

    def settle(self, result: Result | None) -> None:
        """Book what was used; None where nobody knows."""
        for name in COUNTED:
            used = None if result is None else _used(result, name)
            hold = self._holds.get(name)
            if hold is not None:
                hold.settle(hold.amount if used is None else min(used, hold.amount))
            elif used and self._within is not None and name in self._within.budgets:
                self._within.budgets[name].increment(used)
        self._holds = {}


def _used(result: Result, name: str) -> int | None:
    """By a run and all below it; None where one of them does not tell.

    Its own budget may have counted those below it, or not, and the facts may lack an estimate: the greater is right.
    """
    if not _tells(result, name):
        return None
    return max(result.budgets[name].used, _happened(result, name))


def _tells(result: Result, name: str) -> bool:
    return name in result.budgets and all(_tells(child, name) for child in result.children)


def _happened(result: Result, name: str) -> int:
    match name:
        case "tokens":
            return result.usage_with_children.total
        case "usd":
            return sum(result.cost_with_children.values())
        case _:
            return result.turns + sum(_happened(child, name) for child in result.children)


_NOT_ASKED = "The remote agent was not asked: nothing is left for it of what it shares with others."

Ask = Callable[[Mapping[str, Any], Position, Callable[[dict[str, Any]], None]], Awaitable[Mapping[str, Any]]]
"""Sends a body from a place in a chain, has the events of the run heard, and gives its record."""


class RemoteRunner:
    """Brings one run at another service to its end. What goes wrong with it is its result.

    To those who watch it is a run of its own, which begins and ends here; below it is the one at the service.
    """

    def __init__(
        self, ask: Ask, task: ChildTask, plan: Plan, recorder: Recorder, clock: Clock, within: TurnBudget | None
    ) -> None:
        self.agent = task.edge.name
        self.recorder = recorder
        self.mailbox = Mailbox()
        self.mailbox.reporting = True  # nothing can be said to a model elsewhere: who tries is told so
        self.children: Mapping[str, Runner] = {}
        self.result: Result | None = None
        self._ask = ask
        self._task = task
        self._plan = plan
        self._clock = clock
        self._loan = RemoteBudget(within)
        self._began = self._heard = clock.now()
        self._scope: anyio.CancelScope | None = None
        self._soon: Callable[[Callable[[], object]], object] | None = None
        self._stalled_s: float | None = None
        self._hearing = RemoteEvents(task.run_id, POSITION.get().run_id or task.parent_run_id, self._tell)

    @property
    def idle_s(self) -> float:
        """For how long nothing has come of it."""
        return self._clock.now() - self._heard

    def stall(self, idle_s: float) -> None:
        """Close the request, as nothing comes of it."""
        self._stalled_s = idle_s
        if self.mailbox.post(Stalled(idle_s)):
            self._cut()

    async def drive(self) -> Result:
        """Ask, wait, and give the result. If the task is cancelled meanwhile, the request is closed first."""
        self._soon = call_soon()
        self.mailbox.on_cut(self._want_cut)
        try:
            envelope = self._opened()
            self.result = envelope if isinstance(envelope, Result) else await self._asked(envelope)
        except BaseException:
            self.result = self._lost(Stop.CANCELLED, stopped_by="parent")
            raise
        finally:
            self.mailbox.ended = True
            self.mailbox.on_cut(None)
        return self.result

    def _opened(self) -> TurnBudget | Result:
        """What the run may take: its own limits, what its parent leaves, and of what is shared, what it was lent."""
        terms, plan = self._plan.shared.terms, self._plan
        own = terms.open(self._clock, plan.most_s, plan.most, plan.level)
        refusal = self._loan.take({name: own.budgets[name].ceiling for name in COUNTED})
        lent, most = self._loan.amounts, dict(plan.most or {})
        narrowed = {name: min(amount, most.get(name, amount)) for name, amount in lent.items()}
        envelope = terms.open(self._clock, plan.most_s, {**most, **narrowed}, plan.level)
        self.recorder.emit(RunStarted, envelope.snapshot(), self.agent)
        if refusal is not None:
            self.recorder.emit(BudgetRefused, refusal.budget, refusal.flag)
            return self._ended(
                self._own(Stop.BUDGET, envelope, flags=(refusal.flag,), warning=refusal.warning, text=_NOT_ASKED)
            )
        return envelope

    async def _asked(self, envelope: TurnBudget) -> Result:
        left_s = envelope.hard.remaining
        with anyio.CancelScope(deadline=loop_time() + left_s) as self._scope:
            if not self.mailbox.cutting:
                try:
                    body, position = self._body(envelope, left_s), self._position(envelope)
                    return self._told(await self._ask(body, position, self._hear), envelope)
                except RemoteError as error:
                    return self._failed(error, envelope)
                except Exception as error:  # of our own settings, say
                    return self._lost(Stop.FAILED, error=described(error))
        return self._cut_off(envelope)

    def _failed(self, error: RemoteError, envelope: TurnBudget) -> Result:
        if error.began:
            return self._lost(Stop.FAILED, error=described(error))
        self._loan.give_back()
        return self._ended(self._own(Stop.FAILED, envelope, error=described(error)))

    def _body(self, envelope: TurnBudget, left_s: float) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        for name in COUNTED:
            budget = envelope.budgets[name]
            if budget.ceiling is not None:
                limits[name] = budget.unit.outer(budget.ceiling)
        if left_s != math.inf:
            limits["seconds"] = spared(left_s)  # its end must be heard before the request is given up
        return {"message": self._task.words, "metadata": dict(self._plan.metadata), "limits": limits}

    def _position(self, envelope: TurnBudget) -> Position:
        """Where in a chain the request is made, and what it may take along."""
        here = POSITION.get()
        caller = here.caller
        if caller is not None and set(caller.left) <= set(self._loan.amounts):
            caller = replace(caller, envelope=None)  # what it leaves was lent, and is in the run's own envelope
        place = replace(here, caller=caller)
        return place.inside(self._task.parent_run_id, envelope, envelope.hard_at, self._clock)

    def _told(self, record: Mapping[str, Any], envelope: TurnBudget) -> Result:
        """The result that came, if it makes sense."""
        try:
            result = result_of(record, f"the record of {self.agent}")
        except ConfigError as error:
            return self._lost(Stop.FAILED, error=described(RemoteError(self.agent, str(error))))
        self._loan.settle(result)
        return self._ended(self._believed(result, envelope))

    def _believed(self, result: Result, envelope: TurnBudget) -> Result:
        """The result with what it was allowed, at most, as used: it was told, and its parent lends it no more."""
        budgets, pool = dict(result.budgets), self._task.pool or {}
        for name in POOLED:
            most = [bound for bound in (envelope.budgets[name].ceiling, pool.get(name)) if bound is not None]
            if name in budgets and most:
                budgets[name] = replace(budgets[name], used=min(budgets[name].used, *most))
        return replace(result, budgets=budgets)

    def _cut_off(self, envelope: TurnBudget) -> Result:
        """The request was closed here: somebody wanted that, or its time was over."""
        by = next((letter.by for letter in self.mailbox.letters if isinstance(letter, Cancel)), None)
        if by is not None:
            return self._lost(Stop.CANCELLED, stopped_by=by)
        if self._stalled_s is not None:
            warning = f"Nothing came of it for {Unit.SECONDS.show(self._stalled_s)}."
            return self._lost(Stop.STALLED, warning=warning)
        refusal = envelope.refuse("seconds")
        self.recorder.at = self._clock.now() - self._began
        self.recorder.emit(BudgetRefused, refusal.budget, refusal.flag)
        return self._lost(Stop.DEADLINE, flags=(refusal.flag,), warning=refusal.warning)

    def _lost(self, stop: Stop, **told: Any) -> Result:
        """The end of a run of which nobody here knows what it used: the worst is booked."""
        self._loan.settle(None)
        return self._ended(self._own(stop, None, **told))

    def _own(self, stop: Stop, envelope: TurnBudget | None, **told: Any) -> Result:
        """A result that is made here; `envelope` has what was used, which is nothing, where that is known."""
        budgets = {} if envelope is None else envelope.readings()
        ids = {"run_id": self._task.run_id, "metadata": self._plan.metadata}
        return Result(stop=stop, budgets=budgets, seconds=self._clock.now() - self._began, **ids, **told)

    def _ended(self, result: Result) -> Result:
        """Tell the end; a result of our own has the events of it."""
        self._hearing.close(result.stop.value)
        recorder = self.recorder
        recorder.at = max(recorder.at, self._clock.now() - self._began)
        recorder.ended = True
        end = (result.stop.value, result.stopped_by, result.flags, result.turns, result.requests, result.budgets)
        recorder.emit(RunEnded, *end)
        if result.run_id != self._task.run_id:
            return result
        return replace(
            result, events=recorder.record, events_dropped=recorder.dropped, sink_errors=recorder.sink_errors
        )

    def _hear(self, told: Mapping[str, Any]) -> None:
        """An event from there: something comes of the run, and who watches here may see it."""
        self._heard = self._clock.now()
        self._hearing.hear(told)

    def _tell(self, event: Event) -> None:
        for sink in self.recorder.sinks:
            try:
                sink(event)
            except Exception:
                self.recorder.sink_errors += 1

    def _want_cut(self) -> None:
        """From any thread: close the request."""
        if self._soon is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and the run with it
                self._soon(self._cut)

    def _cut(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
