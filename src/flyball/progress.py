"""Progress of a run for hooks and policies, and the orders they return."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from .budget.forecast import Forecast, Pace, find_forecast, find_rooms
from .budget.run_budget import TurnBudget
from .budget.snapshot import BudgetSnapshot
from .event import Event, ModelReplied, Refunded
from .message import Message
from .outcome import Outcome
from .request import Call

if TYPE_CHECKING:
    from .recorder import Recorder


@dataclass(frozen=True, slots=True)
class Done:
    """Successful call."""

    tool: str
    arguments: Mapping[str, Any]
    """Arguments after validation, as the tool received them."""
    value: object
    """Value that the tool returned."""


class Evidence:
    """Successful calls and state of a run, which prove its work.

    Only the loop adds to it.
    """

    __slots__ = ("_by_tool", "state")

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state
        """State of the run, called engine data in Data Machine."""
        self._by_tool: dict[str, list[Done]] = {}

    def add(self, done: Done) -> None:
        """Add a successful call."""
        self._by_tool.setdefault(done.tool, []).append(done)

    def of(self, tool: str) -> tuple[Done, ...]:
        """Return the successful calls of a tool, oldest first."""
        return tuple(self._by_tool.get(tool, ()))

    def all(self) -> tuple[Done, ...]:
        """Return all successful calls, tool by tool."""
        return tuple(done for calls in self._by_tool.values() for done in calls)

    def count(self, tool: str) -> int:
        """Return the number of successful calls of a tool."""
        return len(self._by_tool.get(tool, ()))


_NO_EVIDENCE = Evidence({})


class RunPace:
    """Pace of a run in progress. It reads the events that are new when a forecast is wanted, and costs nothing else."""

    __slots__ = ("_next_seq", "_pace", "_recorder", "_token_marks")

    def __init__(self, recorder: Recorder, token_marks: Sequence[int] | None = None) -> None:
        """Read the pace from a recorder. `token_marks` is the use of tokens after each turn, if no event has it."""
        self._recorder = recorder
        self._token_marks = token_marks
        self._pace: Pace | None = None
        self._next_seq = 0

    def find_forecast(self, envelope: TurnBudget) -> Forecast | None:
        """Return the limit that will be met first; None if it is not known."""
        pace, recorder = self._pace or Pace(), self._recorder
        events = recorder.read_since(self._next_seq)
        marks = iter(self._list_tokens(events))
        for event in events:
            if event.kind == "turn_ended" and self._token_marks is not None:
                pace.note("model_replied", event.at, next(marks))
            note_event(pace, event)
        self._pace, self._next_seq = pace, recorder.seq
        return find_forecast(find_rooms(envelope), pace, envelope.budgets["tokens"].used)

    def _list_tokens(self, events: Sequence[Event]) -> list[int]:
        """Return the tokens of the turns that ended in these events, which are the last ones."""
        marks = self._token_marks or ()
        first = max(0, len(marks) - sum(event.kind == "turn_ended" for event in events))
        before = [0, *marks][first:]
        return [after - earlier for earlier, after in zip(before, marks[first:], strict=False)]


def note_event(pace: Pace, event: Event) -> None:
    """Note an event of a run in its pace."""
    amount = 0
    if isinstance(event, ModelReplied):
        amount = event.input_tokens + event.output_tokens
    elif isinstance(event, Refunded):
        amount = event.amount if event.budget == "turns" else 0
    pace.note(event.kind, event.at, amount)


@dataclass(slots=True, eq=False)
class Progress:
    """Current position of a run.

    The loop keeps it up to date; hooks and policies only read it.
    """

    run_id: str
    envelope: TurnBudget
    messages: Sequence[Message]
    """Conversation so far. The sequence grows with the run."""
    state: Mapping[str, Any]
    """Values that tools have set."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    turn: int = 0
    requests: int = 0
    text: str = ""
    """Latest text of the model."""
    calls: Sequence[Call] = ()
    """Calls of the model's latest reply."""
    outcomes: Sequence[Outcome] = ()
    """Outcomes of those calls, in the same order."""
    results: list[Outcome] = field(default_factory=list[Outcome])
    """Outcomes of all calls so far."""
    successes: dict[str, int] = field(default_factory=dict[str, int])
    """Number of successful calls by tool."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Number of unsuccessful calls by tool."""
    evidence: Evidence = _NO_EVIDENCE
    """Successful calls. Recorded only for runs with a completion policy or tool rules."""
    task: str = ""
    """Task of the run."""
    agent: str = ""
    number: int = 1
    """Number of this run in its session, from 1."""
    input_tokens: int = 0
    """Estimated input tokens of the latest request."""
    after_calls: bool = False
    """True while a policy is asked after tool results. False if it is asked because the model has ended."""

    pace: RunPace | None = None
    """Spend of the last turns. None if it is not known."""

    @property
    def forecast(self) -> Forecast | None:
        """Return the limit that will be met first, and after about how many turns.

        None if it is not known yet, or if no limit will be met. Computed when it is read.
        """
        return None if self.pace is None else self.pace.find_forecast(self.envelope)

    @property
    def budgets(self) -> Mapping[str, BudgetSnapshot]:
        """Return a snapshot of every budget by name."""
        return self.envelope.snapshots()

    @property
    def remaining_s(self) -> float:
        """Return the seconds left for work."""
        return self.envelope.remaining_s()


