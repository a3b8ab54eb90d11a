"""Rules of a governed loop: consults them and carries out their orders.

The caller drives the loop, so some orders are only available as data (`model`, notices) for the caller to apply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from .. import event
from ..budget.run_budget import TurnBudget, describe_postponement
from ..outcome import Outcome
from ..progress import AskPerson, Emit, Fault, Halt, Notice, Point, Progress, ReplaceResult, Veto
from ..recorder import Teller
from ..request import Call, Purpose
from ..rules import RuleSet
from ..rules.orders import Notices, apply_order


class Denial(NamedTuple):
    """Reason why rules deny a call."""

    reason: str
    question: str | None
    """Question that a person may answer instead. None if the rules deny the call in any case."""


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
        self.notices = Notices()
        self._delivered: dict[str, Notice] = {}
        """Notices that were handed out, by their texts."""
        self._veto: Veto | None = None
        self._question: str | None = None
        self._is_approved = False
        self._lock = run.lock

    def consult(self, point: Point, about: object = None) -> None:
        """Run the rules for this point, and carry out their orders."""
        with self._lock:
            for order in self._engine(point, self.progress, about):
                apply_order(order, self, point)

    def pop_notices(self, *, grace: bool) -> tuple[str, ...]:
        """Return the notices for the next request, most urgent first."""
        with self._lock:
            notices = self.notices.select_due(Purpose.GRACE if grace else Purpose.TURN)
            self.notices.mark_delivered(notices)
            self._delivered |= {notice.text: notice for notice in notices}
        for notice in notices:
            self._run.tell(event.NoticeDelivered, notice.by, notice.text, notice.category, notice.priority)
        return tuple(notice.text for notice in notices)

    def return_notices(self, texts: Sequence[str]) -> None:
        """Deliver notices again, because the request that they were in failed."""
        with self._lock:
            for text in texts:
                self.notices.add(self._delivered[text])

    def find_veto(self, name: str, arguments: Mapping[str, Any], *, is_approved: bool = False) -> Denial | None:
        """Return why a call is denied, or None.

        A rule that asks a person denies the call, unless the caller says that a person has approved it. A halt denies
        it too.
        """
        call = Call("", name, arguments)
        with self._lock:
            self._veto, self._question, self._is_approved = None, None, is_approved
            self.consult(Point.CALL_PLANNED, call)
            self.consult(Point.TOOL_CALLED, call)
            return None if self._veto is None else Denial(self._veto.message, self._question)

    def record_outcome(self, outcome: Outcome) -> None:
        """Record the outcome of a tool call, and consult the rules about it."""
        progress = self.progress
        with self._lock:
            progress.results.append(outcome)
            counts = progress.successes if outcome.ok else progress.failures
            counts[outcome.tool] = counts.get(outcome.tool, 0) + 1
            self.consult(Point.TOOL_ENDED, outcome)
            self.notices.release_after_tool()

    def veto(self, order: Veto) -> None:
        """Deny the call that the rules were asked about. The first veto counts, but a person cannot overrule any."""
        self._question = self._question if self._veto is None else None
        self._veto = self._veto or order

    def halt(self, order: Halt, point: Point | None) -> None:
        """End the run soon, and deny the call that the rules were asked about."""
        if point is Point.TOOL_CALLED:
            self.veto(Veto(order.message or "the run is halted", order.by))
        self._run.halt(order.by, order.message, grace=order.grace)

    def ask_person(self, order: AskPerson, point: Point | None) -> None:
        """Deny the call, or halt the run: a governed loop has no person to ask."""
        refusal = f"a person must approve this, and govern cannot ask a person: {order.text}"
        if point is Point.CALL_PLANNED:
            if not self._is_approved:
                self._question = order.text if self._veto is None else None
                self.veto(Veto(refusal, order.by))
        else:
            self._run.halt(order.by, refusal, grace=True)

    def use_model(self, name: str, by: str) -> None:
        """Offer another model to the caller, as `turn.model`."""
        self.model = name

    def emit(self, order: Emit) -> None:
        """Record the event of a rule."""
        self._run.tell(event.RuleEmitted, order.by, order.name, order.data)

    def record_fault(self, order: Fault) -> None:
        """Record that a rule failed."""
        self._run.tell(event.RuleFailed, order.by, order.trigger, order.reason)

    def replace_result(self, order: ReplaceResult, point: Point | None) -> None:
        """Record a fault: the caller of a governed loop keeps its messages."""
        self.record_fault(Fault(order.by, "replace_result", "a governed loop keeps its own messages"))

    def extend(self, budget: str, amount: float, by: str) -> None:
        """Raise a limit, up to the registry's maximum."""
        envelope = self.progress.envelope
        if budget == "seconds":
            seconds = min(float(amount), max(0.0, self._max_extension_s - self.extended_s))
            if seconds:
                is_capped = seconds < amount
                reason = describe_postponement(by, envelope.seconds + self._max_extension_s if is_capped else None)
                self.extended_s += seconds
                envelope.postpone(seconds, reason)
                self._run.tell(event.Postponed, seconds, reason)
        elif budget in envelope.budgets:
            extended = envelope.budgets[budget]
            raised = extended.extend(int(amount), by=by)
            if raised:
                maximum = extended.maximum if raised < int(amount) else None
                self._run.tell(event.Extended, budget, raised, by, maximum)


class Governed(Teller, Protocol):
    """Governed run, as its rules see it."""

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """Re-entrant lock of the run; there is only one, so that threads cannot deadlock."""
        ...

    def halt(self, by: str, message: str, *, grace: bool) -> None:
        """End the run when the loop asks for its next turn."""
        ...
