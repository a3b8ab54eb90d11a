"""A rule: when it looks, what must hold, and what it then does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .actions import Action
from .expression import Condition
from .view import Table

Value = bool | int | float | str
"""What a parameter may be."""


class Trigger(StrEnum):
    """When a rule looks."""

    QUERY_START = "on_query_start"
    """When a run starts."""
    TURN_START = "on_turn_start"
    TURN_END = "on_turn_end"
    TOOL_CALL = "on_tool_call"
    """Before a call is made, in the order asked."""
    TOOL_COMPLETE = "on_tool_complete"
    TOOL_FAILURE = "on_tool_failure"
    """After a call that failed or timed out."""
    BUDGET_REFUSED = "on_budget_refused"
    """When a budget, or the time, refuses for the first time."""
    STALLED = "on_stalled"
    """When the same calls came again and again."""
    SESSION_END = "on_session_end"
    """When a run ends, always."""
    EVENT = "on_event"
    """When a rule has told an event of its own."""


class Fire(StrEnum):
    """How often a rule fires while its condition holds."""

    ALWAYS = "always"
    CROSSING = "crossing"
    """Once, when the condition becomes true; again after it was false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A `[[test]]` of a rule: what it sees, and what must happen."""

    context: Mapping[str, Any]
    fires: bool = True
    message: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule, as it was read and found right."""

    id: str
    trigger: Trigger
    action: Action
    condition: Condition | None = None
    """None: it always holds."""
    name: str = ""
    description: str = ""
    version: str = ""
    priority: int = 100
    enabled: bool = True
    core: bool = False
    fire: Fire = Fire.ALWAYS
    cooldown_turns: int = 0
    """After it fired, it keeps quiet for so many turns."""
    event: str | None = None
    """The event that it listens to, with `on_event`; None is any."""
    params: Mapping[str, Value] = field(default_factory=dict[str, Value])
    tests: tuple[Trial, ...] = ()
    source: str = ""
    """The file it comes from."""

    named_params: Mapping[str, object] = field(init=False, repr=False, compare=False)
    """The same as expressions name them."""

    def __post_init__(self) -> None:
        named: dict[str, object] = {f"params.{name}": value for name, value in self.params.items()}
        if named:
            named["params"] = Table(self.params, "params")
        object.__setattr__(self, "named_params", named)

    @property
    def sort_key(self) -> tuple[int, str, str]:
        """Which of several rules comes first: the higher priority, then the file's name."""
        return -self.priority, self.source.replace("\\", "/").rpartition("/")[2], self.id
