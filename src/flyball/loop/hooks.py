"""What hooks and rules order: each is done at once, or noted for the moment when it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import event
from ..errors import ConfigError
from ..progress import AskPerson, Deliver, Emit, Fault, Halt, Notice, Order, Point, Raise, SetState, UseModel, Veto
from ..request import Purpose, estimate_tokens
from ..rules.engine import sort_notices
from .effects import Extend
from .signals import apply_extension

if TYPE_CHECKING:
    from .state import RunState  # cycle: its type only; the state calls these functions


def apply_order(run: RunState, order: Order, point: Point | None = None) -> Veto | None:
    """Do what somebody orders; a veto is given back."""
    match order:
        case Veto():
            return order
        case Halt():
            run.request_halt(order)
        case Notice():
            waits = order.deliver_at == Deliver.AFTER_TOOL and point is not Point.TOOL_ENDED
            run.notices.add_after_tool(order) if waits else run.add_notice(order)
        case Raise(name, amount, by):
            seconds = float(amount) if name == "seconds" else 0.0
            apply_extension(run, Extend({} if seconds else {name: int(amount)}, seconds, by))
        case AskPerson():
            run.rule_questions = [*run.rule_questions, order]
        case UseModel(model, by):
            _switch_model(run, model, by)
        case SetState(key, value):
            _set_state(run, key, value)
        case Emit(name, data, by):
            run.recorder.emit(event.RuleEmitted, by, name, data)
        case Fault(by, trigger, reason):
            run.faults = [*run.faults, {"rule": by, "trigger": trigger, "reason": reason}]
            run.recorder.emit(event.RuleFailed, by, trigger, reason)
        case _:
            raise ConfigError("hook", order, "orders of flyball.progress, such as Notice or Veto")
    return None


def _switch_model(run: RunState, name: str, by: str) -> None:
    """Ask another model from now on, if it can be asked; else the run goes on as it was."""
    if name == run.model_name:
        return
    model = run.spec.model.others[name]
    try:
        reason = model.ready()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    if reason is None:
        run.use_model(name)
    else:
        apply_order(run, Fault(by, "use_model", f"the model {name} is not ready: {reason}"))


def _set_state(run: RunState, key: str, value: object) -> None:
    if value is None:
        run.state.pop(key, None)
    else:
        run.state[key] = value


_TURN = Purpose.TURN  # found once: see course.py


class Notices:
    """Those that wait for a request, and those that wait for the result of a tool first."""

    __slots__ = ("_deferred", "pending", "tokens")

    def __init__(self) -> None:
        self.pending: list[Notice] = []
        self.tokens = 0
        """More than those that wait take of a request."""
        self._deferred: list[Notice] = []

    def add(self, notice: Notice) -> None:
        """Have it in the next request, once."""
        if notice in self.pending:
            return
        self.pending.append(notice)
        self.tokens += estimate_tokens(notice.text)

    def add_after_tool(self, notice: Notice) -> None:
        """Have it in the request behind the next result of a tool."""
        self._deferred.append(notice)

    @property
    def has_deferred(self) -> bool:
        """Whether some wait for a result first."""
        return bool(self._deferred)

    def release_deferred(self) -> None:
        """Now there is a result of a tool."""
        for notice in self._deferred:
            self.add(notice)
        self._deferred.clear()

    def select_due(self, purpose: Purpose) -> tuple[Notice, ...]:
        """Those that go with a request for this, the most urgent first."""
        if purpose is _TURN:
            return tuple(sort_notices(self.pending))
        return tuple(sort_notices(notice for notice in self.pending if notice.deliver_at == Deliver.IMMEDIATE))

    def mark_delivered(self, notices: tuple[Notice, ...]) -> None:
        """The model has seen these."""
        self.pending = [notice for notice in self.pending if all(notice is not one for one in notices)]
        self.tokens = sum(estimate_tokens(notice.text) for notice in self.pending)
