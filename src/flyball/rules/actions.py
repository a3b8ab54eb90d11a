"""Actions of rules. Their templates are rendered from the rule's context."""

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
    """Base class of the actions a rule can take."""

    __slots__ = ()
    type: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]
    """Keys allowed in `[action]` besides `type`."""

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """Parse an action from its table. The reader collects the errors."""
        raise NotImplementedError

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return the orders for the loop. Raises RuleError if a template fails."""
        raise NotImplementedError

    def build_fallback_orders(self, rule: str, reason: str) -> list[Order]:
        """Return the orders for a rule that failed, so that guards fail closed."""
        return []


class Level(StrEnum):
    """Level of a log line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class NotifySelf(Action):
    """Action that shows the model a notice."""

    type = "notify_self"
    keys = ("message", "category", "priority", "deliver_at")
    message: Template
    category: str = "notice"
    priority: Priority = Priority.NORMAL
    deliver_at: Deliver = Deliver.TURN_START

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """Parse the action from its table."""
        return cls(
            reader.read_template("message", table),
            reader.read_text(("action", "category"), table) or "notice",
            reader.read_member(("action", "priority"), table, Priority, Priority.NORMAL),
            reader.read_member(("action", "deliver_at"), table, Deliver, Deliver.TURN_START),
        )

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return a notice."""
        return [Notice(self.message.render(view), rule, self.category, self.priority, self.deliver_at)]


@dataclass(frozen=True, slots=True)
class Log(Action):
    """Action that logs a line to `flyball.rules` and emits it as an event."""

    type = "log"
    keys = ("message", "level")
    message: Template
    level: Level = Level.INFO

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """Parse the action from its table."""
        level = reader.read_member(("action", "level"), table, Level, Level.INFO)
        return cls(reader.read_template("message", table), level)

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return a log event."""
        return [Emit(f"log.{self.level.value}", {"message": self.message.render(view)}, rule)]


@dataclass(frozen=True, slots=True)
class SetStateAction(Action):
    """Action that sets or increments a value in the run's state."""

    type = "set_state"
    keys = ("key", "value", "increment")
    key: str
    value: Template | None = None
    increment: int | float | None = None

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """Parse the action from its table."""
        key = reader.read_text(("action", "key"), table, required=True) or ""
        present = [name for name in ("value", "increment") if name in table]
        if len(present) != 1:
            reader.add_error(("action",), present, "either value or increment")
        increment = table.get("increment")
        if increment is not None and (isinstance(increment, bool) or not isinstance(increment, int | float)):
            reader.add_error(("action", "increment"), increment, "a number")
        return cls(key, reader.read_value("value", table), increment)

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return the new value.

        A template that is one expression keeps its type.
        """
        if self.value is not None:
            return [SetState(self.key, self.value.render_value(view), rule)]
        state = view.get("context.state")
        current = state[self.key] if isinstance(state, Table) and self.key in state else 0
        if not isinstance(current, int | float):
            raise RuleError(f"context.state.{self.key} is {describe_type(current)}, so it cannot be incremented")
        return [SetState(self.key, current + (self.increment or 0), rule)]


@dataclass(frozen=True, slots=True)
class EmitEvent(Action):
    """Action that emits a custom event for `on_event` rules."""

    type = "emit_event"
    keys = ("name", "data")
    name: str
    data: tuple[tuple[str, Template], ...] = ()

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """Parse the action from its table."""
        name = reader.read_text(("action", "name"), table, required=True) or ""
        if name.startswith("log."):
            reader.add_error(("action", "name"), name, 'another name, because log.* is reserved for type = "log"')
        value: Any = table.get("data", {})
        if not isinstance(value, dict):
            reader.add_error(("action", "data"), value, "a table")
        data = cast("dict[str, Any]", value if isinstance(value, dict) else {})
        templates = [(key, reader.read_value(key, data, ("action", "data"))) for key in data]
        return cls(name, tuple((key, template) for key, template in templates if template is not None))

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return the event with its rendered data."""
        return [Emit(self.name, {key: template.render_value(view) for key, template in self.data}, rule)]


@dataclass(frozen=True, slots=True)
class MessageAction(Action):
    """Base class of actions that consist of a message only."""

    keys = ("message",)
    message: Template

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """Parse the action from its table."""
        return cls(reader.read_template("message", table))


class Deny(MessageAction):
    """Action that denies the tool call."""

    __slots__ = ()
    type = "deny"

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return a veto."""
        return [Veto(self.message.render(view), rule)]

    def build_fallback_orders(self, rule: str, reason: str) -> list[Order]:
        """Return a veto with a standard message."""
        return [Veto(f"the rule {rule} does not allow it; {reason}", rule)]


@dataclass(frozen=True, slots=True)
class StopRun(Action):
    """Action that ends the run, with a grace turn or at once."""

    type = "stop"
    keys = ("message", "grace")
    message: Template
    grace: bool = True

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """Parse the action from its table."""
        return cls(reader.read_template("message", table), reader.read_bool(("action", "grace"), table, True))

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return a halt."""
        return [Halt(rule, self.message.render(view), self.grace)]

    def build_fallback_orders(self, rule: str, reason: str) -> list[Order]:
        """Return a halt with a standard message."""
        return [Halt(rule, f"The rule {rule} stops the run; {reason}.", self.grace)]


@dataclass(frozen=True, slots=True)
class ExtendBudget(Action):
    """Action that raises the ceiling of a budget, within its clamp."""

    type = "extend"
    keys = ("budget", "amount")
    budget: str
    amount: float

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """Parse the action from its table."""
        budget, amount = reader.read_text(("action", "budget"), table, required=True), table.get("amount")
        if budget is not None and budget not in BUDGETS:
            near = suggest_names(budget, BUDGETS) or BUDGETS
            reader.add_error(("action", "budget"), budget, f"a budget: {' or '.join(near)}")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < 1e15:
            reader.add_error(("action", "amount"), amount, "a number above 0")
            amount = 0
        elif budget not in ("usd", "seconds") and amount != int(amount):
            reader.add_error(("action", "amount"), amount, f"a whole number of {budget}")
        return cls(budget or "", amount)

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return an order to raise one budget."""
        unit = {"usd": Unit.USD, "seconds": Unit.SECONDS}.get(self.budget, Unit.COUNT)
        return [Raise(self.budget, unit.parse(self.amount), rule)]


class AskPersonAction(MessageAction):
    """Action that asks a person to approve the call or the run."""

    __slots__ = ()
    type = "ask"

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return a question for a person."""
        return [AskPerson(self.message.render(view), rule)]

    def build_fallback_orders(self, rule: str, reason: str) -> list[Order]:
        """Return a question with a standard text."""
        return [AskPerson(f"The rule {rule} needs a person's approval; {reason}. Continue?", rule)]


@dataclass(frozen=True, slots=True)
class UseModelAction(Action):
    """Action that switches the run to another of the agent's models."""

    type = "use_model"
    keys = ("model",)
    model: str

    @classmethod
    def read(cls, reader: RuleReader, table: Mapping[str, Any]) -> Self:
        """Parse the action from its table."""
        return cls(reader.read_text(("action", "model"), table, required=True) or "")

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return an order to use the model."""
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
"""Actions by their `type` in a rule file."""
