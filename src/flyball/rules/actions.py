"""Actions of rules. Their templates are rendered from the rule's context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from .._internal.table import TableValue
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
from .reader import RuleTable
from .template import Template, TemplateTree
from .view import Table, View, describe_type
from .vocabulary import BUDGETS

DEFAULT_CATEGORY = "info"
_DEFAULT_LOG_MESSAGE = "Rule triggered"


class Action:
    """Base class of the actions a rule can take."""

    __slots__ = ()
    type: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]
    """Keys allowed in `[action]` besides `type`."""

    @classmethod
    def read(cls, table: RuleTable) -> Self:
        """Parse an action from its table, which collects the errors."""
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
    category: str = DEFAULT_CATEGORY
    priority: Priority = Priority.NORMAL
    deliver_at: Deliver = Deliver.TURN_START

    @classmethod
    def read(cls, table: RuleTable) -> Self:
        """Parse the action from its table."""
        return cls(
            table.template("message"),
            table.get("category").optional_text() or DEFAULT_CATEGORY,
            table.get("priority", Priority.NORMAL).member(Priority) or Priority.NORMAL,
            table.get("deliver_at", Deliver.TURN_START).member(Deliver) or Deliver.TURN_START,
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
    def read(cls, table: RuleTable) -> Self:
        """Parse the action from its table."""
        level = table.get("level", Level.INFO).member(Level) or Level.INFO
        message = table.template("message") if "message" in table else Template(_DEFAULT_LOG_MESSAGE, table.vocabulary)
        return cls(message, level)

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return a log event."""
        return [Emit(f"log.{self.level.value}", {"message": self.message.render(view)}, rule)]


@dataclass(frozen=True, slots=True)
class SetStateAction(Action):
    """Action that sets or increments a value in the run's state."""

    type = "set_state"
    keys = ("key", "value", "increment")
    key: str
    value: TemplateTree | None = None
    increment: int | float | None = None

    @classmethod
    def read(cls, table: RuleTable) -> Self:
        """Parse the action from its table."""
        key = table.get("key").text()
        present = [name for name in ("value", "increment") if name in table]
        if len(present) != 1:
            source = table.source
            TableValue(source.document, present, source.key_path).add_error("either value or increment")
        entry = table.get("increment")
        increment: Any = entry.value
        if increment is not None and (isinstance(increment, bool) or not isinstance(increment, int | float)):
            entry.add_error("a number")
        return cls(key, table.tree("value"), increment)

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return the new value.

        A template that is one expression keeps its type.
        """
        if self.value is not None:
            return [SetState(self.key, self.value.render(view), rule)]
        state = view.get("context.state")
        current = state[self.key] if isinstance(state, Table) and self.key in state else 0
        if not isinstance(current, int | float):
            raise RuleError(f"context.state.{self.key} is {describe_type(current)}, so it cannot be incremented")
        return [SetState(self.key, current + (self.increment or 0), rule)]


@dataclass(frozen=True, slots=True)
class EmitEvent(Action):
    """Action that emits a custom event for `on_event` rules."""

    type = "emit_event"
    keys = ("name", "event_type", "data", "payload")
    name: str
    data: tuple[tuple[str, TemplateTree], ...] = ()

    @classmethod
    def read(cls, table: RuleTable) -> Self:
        """Parse the action from its table."""
        named = table.get(table.pick_key("name", "event_type"))
        name = named.text()
        if name.startswith("log."):
            named.add_error('another name, because log.* is reserved for type = "log"')
        data = RuleTable(table.get(table.pick_key("data", "payload")), "a table", table.vocabulary)
        trees = [(key, data.tree(key)) for key in data.entries]
        return cls(name, tuple((key, tree) for key, tree in trees if tree is not None))

    def build_orders(self, view: View, rule: str) -> list[Order]:
        """Return the event with its rendered data."""
        return [Emit(self.name, {key: tree.render(view) for key, tree in self.data}, rule)]


@dataclass(frozen=True, slots=True)
class MessageAction(Action):
    """Base class of actions that consist of a message only."""

    keys = ("message",)
    message: Template

    @classmethod
    def read(cls, table: RuleTable) -> Self:
        """Parse the action from its table."""
        return cls(table.template("message"))


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
    def read(cls, table: RuleTable) -> Self:
        """Parse the action from its table."""
        return cls(table.template("message"), table.get("grace", True).flag())

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
    def read(cls, table: RuleTable) -> Self:
        """Parse the action from its table."""
        budget, entry = table.get("budget").text(), table.get("amount")
        if budget and budget not in BUDGETS:
            near = suggest_names(budget, BUDGETS) or BUDGETS
            table.get("budget").add_error(f"a budget: {' or '.join(near)}")
        amount = entry.value
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < 1e15:
            entry.add_error("a number above 0")
            amount = 0
        elif budget not in ("", "usd", "seconds") and amount != int(amount):
            entry.add_error(f"a whole number of {budget}")
        return cls(budget, amount)

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
    def read(cls, table: RuleTable) -> Self:
        """Parse the action from its table."""
        return cls(table.get("model").text())

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
