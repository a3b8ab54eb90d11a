"""Rules over a governed loop: what they order is done here, as far as a loop that is not ours lets us."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from . import event
from .envelope import TurnBudget
from .outcome import Outcome
from .progress import AskPerson, Deliver, Emit, Fault, Halt, Notice, Point, Progress, Raise, SetState, UseModel, Veto
from .recorder import Teller
from .request import Call
from .rules import RuleSet
from .rules.engine import in_order


class Governed(Teller, Protocol):
    """The run that is governed."""

    def halt(self, by: str, message: str, *, grace: bool) -> None:
        """End it when its next turn is asked for."""
        ...


class Ruling:
    """The rules of one governed run. It belongs to the thread of the loop."""

    def __init__(self, rules: RuleSet, run: Governed, run_id: str, envelope: TurnBudget, metadata: Mapping[str, Any]):
        self._engine = rules.begin()
        self._run = run
        self.state: dict[str, Any] = {}
        self.progress = Progress(run_id, envelope, (), self.state, metadata, agent="govern")
        self.model: str | None = None
        """The model that a rule wants to be asked."""
        self._waiting: list[Notice] = []
        self._veto: Veto | None = None

    def consult(self, point: Point, about: object = None) -> None:
        """Ask the rules, and do what they order."""
        for order in self._engine(point, self.progress, about):
            self._obey(order)

    def notices(self, *, grace: bool) -> tuple[str, ...]:
        """Those that go with the next request, the most urgent first."""
        now = [notice for notice in self._waiting if not grace or notice.deliver_at == Deliver.IMMEDIATE]
        self._waiting = [notice for notice in self._waiting if notice not in now]
        return tuple(notice.text for notice in in_order(now))

    def vetoed(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Why a call may not be made; a question nobody can be asked means no."""
        self._veto, call = None, Call("", name, arguments)
        self.consult(Point.CALL_PLANNED, call)
        self.consult(Point.TOOL_CALLED, call)
        return None if self._veto is None else self._veto.message

    def ended(self, outcome: Outcome) -> None:
        """Learn what a call came to, and ask the rules about it."""
        progress = self.progress
        progress.results.append(outcome)
        counts = progress.successes if outcome.ok else progress.failures
        counts[outcome.tool] = counts.get(outcome.tool, 0) + 1
        self.consult(Point.TOOL_ENDED, outcome)

    def _obey(self, order: object) -> None:
        match order:
            case Notice():
                self._waiting.append(order)
                self._run.tell(event.NoticeDelivered, order.by, order.text, order.category, order.priority)
            case Veto():
                self._veto = self._veto or order
            case AskPerson(text, by):
                self._veto = self._veto or Veto(f"a person must agree, and nobody can be asked: {text}", by)
            case Halt(by, message, grace):
                self._run.halt(by, message, grace=grace)
            case Raise(name, amount, by):
                self._raise(name, amount, by)
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

    def _raise(self, name: str, amount: float, by: str) -> None:
        envelope = self.progress.envelope
        if name == "seconds":
            envelope.postpone(amount, f"extended by {by}")
            self._run.tell(event.Postponed, amount, f"extended by {by}")
        elif name in envelope.budgets:
            raised = envelope.budgets[name].extend(int(amount), by=by)
            if raised:
                self._run.tell(event.Extended, name, raised, by)
