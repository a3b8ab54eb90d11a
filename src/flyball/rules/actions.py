"""What a rule does when it fires: its action, with templates that are filled in from what the rule sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self, cast

from ..errors import RuleError, suggest_names
from ..progress import (
    AskPerson,
    Deliver,
    Emit,
    Halt,
    Notice,
    Order,
    Priority,
    Raise,
    SetState,
    UseModel,
    Veto,
)
from ..unit import Unit
from .reader import RuleReader
from .template import Template
from .view import Table, View, describe_type
from .vocabulary import BUDGETS


class Action:
    """What a rule does."""

    __slots__ = ()
    type: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]
    """What may stand in `[action]` beside the type."""

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """The action that a table describes; what is wrong with it is noted."""
        raise NotImplementedError

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """What the loop is asked for; a RuleError where a template cannot be filled in."""
        raise NotImplementedError

    def build_fallback_orders(self, rule: str, reason: str) -> list[Order]:
        """What it orders all the same where it cannot say what it should: what guards fails closed."""
        return []


class Level(StrEnum):
    """How loud a log line is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class NotifySelf(Action):
    """Show the model a notice."""

    type = "notify_self"
    keys = ("message", "category", "priority", "deliver_at")
    message: Template
    category: str = "notice"
    priority: Priority = Priority.NORMAL
    deliver_at: Deliver = Deliver.TURN_START

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """As the table says."""
        return cls(
            reader.read_template("message", table),
            reader.read_text(("action", "category"), table) or "notice",
            reader.read_member(("action", "priority"), table, Priority, Priority.NORMAL),
            reader.read_member(("action", "deliver_at"), table, Deliver, Deliver.TURN_START),
        )

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """A notice."""
        return [Notice(self.message.render(view), rule, self.category, self.priority, self.deliver_at)]


@dataclass(frozen=True, slots=True)
class Log(Action):
    """Write a line to the log `flyball.rules`, and tell it as an event."""

    type = "log"
    keys = ("message", "level")
    message: Template
    level: Level = Level.INFO

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """As the table says."""
        level = reader.read_member(("action", "level"), table, Level, Level.INFO)
        return cls(reader.read_template("message", table), level)

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """An event of that level."""
        return [Emit(f"log.{self.level.value}", {"message": self.message.render(view)}, rule)]


@dataclass(frozen=True, slots=True)
class SetStateAction(Action):
    """Set a value in the run's state, or count one up."""

    type = "set_state"
    keys = ("key", "value", "increment")
    key: str
    value: Template | None = None
    increment: int | float | None = None

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """As the table says."""
        key = reader.read_text(("action", "key"), table, required=True) or ""
        given = [name for name in ("value", "increment") if name in table]
        if len(given) != 1:
            reader.add_error(("action",), given, "either value or increment")
        increment = table.get("increment")
        if increment is not None and (isinstance(increment, bool) or not isinstance(increment, int | float)):
            reader.add_error(("action", "increment"), increment, "a number")
        return cls(key, reader.read_value("value", table), increment)

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """The new value; a template that is one expression keeps its type."""
        if self.value is not None:
            return [SetState(self.key, self.value.render_value(view), rule)]
        state = view.get("context.state")
        before = state[self.key] if isinstance(state, Table) and self.key in state else 0
        if not isinstance(before, int | float):
            raise RuleError(f"context.state.{self.key} is {describe_type(before)}, and nothing to be counted up")
        return [SetState(self.key, before + (self.increment or 0), rule)]


