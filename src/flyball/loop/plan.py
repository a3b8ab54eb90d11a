"""The plan: all that the loop and a driver need for one run. An Agent makes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..budget.limits import ResolvedLimits
from ..budget.price import Price
from ..budget.run_budget import TurnBudget
from ..completion.assertions import Assertions
from ..event import Header
from ..message import Message
from ..outcome import Denied, Outcome
from ..progress import Hook, Point, Policy, Progress
from ..request import Call, Request
from ..rules import RuleSet
from ..rules.thresholds import StartCache
from ..steadiness import Duplicates, Reflection, Thresholds
from ..tool_rules import ToolRules
from .effects import Doable


class ToolFacts(Protocol):
    """What the loop knows of a tool."""

    name: str
    cheap: bool
    writes: bool
    """Whether it changes anything."""
    poll: bool
    """Whether it is there to be called again and again."""
    duplicates: Duplicates | None
    """What becomes of an equal call; None as the agent says."""

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool | str:
        """Whether a person must agree to this call; a text is what that person is asked."""
        ...


class Prepared(Protocol):
    """A call that was read, and may be made."""

    answer: str
    """What a person said to it."""

    @property
    def call(self) -> Call:
        """What the model asked for."""
        ...

    @property
    def tool(self) -> ToolFacts:
        """What is called."""
        ...

    @property
    def values(self) -> dict[str, Any]:
        """The arguments, checked."""
        ...

    @property
    def ordered_arguments(self) -> dict[str, Any] | None:
        """The same in one order, whatever that was in which they were written; None where that is not so."""
        ...

    @property
    def redacted_arguments(self) -> dict[str, Any]:
        """The arguments as events may show them."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """What it takes of budgets that others share."""
        ...

    @property
    def tasks(self) -> Sequence[Any]:
        """What it hands to children."""
        ...


class CallAdmission(Protocol):
    """Which calls of one run are made; `tools.Admission` is one."""

    def group_calls(self, calls: Sequence[Call]) -> Iterable[Sequence[Call]]:
        """The calls that may be made side by side, group after group, in the order asked."""
        ...

    def read(self, call: Call) -> Prepared | Denied:
        """The call with its arguments checked, or why it is not made."""
        ...

    def check_budget(self, tool_call: Any) -> Denied | None:
        """Why the call could not be counted now; None where it could."""
        ...

    def claim(self, tool_call: Any) -> Denied | None:
        """Count the call; or why it is not made."""
        ...

    def refund(self, tool_call: Any, reason: str) -> Sequence[str]:
        """Give back what was claimed for a call that is not made after all; the budgets that got it back."""
        ...

    def note(self, name: str, outcome: Outcome) -> None:
        """Learn from a call that has ended."""
        ...

    def close(self) -> None:
        """Book what is still set aside for children; the run is over."""
        ...


class ModelFacts(Protocol):
    """What the loop knows of the model."""

    @property
    def name(self) -> str:
        """What results and events call it."""
        ...

    @property
    def provider(self) -> str | None:
        """Who runs it."""
        ...

    @property
    def price(self) -> Price | None:
        """What its tokens cost."""
        ...

    def ready(self) -> str | None:
        """None, or why it cannot be asked at all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What is known of a model before it is asked, and so what may be asked of it."""

    price: Price | None = None
    """What its tokens cost; None where nobody knows."""
    max_output_tokens: int | None = None
    """The most that one reply may have, by the agent's word and by the model's."""
    context_tokens: int | None = None
    """How much it takes at once, its reply included."""
    count: Callable[[Request], int] | None = None
    """Its own counter of a request's tokens."""
    base_tokens: int = 0
    """An upper estimate of what instructions and tools take of every request."""

    def input_room(self, limit: int | None) -> float:
        """The most tokens of a request: within the limit, and so that the model has room for its reply.

        That room is its longest reply, but no more than a quarter of what it takes at once.
        """
        most = math.inf if limit is None else limit
        if self.context_tokens is None:
            return most
        quarter = self.context_tokens // 4
        reply = quarter if self.max_output_tokens is None else min(quarter, self.max_output_tokens)
        return min(most, self.context_tokens - reply)

    def output_room(self, input_tokens: int) -> int | None:
        """The most tokens of a reply to so many: the longest, and no more than the model takes beside them."""
        most = self.max_output_tokens
        if self.context_tokens is None:
            return most
        beside = max(1, self.context_tokens - input_tokens)
        return beside if most is None else min(most, beside)


