"""Rules of a governed loop: consults them and carries out their orders.

The caller drives the loop, so some orders are only available as data (`model`, notices) for the caller to apply.
"""

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


class ActiveRules:
    """Rules of one governed run. Thread-safe: calls are handled one at a time."""

    def __init__(
        self,
        rules: RuleSet,
        run: Governed,
        run_id: str,
        envelope: TurnBudget,
        metadata: Mapping[str, Any],
        max_extension_s: float = math.inf,
    ) -> None:
        """Start the rules; they may extend the deadline by `max_extension_s` seconds in all."""
        self._engine = rules.begin()
        self._run = run
        self.state: dict[str, Any] = {}
        self.progress = Progress(run_id, envelope, (), self.state, metadata, agent="govern")
        self.model: str | None = None
        """Model that a rule selected. None means no rule did."""
        self.extended_s = 0.0
        """Seconds by which rules have moved the deadline."""
        self._max_extension_s = max_extension_s
        self._pending_notices: list[Notice] = []
        self._after_tool_notices: list[Notice] = []
        """Notices to deliver after the next tool result."""
        self._veto: Veto | None = None
        self._lock = run.lock

    def consult(self, point: Point, about: object = None) -> None:
        """Run the rules for this point, and carry out their orders."""
        with self._lock:
            for order in self._engine(point, self.progress, about):
                self._apply_order(order, point)

    def pop_notices(self, *, grace: bool) -> tuple[str, ...]:
        """Return the notices for the next request, most urgent first."""
        with self._lock:
            notices = sort_notices(n for n in self._pending_notices if not grace or n.deliver_at == Deliver.IMMEDIATE)
            self._pending_notices = [notice for notice in self._pending_notices if notice not in notices]
        for notice in notices:
            self._run.tell(event.NoticeDelivered, notice.by, notice.text, notice.category, notice.priority)
        return tuple(notice.text for notice in notices)

    def find_veto(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Return why a call is denied, or None.

        A rule that asks a person denies the call, because a governed loop has no person to ask. A halt denies it too.
        """
        call = Call("", name, arguments)
        with self._lock:
            self._veto = None
            self.consult(Point.CALL_PLANNED, call)
            self.consult(Point.TOOL_CALLED, call)
            return None if self._veto is None else self._veto.message

    def record_outcome(self, outcome: Outcome) -> None:
        """Record the outcome of a tool call, and consult the rules about it."""
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
                refusal = f"a person must approve this, and govern cannot ask a person: {text}"
                if point is Point.CALL_PLANNED:
                    self._veto = self._veto or Veto(refusal, by)
                else:
                    self._run.halt(by, refusal, grace=True)
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


class Governed(Teller, Protocol):
    """Governed run, as its rules see it."""

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """Re-entrant lock of the run; there is only one, so that threads cannot deadlock."""
        ...

    def halt(self, by: str, message: str, *, grace: bool) -> None:
        """End the run when the loop asks for its next turn."""
        ...