@dataclass(frozen=True, slots=True)
class EmitEvent(Action):
    """Tell an event; rules may listen to it."""

    type = "emit_event"
    keys = ("name", "data")
    name: str
    data: tuple[tuple[str, Template], ...] = ()

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """As the table says."""
        name = reader.read_text(("action", "name"), table, required=True) or ""
        if name.startswith("log."):
            reader.add_error(("action", "name"), name, 'another name, or type = "log": log.* are the log\'s own')
        given: Any = table.get("data", {})
        if not isinstance(given, dict):
            reader.add_error(("action", "data"), given, "a table")
        data = cast("dict[str, Any]", given if isinstance(given, dict) else {})
        templates = [(key, reader.read_value(key, data, ("action", "data"))) for key in data]
        return cls(name, tuple((key, template) for key, template in templates if template is not None))

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """The event, with its data filled in."""
        return [Emit(self.name, {key: template.render_value(view) for key, template in self.data}, rule)]


@dataclass(frozen=True, slots=True)
class MessageAction(Action):
    """An action that is nothing but its message."""

    keys = ("message",)
    message: Template

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """As the table says."""
        return cls(reader.read_template("message", table))


class Deny(MessageAction):
    """Do not make the call."""

    __slots__ = ()
    type = "deny"

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """A veto."""
        return [Veto(self.message.render(view), rule)]

    def build_fallback_orders(self, rule: str, reason: str) -> list[Order]:
        """A veto in plain words."""
        return [Veto(f"the rule {rule} does not allow it; {reason}", rule)]


@dataclass(frozen=True, slots=True)
class StopRun(Action):
    """End the run, with its report or at once."""

    type = "stop"
    keys = ("message", "grace")
    message: Template
    grace: bool = True

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """As the table says."""
        return cls(reader.read_template("message", table), reader.read_bool(("action", "grace"), table, True))

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """A halt."""
        return [Halt(rule, self.message.render(view), self.grace)]

    def build_fallback_orders(self, rule: str, reason: str) -> list[Order]:
        """A halt in plain words."""
        return [Halt(rule, f"The rule {rule} stops the run; {reason}.", self.grace)]


@dataclass(frozen=True, slots=True)
class ExtendBudget(Action):
    """Raise a ceiling, within its clamp."""

    type = "extend"
    keys = ("budget", "amount")
    budget: str
    amount: float

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """As the table says."""
        budget, amount = reader.read_text(("action", "budget"), table, required=True), table.get("amount")
        if budget is not None and budget not in BUDGETS:
            near = suggest_names(budget, BUDGETS) or BUDGETS
            reader.add_error(("action", "budget"), budget, f"a budget: {' or '.join(near)}")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < 1e15:
            reader.add_error(("action", "amount"), amount, "how much more, above 0")
            amount = 0
        elif budget not in ("usd", "seconds") and amount != int(amount):
            reader.add_error(("action", "amount"), amount, f"a whole number of {budget}")
        return cls(budget or "", amount)

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """More of one budget."""
        unit = {"usd": Unit.USD, "seconds": Unit.SECONDS}.get(self.budget, Unit.COUNT)
        return [Raise(self.budget, unit.parse(self.amount), rule)]


class AskPersonAction(MessageAction):
    """Ask a person: about the call, or whether the run may go on."""

    __slots__ = ()
    type = "ask"

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """A question."""
        return [AskPerson(self.message.render(view), rule)]

    def build_fallback_orders(self, rule: str, reason: str) -> list[Order]:
        """A question in plain words."""
        return [AskPerson(f"The rule {rule} wants a person to agree; {reason}. Go on?", rule)]


@dataclass(frozen=True, slots=True)
class UseModelAction(Action):
    """Ask another of the agent's models from now on."""

    type = "use_model"
    keys = ("model",)
    model: str

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """As the table says."""
        return cls(reader.read_text(("action", "model"), table, required=True) or "")

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """The model's name."""
        return [UseModel(self.model, rule)]


ACTIONS: Mapping[str, type[Action]] = {
    kind.type: kind
    for kind in (
        NotifySelf,
        Log,
        SetStateAction,
        EmitEvent,
        Deny,
        StopRun,
        ExtendBudget,
        AskPersonAction,
        UseModelAction,
    )
}
"""By the name that `type` gives."""
