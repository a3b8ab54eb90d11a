"""Orders of hooks and rules, carried out in one way for agents and for governed loops."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Protocol

from ..errors import ConfigError
from ..progress import (
    AskPerson,
    Deliver,
    Emit,
    Fault,
    Halt,
    Notice,
    Order,
    Point,
    Raise,
    ReplaceResult,
    SetState,
    UseModel,
    Veto,
    apply_changes,
)
from ..request import Purpose, estimate_tokens
from .engine import sort_notices

_TURN, _TOOL_ENDED = Purpose.TURN, Point.TOOL_ENDED


class OrderTarget(Protocol):
    """A run that orders are carried out on."""

    @property
    def notices(self) -> Notices:
        """Notices of the run that wait for a request."""
        ...

    @property
    def state(self) -> MutableMapping[str, Any]:
        """State of the run, which tools and rules share."""
        ...

    def veto(self, order: Veto) -> None:
        """Deny the call that the order is about."""
        ...

    def halt(self, order: Halt, point: Point | None) -> None:
        """End the run soon."""
        ...

    def extend(self, budget: str, amount: float, by: str) -> None:
        """Raise a limit. `budget` may be `seconds`."""
        ...

    def ask_person(self, order: AskPerson, point: Point | None) -> None:
        """Have a person asked."""
        ...

    def use_model(self, name: str, by: str) -> None:
        """Ask another model from now on."""
        ...

    def emit(self, order: Emit) -> None:
        """Emit the event of a rule."""
        ...

    def record_fault(self, order: Fault) -> None:
        """Record that a rule failed."""
        ...

    def replace_result(self, order: ReplaceResult, point: Point | None) -> None:
        """Show the model another text as the result of the call."""
        ...


def apply_order(order: Order, target: OrderTarget, point: Point | None = None) -> None:
    """Carry out an order that was given at `point`. Raises ConfigError for anything else than an order."""
    match order:
        case Notice():
            target.notices.add(order, after_tool=order.deliver_at == Deliver.AFTER_TOOL and point is not _TOOL_ENDED)
        case Veto():
            target.veto(order)
        case Halt():
            target.halt(order, point)
        case Raise(name, amount, by):
            target.extend(name, amount, by)
        case AskPerson():
            target.ask_person(order, point)
        case UseModel(model, by):
            target.use_model(model, by)
        case SetState(key, value):
            apply_changes(target.state, {key: value})
        case Emit():
            target.emit(order)
        case Fault():
            target.record_fault(order)
        case ReplaceResult():
            target.replace_result(order, point)
        case _:
            raise ConfigError("hook", order, "orders of flyball.progress, such as Notice or Veto")


class Notices:
    """Notices that wait for a request. Equal ones are delivered once."""

    __slots__ = ("after_tool", "pending", "tokens")

    def __init__(self) -> None:
        self.pending: Sequence[Notice] = ()
        self.tokens = 0
        """Upper estimate of the tokens of the pending notices."""
        self.after_tool: Sequence[Notice] = ()
        """Notices that wait for the next result of a tool first."""

    def add(self, notice: Notice, *, after_tool: bool = False) -> None:
        """Deliver a notice with the next request, or with the one after the next tool result."""
        if after_tool:
            self.after_tool = (*self.after_tool, notice)
        elif notice not in self.pending:
            self.pending = (*self.pending, notice)
            self.tokens += estimate_tokens(notice.text)

    def release_after_tool(self) -> None:
        """Deliver those that waited for the result of a tool."""
        notices, self.after_tool = self.after_tool, ()
        for notice in notices:
            self.add(notice)

    def select_due(self, purpose: Purpose) -> tuple[Notice, ...]:
        """Return the notices for a request of this purpose, the most urgent first."""
        if purpose is _TURN:
            return tuple(sort_notices(self.pending))
        return tuple(sort_notices([notice for notice in self.pending if notice.deliver_at == Deliver.IMMEDIATE]))

    def mark_delivered(self, notices: tuple[Notice, ...]) -> None:
        """Forget notices that the model has seen."""
        if len(notices) == len(self.pending):  # those that were sent, and none since
            self.pending, self.tokens = (), 0
            return
        self.pending = [notice for notice in self.pending if all(notice is not seen for seen in notices)]
        self.tokens = sum(estimate_tokens(notice.text) for notice in self.pending)
