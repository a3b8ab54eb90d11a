"""What hooks and rules order: each is done at once, or noted for the moment when it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import event
from ..errors import ConfigError
from ..progress import AskPerson, Deliver, Emit, Fault, Halt, Notice, Order, Point, Raise, SetState, UseModel, Veto
from ..request import Purpose, tokens_of
from ..rules.engine import in_order
from .effects import Extend
from .signals import extend

if TYPE_CHECKING:
    from .state import RunState


def obey(course: RunState, order: Order, point: Point | None = None) -> Veto | None:
    """Do what somebody orders; a veto is given back."""
    match order:
        case Veto():
            return order
        case Halt():
            course.halt_by(order)
        case Notice():
            waits = order.deliver_at == Deliver.AFTER_TOOL and point is not Point.TOOL_ENDED
            course.notices.later(order) if waits else course.show(order)
        case Raise(name, amount, by):
            seconds = float(amount) if name == "seconds" else 0.0
            extend(course, Extend({} if seconds else {name: int(amount)}, seconds, by))
        case AskPerson():
            course.asks = [*course.asks, order]
        case UseModel(model, by):
            _use(course, model, by)
        case SetState(key, value):
            _set(course, key, value)
        case Emit(name, data, by):
            course.recorder.emit(event.RuleEmitted, by, name, data)
        case Fault(by, trigger, reason):
            course.faults = [*course.faults, {"rule": by, "trigger": trigger, "reason": reason}]
            course.recorder.emit(event.RuleFailed, by, trigger, reason)
        case _:
            raise ConfigError("a hook's order", order, "an Order of flyball.progress, such as a Notice or a Veto")
    return None


def _use(course: RunState, name: str, by: str) -> None:
    """Ask another model from now on, if it can be asked; else the run goes on as it was."""
    if name == course.model_name:
        return
    model = course.shared.models[name]
    try:
        reason = model.ready()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    if reason is None:
        course.use_model(name)
    else:
        obey(course, Fault(by, "use_model", f"the model {name} is not ready: {reason}"))


def _set(course: RunState, key: str, value: object) -> None:
    if value is None:
        course.state.pop(key, None)
    else:
        course.state[key] = value


_TURN = Purpose.TURN  # found once: see course.py


class Notices:
    """Those that wait for a request, and those that wait for the result of a tool first."""

    __slots__ = ("_later", "tokens", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Notice] = []
        self.tokens = 0
        """More than those that wait take of a request."""
        self._later: list[Notice] = []

    def add(self, notice: Notice) -> None:
        """Have it in the next request, once."""
        if notice in self.waiting:
            return
        self.waiting.append(notice)
        self.tokens += tokens_of(notice.text)

    def later(self, notice: Notice) -> None:
        """Have it in the request behind the next result of a tool."""
        self._later.append(notice)

    @property
    def waits_for_a_tool(self) -> bool:
        """Whether some wait for a result first."""
        return bool(self._later)

    def tool_ended(self) -> None:
        """Now there is a result of a tool."""
        for notice in self._later:
            self.add(notice)
        self._later.clear()

    def due(self, purpose: Purpose) -> tuple[Notice, ...]:
        """Those that go with a request for this, the most urgent first."""
        if purpose is _TURN:
            return tuple(in_order(self.waiting))
        return tuple(in_order(notice for notice in self.waiting if notice.deliver_at == Deliver.IMMEDIATE))

    def seen(self, notices: tuple[Notice, ...]) -> None:
        """The model has seen these."""
        self.waiting = [notice for notice in self.waiting if all(notice is not one for one in notices)]
        self.tokens = sum(tokens_of(notice.text) for notice in self.waiting)