@dataclass(slots=True, kw_only=True)
class AgentSpec:
    """What all runs of one agent share."""

    model: ModelFacts
    model_is_async: bool
    limits: ResolvedLimits
    admission: Callable[[TurnBudget], CallAdmission]
    origin: object = field(default_factory=object)
    """Whose it is: the same for all that were made from one."""
    sources: Sequence[Any] = ()
    """Where more tools come from; whoever drives a run opens them first, and goes on with what `offering` gives."""
    resolve_tools: Callable[[AgentSpec, Sequence[Sequence[Any]]], AgentSpec] | None = None
    """A terrain with these tools and those that the sources have given, one list for each."""
    allowed_tools: frozenset[str] | None = None
    """The tools to which it is narrowed; None where it is not."""
    tools: Sequence[Mapping[str, Any]] = ()
    """What the model is told of the tools."""
    tool_names: tuple[str, ...] = ()
    sensitive: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The parameters, by tool, that exports do not show."""
    approval_tools: frozenset[str] = frozenset()
    """The tools of which some calls need a person."""
    children: Sequence[Any] = ()
    """The edges to those that it may delegate to."""
    may_delegate: bool = False
    """Whether runs of it may have children: it has some to delegate to, or a tool that may find its own."""
    resolve_child: Callable[[object], Any] | None = None
    """The edge to a child that a tool wants: one of those, by its name, or an agent."""
    join_duplicate_children: bool = False
    """Whether equal tasks of one batch are one run."""
    max_concurrent_children: int = 1
    children_stall_s: float = math.inf
    cheap_tools: frozenset[str] = frozenset()
    """The tools of which a round costs no turn."""
    limits_snapshot: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The ceilings, as the first event tells them."""
    instructions: str | None = None
    output_schema: Mapping[str, Any] | None = None
    completion: Policy | None = None
    assertions: Assertions | None = None
    """Those that the policy looks at, for what is looked at before a run, between turns and at its end."""
    tool_rules: ToolRules | None = None
    duplicates: Duplicates = Duplicates.ALLOW
    thresholds: Thresholds = field(default_factory=Thresholds)
    reflection: Reflection | None = None
    compact: Callable[[Sequence[Message], str], Doable] | None = None
    """Makes the call that sums up messages, by their list and its id."""
    should_continue: Callable[[Progress], bool] | None = None
    hooks: tuple[Hook, ...] = ()
    rules: RuleSet | None = None
    rule_points: frozenset[Point] = frozenset()
    """When some rule looks."""
    beginning: StartCache | None = None
    """What is known of the first look of rules, in runs that inherit nothing."""
    rules_need_approval: bool = False
    """Whether some rule wants a person to agree to calls."""
    models: Mapping[str, ModelFacts] = field(default_factory=dict[str, ModelFacts])
    """Those that a rule may have asked instead, by name."""
    cards: Mapping[str, ModelCard] = field(default_factory=dict[str, ModelCard])
    """What is known of each model, by the same names; that of the agent's own is under ''."""
    agent: str = ""
    instruction_tokens: int = 0
    max_output_tokens: int | None = None
    """The most that one reply may have, by the agent's word; the model's own counts only where a budget limits."""
    grace: bool = True
    single_turn: bool = False
    asks_for_extension: bool = False
    """Whether a person is asked for more when a limit is met."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """One run: what it is about, and what is its own."""

    spec: AgentSpec
    run_id: str
    messages: Sequence[Message]
    """The task, behind what was said before."""
    session_id: str | None = None
    started_at: float = 0.0
    """Seconds since the epoch."""
    until: float | None = None
    """The time of day when it must have ended its work, in seconds since the epoch."""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    """What tools have set; the run's own."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_seconds: float = math.inf
    """What others leave of the time."""
    max_amounts: Mapping[str, int] | None = None
    """What others leave of tokens and money."""
    has_transcript: bool = False
    """Whether there is a transcript, in which what is said must be kept."""
    stored_count: int = 0
    """How many of the messages are in it already."""
    number: int = 1
    """Which run of its session it is."""
    extra_instructions: str = ""
    """What its instructions say beside those of its agent."""
    contention: str | None = None
    """Who else works on its session, so that it cannot begin."""
    elapsed_s: float = 0.0
    """What of its time was over when its loop began: opening its sources took it."""
    start_error: Mapping[str, Any] | None = None
    """Why it cannot begin, as a result tells an error."""
    cancelled_by: str | None = None
    """Who has ended it before it could begin."""
    parent_run_id: str | None = None
    """The run that has delegated this one."""
    level: int = 0
    """How many runs are above it."""
    has_shared_budget: bool = False
    """Whether claims also count in budgets that others share."""
    seed: int = 0
    """For the jitter of waits."""

    @property
    def header(self) -> Header:
        """What all events of the run share."""
        return Header(self.run_id, self.session_id, self.started_at, self.metadata, self.parent_run_id)
