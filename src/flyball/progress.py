"""How far a run is, as callbacks, hooks and policies see it, and what they may answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from .budget.run_budget import TurnBudget
from .budget.snapshot import BudgetSnapshot
from .message import Message
from .outcome import Outcome
from .request import Call


@dataclass(frozen=True, slots=True)
class Done:
    """One call that succeeded."""

    tool: str
    arguments: Mapping[str, Any]
    """As they were checked: what the tool was really given."""
    value: object
    """What the tool gave."""


class Evidence:
    """What a run can prove. The loop adds to it; whoever is handed it only reads."""

    __slots__ = ("_by_tool", "state")

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state
        """The run's state, which Data Machine calls engine data."""
        self._by_tool: dict[str, list[Done]] = {}

    def add(self, done: Done) -> None:
        """Note a call that succeeded."""
        self._by_tool.setdefault(done.tool, []).append(done)

    def of(self, tool: str) -> tuple[Done, ...]:
        """The successful calls of one tool, oldest first."""
        return tuple(self._by_tool.get(tool, ()))

    def count(self, tool: str) -> int:
        """How many calls of one tool succeeded."""
        return len(self._by_tool.get(tool, ()))


_NO_EVIDENCE = Evidence({})


@dataclass(slots=True, eq=False)
class Progress:
    """How far a run is. The loop keeps it up to date; whoever is handed it only reads."""

    run_id: str
    envelope: TurnBudget
    messages: Sequence[Message]
    """The conversation so far; it grows."""
    state: Mapping[str, Any]
    """What tools have set."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    turn: int = 0
    requests: int = 0
    text: str = ""
    """What the model said last."""
    calls: Sequence[Call] = ()
    """What the model asked for last."""
    outcomes: Sequence[Outcome] = ()
    """What those calls came to, in the order asked."""
    results: list[Outcome] = field(default_factory=list[Outcome])
    """What all calls so far came to."""
    successes: dict[str, int] = field(default_factory=dict[str, int])
    """How many calls of each tool succeeded."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """How many calls of each tool did not."""
    evidence: Evidence = _NO_EVIDENCE
    """What the run can prove: its calls that succeeded, kept where a completion policy or tool rules look at them."""
    task: str = ""
    """What the run was asked for."""
    agent: str = ""
    number: int = 1
    """Which run of its session this is."""
    input_tokens: int = 0
    """What the last request took, as far as is known."""

    @property
    def budgets(self) -> Mapping[str, BudgetSnapshot]:
        """Where every budget stands."""
        return self.envelope.readings()

    @property
    def remaining_s(self) -> float:
        """Seconds that are left for work."""
        return self.envelope.remaining_s()


@dataclass(frozen=True, slots=True)
class Complete:
    """The task is done; `output` is the typed answer, where one was asked for."""

    output: object = None
    satisfied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GoOn:
    """The task is not done: the model is told so, within the `nudges` budget."""

    message: str
    missing: tuple[str, ...] = ()
    satisfied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The task is not done, and more turns would not help."""

    missing: tuple[str, ...] = ()
    satisfied: tuple[str, ...] = ()


Decision = Complete | GoOn | Unfinished
"""What a completion policy says about a run that would end now."""


class Policy(Protocol):
    """Says whether a run may end when the model has. It must not block; if it raises, the run ends as failed."""

    def __call__(self, progress: Progress, /) -> Decision:
        """Decide."""
        ...


class Point(StrEnum):
    """When a hook is asked."""

    RUN_STARTED = "run_started"
    TURN_STARTED = "turn_started"
    TURN_ENDED = "turn_ended"
    CALL_PLANNED = "call_planned"
    """Before any call of a batch is made: whoever wants a person to agree to this one says so now."""
    TOOL_CALLED = "tool_called"
    TOOL_ENDED = "tool_ended"
    BUDGET_REFUSED = "budget_refused"
    STALLED = "stalled"
    RUN_ENDED = "run_ended"


class Priority(StrEnum):
    """Which of several notices comes first."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Deliver(StrEnum):
    """With which request a notice goes."""

    TURN_START = "turn_start"
    """With that of the next turn."""
    AFTER_TOOL = "after_tool"
    """With the next result of a tool."""
    IMMEDIATE = "immediate"
    """With whatever request comes next, also the last one."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Show the model a short message with its next request."""

    text: str
    by: str = "hook"
    category: str = "notice"
    priority: Priority | str = Priority.NORMAL
    deliver_at: Deliver | str = Deliver.TURN_START


@dataclass(frozen=True, slots=True)
class Veto:
    """Do not make the call that was asked for."""

    message: str
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class Halt:
    """End the run."""

    by: str
    message: str = ""
    grace: bool = False
    """Whether the model reports first."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise the ceiling of a budget, never above its maximum; of `seconds`, move the deadline."""

    budget: str
    amount: int | float
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Ask a person: about the call at `call_planned`, else whether the run may go on."""

    text: str
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class UseModel:
    """Ask another of the agent's models from now on."""

    model: str
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class SetState:
    """Set a value in the run's state; None deletes it."""

    key: str
    value: object
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class Emit:
    """Tell an event of one's own."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class Fault:
    """Tell that something went wrong in what only watches or guards; the run goes on."""

    by: str
    trigger: str
    reason: str


Order = Notice | Veto | Halt | Raise | AskPerson | UseModel | SetState | Emit | Fault
"""What a hook may ask for. A veto counts at `tool_called` only; after the end nothing counts."""


class Hook(Protocol):
    """Is asked at every point of a run. It must not block.

    `about` is the call at `tool_called`, its outcome at `tool_ended`, the budget's name at `budget_refused`. A hook
    that raises at `tool_called` vetoes the call, as what guards fails closed; at `run_ended`, when all is decided, it
    changes nothing; elsewhere the run ends as failed. When a paused run goes on, it is played again: hooks are asked
    again, and must say the same.
    """

    def __call__(self, point: Point, progress: Progress, about: object = None, /) -> Sequence[Order] | None:
        """Look, and give orders, or none."""
        ...
