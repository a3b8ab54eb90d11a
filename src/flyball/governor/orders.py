"""Rules over a governed loop: what they order is done here, as far as a loop that is not ours lets us."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from .. import event
from ..budget.run_budget import TurnBudget
from ..outcome import Outcome
from ..progress import AskPerson, Deliver, Emit, Fault, Halt, Notice, Point, Progress, Raise, SetState, UseModel, Veto
from ..recorder import Teller
from ..request import Call
from ..rules import RuleSet
from ..rules.engine import sort_notices


class Governed(Teller, Protocol):
    """The run that is governed."""

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """Its only one, so that nobody waits for another; whoever holds it may take it again."""
        ...

    def halt(self, by: str, message: str, *, grace: bool) -> None:
        """End it when its next turn is asked for."""
        ...


class ActiveRules:
    """The rules of one governed run. Calls may be claimed on any thread, one after the other."""

    def __init__(
        self,
        rules: RuleSet,
        run: Governed,
        run_id: str,
        envelope: TurnBudget,
        metadata: Mapping[str, Any],
        max_extension_s: float = math.inf,
    ) -> None:
        """`most_s` is by how much the deadline may be moved."""
        self._engine = rules.begin()
        self._run = run
        self.state: dict[str, Any] = {}
        self.progress = Progress(run_id, envelope, (), self.state, metadata, agent="govern")
        self.model: str | None = None
        """The model that a rule wants to be asked."""
        self.extended_s = 0.0
        """By how much rules have moved the deadline."""
        self._max_extension_s = max_extension_s
        self._pending_notices: list[Notice] = []
        self._after_tool_notices: list[Notice] = []
        """Those that wait for the result of a tool first."""
        self._veto: Veto | None = None
        self._lock = run.lock

    def consult(self, point: Point, about: object = None) -> None:
        """Ask the rules, and do what they order."""
        with self._lock:
            for order in self._engine(point, self.progress, about):
                self._apply_order(order, point)

    def pop_notices(self, *, grace: bool) -> tuple[str, ...]:
        """Those that go with the next request, the most urgent first."""
        with self._lock:
            now = sort_notices(n for n in self._pending_notices if not grace or n.deliver_at == Deliver.IMMEDIATE)
            self._pending_notices = [notice for notice in self._pending_notices if notice not in now]
        for notice in now:
            self._run.tell(event.NoticeDelivered, notice.by, notice.text, notice.category, notice.priority)
        return tuple(notice.text for notice in now)

    def find_veto(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Why a call may not be made; a question nobody can be asked means no, and so does a stop."""
        call = Call("", name, arguments)
        with self._lock:
            self._veto = None
            self.consult(Point.CALL_PLANNED, call)
            self.consult(Point.TOOL_CALLED, call)
            return None if self._veto is None else self._veto.message

    def record_outcome(self, outcome: Outcome) -> None:
        """Learn what a call came to, and ask the rules about it."""
        progress = self.progress
        with self._lock:
            progress.results.append(outcome)
            counts = progress.successes if outcome.ok else progress.failures
            counts[outcome.tool] = counts.get(outcome.tool, 0) + 1
            self.consult(Point.TOOL_ENDED, outcome)
            self._pending_notices += self._after_tool_notices
            self._after_tool_notices = []

    def _apply_order(self, order: object, point: Point) -> None:
        match order:
            case Notice():
                waits = order.deliver_at == Deliver.AFTER_TOOL and point is not Point.TOOL_ENDED
                (self._after_tool_notices if waits else self._pending_notices).append(order)
            case Veto():
                self._veto = self._veto or order
            case AskPerson(text, by):
                no = f"a person must agree, and nobody can be asked: {text}"
                if point is Point.CALL_PLANNED:
                    self._veto = self._veto or Veto(no, by)
                else:
                    self._run.halt(by, no, grace=True)
            case Halt(by, message, grace):
                if point is Point.TOOL_CALLED:
                    self._veto = self._veto or Veto(message or "the run is halted", by)
                self._run.halt(by, message, grace=grace)
            case Raise(name, amount, by):
                self._extend_budget(name, amount, by)
            case SetState(key, value):
                self.state[key] = value
            case Emit(name, data, by):
                self._run.tell(event.RuleEmitted, by, name, data)
            case UseModel(model):
                self.model = model
            case Fault(by, trigger, reason):
                self._run.tell(event.RuleFailed, by, trigger, reason)
            case _:
                pass

    def _extend_budget(self, name: str, amount: float, by: str) -> None:
        envelope = self.progress.envelope
        if name == "seconds":
            seconds = min(float(amount), max(0.0, self._max_extension_s - self.extended_s))
            if seconds:
                self.extended_s += seconds
                envelope.postpone(seconds, f"extended by {by}")
                self._run.tell(event.Postponed, seconds, f"extended by {by}")
        elif name in envelope.budgets:
            raised = envelope.budgets[name].extend(int(amount), by=by)
            if raised:
                self._run.tell(event.Extended, name, raised, by)