@dataclass(frozen=True, slots=True)
class Complete:
    """Decision that the task is done.

    `output` is the typed answer. None if the caller asked for none.
    """

    output: object = None
    satisfied: tuple[str, ...] = ()
    text: str | None = None
    """Answer of the run. None means the model's text. After tool results only a decision with a text ends the run."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Decision that the task is not done and the model should continue.

    The model gets `message` as a nudge, within the `nudges` budget.
    """

    message: str
    missing: tuple[str, ...] = ()
    satisfied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Decision that the task is not done and more turns would not help."""

    missing: tuple[str, ...] = ()
    satisfied: tuple[str, ...] = ()


Decision = Complete | Continue | Unfinished
"""Decision of a completion policy about a run that would end now."""


class Policy(Protocol):
    """Completion policy: decides if a run may end.

    It is asked when the model has ended, and after tool results (`progress.after_calls`). It must not block. If it
    raises, the run ends as failed.
    """

    def __call__(self, progress: Progress, /) -> Decision:
        """Return the decision for a run that would end now."""
        ...


class Point(StrEnum):
    """Point of a run at which hooks are called."""

    RUN_STARTED = "run_started"
    TURN_STARTED = "turn_started"
    TURN_ENDED = "turn_ended"
    CALL_PLANNED = "call_planned"
    """Before any call of a batch is made. A hook that wants a person's approval asks here."""
    TOOL_CALLED = "tool_called"
    TOOL_ENDED = "tool_ended"
    BUDGET_REFUSED = "budget_refused"
    STALLED = "stalled"
    RUN_ENDED = "run_ended"


class Priority(StrEnum):
    """Order of notices in a request."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Deliver(StrEnum):
    """Request that a notice is delivered with."""

    TURN_START = "turn_start"
    """First request of the next turn."""
    AFTER_TOOL = "after_tool"
    """First request after the next tool result."""
    IMMEDIATE = "immediate"
    """Next request of any kind, including the grace request."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Order to show the model a short text with a later request."""

    text: str
    by: str = "hook"
    category: str = "notice"
    priority: Priority | str = Priority.NORMAL
    deliver_at: Deliver | str = Deliver.TURN_START


@dataclass(frozen=True, slots=True)
class Veto:
    """Order to deny the call."""

    message: str
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class Halt:
    """Order to end the run."""

    by: str
    message: str = ""
    grace: bool = False
    """True if the model writes a report first."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Order to raise the ceiling of a budget, up to its maximum.

    For `seconds` it moves the deadline.
    """

    budget: str
    amount: int | float
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Order to ask a person.

    At `call_planned` the question is about the call, elsewhere about continuing the run.
    """

    text: str
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class UseModel:
    """Order to use another of the agent's models for later requests."""

    model: str
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class SetState:
    """Order to set a value in the run's state; None deletes it."""

    key: str
    value: object
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class Emit:
    """Order to emit a custom event."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by: str = "hook"


@dataclass(frozen=True, slots=True)
class Fault:
    """Order to record a fault in an observer or guard; the run continues."""

    by: str
    trigger: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReplaceResult:
    """Order to show the model another text as the result of the call.

    The outcome in the run's result, and what it proves, stay as they are.
    """

    text: str
    by: str = "hook"


Order = Notice | Veto | Halt | Raise | AskPerson | UseModel | SetState | Emit | Fault | ReplaceResult
"""Any order of a hook. A veto has an effect only at `tool_called`, a new result only at `tool_ended`.

No order has an effect after the end.
"""


class Hook(Protocol):
    """Function that is called at every point of a run.

    It must not block. `about` is the call at `tool_called`, its outcome at `tool_ended`, the budget's name at
    `budget_refused`. If a hook raises at `tool_called`, the call is vetoed, because guards fail closed. At `run_ended`
    an exception changes nothing, because the end is decided. Elsewhere it ends the run as failed. A resumed run is
    replayed: its hooks are called again and must return the same orders.
    """

    def __call__(self, point: Point, progress: Progress, about: object = None, /) -> Sequence[Order] | None:
        """Return the orders for this point, or None."""
        ...


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        from ._deprecated import find_old_name

        return globals().setdefault(name, find_old_name(__name__, name))


def apply_changes(state: MutableMapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Change the state of a run. None deletes a key."""
    for key, value in changes.items():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
