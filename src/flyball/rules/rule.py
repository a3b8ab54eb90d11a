"""A rule: its trigger, its condition and its action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .actions import Action
from .expression import Condition
from .view import Table

Value = bool | int | float | str
"""Type of a rule parameter."""


class Trigger(StrEnum):
    """Moment at which a rule is evaluated."""

    QUERY_START = "on_query_start"
    """When a run starts."""
    TURN_START = "on_turn_start"
    TURN_END = "on_turn_end"
    TOOL_CALL = "on_tool_call"
    """Before a tool call, in the order of the model's requests."""
    TOOL_COMPLETE = "on_tool_complete"
    TOOL_FAILURE = "on_tool_failure"
    """After a call that failed or timed out."""
    BUDGET_REFUSED = "on_budget_refused"
    """When a budget or the deadline refuses for the first time."""
    STALLED = "on_stalled"
    """When the same calls keep repeating."""
    SESSION_END = "on_session_end"
    """When a run ends, for any reason."""
    EVENT = "on_event"
    """When a rule has emitted a custom event."""


class Fire(StrEnum):
    """Policy for a condition that stays true."""

    ALWAYS = "always"
    CROSSING = "crossing"
    """Once when the condition becomes true, and again only after it was false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A `[[test]]` of a rule: a context and the expected outcome."""

    context: Mapping[str, Any]
    fires: bool = True
    message: str | None = None
    """Text that the rule must produce. None means any."""
    line: int | None = None
    """Line of the test in its file. None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One valid rule."""

    id: str
    trigger: Trigger
    action: Action
    condition: Condition | None = None
    """None means always true."""
    name: str = ""
    description: str = ""
    version: str = "1.0.0"
    priority: int = 100
    enabled: bool = True
    core: bool = False
    fire: Fire = Fire.ALWAYS
    cooldown_turns: int = 0
    """Turns after a firing in which the rule does not fire again."""
    event: str | None = None
    """Event that an `on_event` rule listens to. None means any."""
    params: Mapping[str, Value] = field(default_factory=dict[str, Value])
    tests: tuple[Trial, ...] = ()
    source: str = ""
    """Path of the rule's file."""

    named_params: Mapping[str, object] = field(init=False, repr=False, compare=False)
    """The parameters under the names that expressions use, such as `params.limit`."""

    def __post_init__(self) -> None:
        named: dict[str, object] = {f"params.{name}": value for name, value in self.params.items()}
        if named:
            named["params"] = Table(self.params, "params")
        object.__setattr__(self, "named_params", named)

    @property
    def meaning(self) -> tuple[object, ...]:
        """Everything that decides what the rule does. Names, descriptions and layout do not count."""
        condition = None if self.condition is None else self.condition.source.dump()
        return self.trigger, condition, self.action, self.fire, self.cooldown_turns, self.event, dict(self.params)

    @property
    def sort_key(self) -> tuple[int, str, str]:
        """Sort key: higher priority first, then file name, then id."""
        return -self.priority, self.source.replace("\\", "/").rpartition("/")[2], self.id
