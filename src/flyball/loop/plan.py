"""Plan: everything that the loop and a driver need for one run.

An Agent builds an `AgentSpec` once, and a `Plan` for each run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from ..budget.limits import ResolvedLimits
from ..budget.price import Price
from ..budget.run_budget import TurnBudget
from ..completion.assertions import Assertions
from ..event import Header
from ..message import Message
from ..outcome import Denied, Outcome
from ..progress import Hook, Point, Policy, Progress
from ..request import Call, Request, estimate_tokens, estimate_tools_tokens
from ..rules import RuleSet
from ..rules.thresholds import StartCache
from ..steadiness import Duplicates, Reflection, Thresholds
from ..tool_rules import ToolRules
from .effects import Doable
from .ending import End

if TYPE_CHECKING:
    from .child_task import ChildSpec  # cycle: a child's spec contains the spec of its agent


class ToolFacts(Protocol):
    """Facts that the loop reads from a tool."""

    name: str
    cheap: bool
    """True if a turn with only such calls is refunded."""
    writes: bool
    """True if a call may change something."""
    poll: bool
    """True if repeated calls are expected, as when waiting for something."""
    duplicates: Duplicates | None
    """Handling of equal calls. None means that the agent decides."""
    is_client: bool
    """True if the caller of the run makes the calls, and passes their results when it resumes the run."""

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool | str:
        """Return whether a person must approve this call. A text is the question for that person."""
        ...


class Prepared(Protocol):
    """Tool call with checked arguments."""

    answer: str
    """Answer of a person to the question about this call."""

    @property
    def call(self) -> Call:
        """Call as the model requested it."""
        ...

    @property
    def tool(self) -> ToolFacts:
        """Tool that is called."""
        ...

    @property
    def values(self) -> dict[str, Any]:
        """Checked arguments."""
        ...

    @property
    def canonical_arguments(self) -> bytes | None:
        """Text that is equal for equal arguments. None if it must be computed from what the model wrote."""
        ...

    @property
    def redacted_arguments(self) -> dict[str, Any]:
        """Arguments for events, with sensitive values hidden."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """Units that the call takes from shared budgets, by budget."""
        ...

    @property
    def tasks(self) -> Sequence[Any]:
        """Tasks that the call delegates to children."""
        ...

    @property
    def in_background(self) -> bool:
        """True if the call is done when its child runs have started."""
        ...


class CallAdmission(Protocol):
    """Gate for the tool calls of one run, such as `tools.Admission`."""

    def group_calls(self, calls: Sequence[Call]) -> Iterable[Sequence[Call]]:
        """Yield groups of calls that may run at the same time, in the requested order."""
        ...

    def read(self, call: Call) -> Prepared | Denied:
        """Return the call with checked arguments, or why it is denied."""
        ...

    def check_budget(self, tool_call: Any) -> Denied | None:
        """Return why the call could not be claimed now, or None."""
        ...

    def claim(self, tool_call: Any) -> Denied | None:
        """Claim the budgets of the call. Return why it is denied, or None."""
        ...

    def refund(self, tool_call: Any, reason: str) -> Sequence[str]:
        """Refund a claimed call that is not made, and return the names of the budgets."""
        ...

    def note(self, name: str, outcome: Outcome) -> None:
        """Record the outcome of a call."""
        ...

    def pause_children(self, by: str | None) -> None:
        """Deny calls that start child runs, because of `by`. None means that they may start."""
        ...

    def close(self) -> None:
        """Settle what is still reserved for children, at the end of the run."""
        ...


class ModelFacts(Protocol):
    """Facts that the loop reads from a model."""

    @property
    def name(self) -> str:
        """Name in results and events."""
        ...

    @property
    def provider(self) -> str | None:
        """Name of the provider. None if it is unknown."""
        ...

    @property
    def price(self) -> Price | None:
        """Price of its tokens. None if it is unknown."""
        ...

    def ready(self) -> str | None:
        """Return why the model cannot be asked, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Facts about a model that limit what it may be asked."""

    price: Price | None = None
    """Price of its tokens. None if it is unknown."""
    max_output_tokens: int | None = None
    """Maximum output tokens of one reply: the lower of the agent's and the model's. None means no maximum."""
    min_output_tokens: int = 1
    """Lowest limit for the tokens of a reply that its provider accepts."""
    context_tokens: int | None = None
    """Context window in tokens, including the reply. None if it is unknown."""
    count: Callable[[Request], int] | None = None
    """Token counter of the model. None means that tokens are estimated."""
    server: str | None = None
    """Host and port of the model's server. None if it is not asked over a network."""
    base_tokens: int = 0
    """Upper estimate of the tokens of instructions and tools in every request."""

    def input_room(self, limit: int | None) -> float:
        """Return the maximum tokens of a request: within `limit`, and with room for the reply.

        That room is the longest reply, but at most a quarter of the context window.
        """
        most = math.inf if limit is None else limit
        if self.context_tokens is None:
            return most
        quarter = self.context_tokens // 4
        reply = quarter if self.max_output_tokens is None else min(quarter, self.max_output_tokens)
        return min(most, self.context_tokens - reply)

    def output_room(self, input_tokens: int) -> int | None:
        """Return the maximum tokens of the reply to a request of `input_tokens`."""
        most = self.max_output_tokens
        if self.context_tokens is None:
            return most
        beside = max(1, self.context_tokens - input_tokens)
        return beside if most is None else min(most, beside)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Models that the runs of an agent can ask."""

    main: ModelFacts
    """Model that is asked unless a rule switches to another."""
    is_async: bool
    """True if `main.ask` is async."""
    cards: Mapping[str, ModelCard]
    """Facts about each model, by name. The key of `main` is ''."""
    others: Mapping[str, ModelFacts] = field(default_factory=dict[str, ModelFacts])
    """Models that a rule or a failure can switch to, by name."""
    fallbacks: tuple[str, ...] = ()
    """Names of the models to ask after a failure, in this order."""
    candidates: tuple[str, ...] = field(init=False)
    """Names of the main model and its fallback models."""
    max_output_tokens: int | None = None
    """Maximum output tokens of one reply, as set by the user. None means that only budgets limit it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", ("", *self.fallbacks))

    def find(self, name: str) -> ModelFacts:
        """Return the model of a card."""
        return self.others[name] if name else self.main

    def with_base_tokens(self, estimate: Callable[[str, ModelCard], int]) -> ModelSpec:
        """Return the spec with new base tokens. `estimate` gets the name of a model and its card."""
        cards = {name: replace(card, base_tokens=estimate(name, card)) for name, card in self.cards.items()}
        return replace(self, cards=cards)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """Tools that the runs of an agent can call."""

    admission: Callable[[TurnBudget], CallAdmission]
    """Returns the gate for the calls of one run."""
    definitions: Sequence[Mapping[str, Any]] = ()
    """Definitions of the tools, as sent to the model."""
    names: tuple[str, ...] = ()
    cheap: frozenset[str] = frozenset()
    """Names of the tools whose calls cost no turn."""
    need_approval: frozenset[str] = frozenset()
    """Names of the tools that ask a person about some calls."""
    sensitive: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Parameters that exports hide, by tool."""
    skip_duplicates: bool = False
    """True if some tool has its own handling of equal calls, so that the run must keep their results."""
    may_delegate: bool = False
    """True if runs may have child runs: the agent has children, or a tool can call `ctx.delegate`."""
    rules: ToolRules | None = None
    """Rules about when each tool may be called. None means no such rules."""
    sources: Sequence[Any] = ()
    """Sources of more tools. The driver opens them before the loop starts, and then calls `resolve`."""
    resolve: Callable[[AgentSpec, Sequence[Sequence[Any]]], AgentSpec] | None = None
    """Returns a spec with the tools of the agent and those of its sources, given one list per source."""
    allowed: frozenset[str] | None = None
    """Names of the tools that the run may use. None means all."""
    recall: Mapping[str, Any] | None = None
    """Definition of `read_artifact`, which is offered once there is an artifact. None means never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildrenSpec:
    """Children of an agent, and how their runs are scheduled."""

    specs: Sequence[ChildSpec] = ()
    resolve: Callable[[object], ChildSpec] | None = None
    """Returns the spec of a child that a tool names or passes. None means that tools cannot delegate."""
    join_duplicates: bool = False
    """True if equal tasks of one batch share one run."""
    max_concurrent: int = 1
    """Maximum number of child runs at the same time."""
    in_background: bool = False
    """True if child runs may work in the background."""
    stall_s: float = math.inf
    """Seconds without progress after which a child run is stopped."""


@dataclass(slots=True, kw_only=True)
class RuleSpec:
    """Rules and hooks of an agent."""

    hooks: tuple[Hook, ...] = ()
    ruleset: RuleSet | None = None
    """Compiled rules. None means no rules, not even the core rules."""
    points: frozenset[Point] = frozenset()
    """Points at which some rule is checked."""
    quiet_points: frozenset[Point] = field(init=False)
    """The same for a turn before which no budget has changed in a way that rules must know."""
    need_approval: bool = False
    """True if some rule asks a person about calls."""
    start_cache: StartCache | None = None
    """Thresholds at the start of a run that inherits nothing. None until the first such run."""

    def __post_init__(self) -> None:
        self.quiet_points = self.points - {Point.TURN_STARTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionSpec:
    """Check of whether the task is done when the model stops."""

    policy: Policy | None = None
    """Policy that decides. None means that the task is done when the model stops."""
    assertions: Assertions | None = None
    """Assertions of the policy. The loop also checks them before the run, between turns and at its end."""
    asks_after_calls: bool = False
    """True if the policy is asked after tool results too: a policy of the user is, assertions alone are not."""
    output_schema: Mapping[str, Any] | None = None
    """JSON schema of the answer. None means text."""

    @property
    def may_end_early(self) -> bool:
        """True if tool results may complete a run before its model ends."""
        has_outcomes = self.assertions is not None and self.assertions.may_end_early and self.output_schema is None
        return self.asks_after_calls or has_outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Choices about how a run continues, repeats itself and ends."""

    grace: bool = True
    """True if a run that reached a limit gets one more request, without tools, for a report."""
    check_report: bool = True
    """True if claims of a report that no outcome supports are named beside it."""
    single_turn: bool = False
    """True if the run ends after one turn."""
    asks_for_extension: bool = False
    """True if a person is asked to raise a limit that was reached."""
    duplicates: Duplicates = Duplicates.ALLOW
    """Handling of a repeated call when nothing changed since the first."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    """Numbers of repetitions that count as a loop."""
    reflection: Reflection | None = None
    """Points at which the model reviews its work. None means never."""
    compact: Callable[[Sequence[Message], str], Doable] | None = None
    """Returns the call that summarizes messages, given the messages and the call's id. None means that old messages
    are elided."""
    should_continue: Callable[[Progress], bool] | None = None
    """Function called between turns; False halts the run."""
    checks_turns: bool = field(init=False)
    """True if something besides limits and signals decides after a turn whether the run continues."""

    def __post_init__(self) -> None:
        checks = self.single_turn or self.should_continue is not None or self.reflection is not None
        object.__setattr__(self, "checks_turns", checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """Data and functions that all runs of one agent share."""

    name: str = ""
    instructions: str | None = None
    instruction_tokens: int = 0
    """Estimated tokens of the instructions."""
    limits: ResolvedLimits
    limits_snapshot: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Ceilings, as the event `run_started` shows them."""
    model: ModelSpec
    tools: ToolSpec
    children: ChildrenSpec = field(default_factory=ChildrenSpec)
    rules: RuleSpec = field(default_factory=RuleSpec)
    completion: CompletionSpec = field(default_factory=CompletionSpec)
    behaviour: Behaviour = field(default_factory=Behaviour)
    origin: object = field(default_factory=object)
    """Identity of the agent. All specs derived from one have the same origin."""
    may_need_approval: bool = field(init=False)
    """True if a person may be asked about calls."""
    may_pause: bool = field(init=False)
    """True if a person may be asked anything, so that a run may wait for the answer."""

    def __post_init__(self) -> None:
        rules, tools = self.rules, self.tools
        rules_ask = rules.ruleset is not None and rules.ruleset.can_ask_person
        may_need_approval = bool(tools.need_approval or rules.need_approval)
        may_pause = rules_ask or may_need_approval or self.behaviour.asks_for_extension
        object.__setattr__(self, "may_need_approval", may_need_approval)
        object.__setattr__(self, "may_pause", bool(may_pause or rules.hooks or tools.sources))

    def with_limits(self, limits: ResolvedLimits) -> AgentSpec:
        """Return the spec with other limits. The start cache of its rules is dropped, because it depends on them."""
        return replace(self, limits=limits, rules=replace(self.rules, start_cache=None))

    def with_tools(self, tools: ToolSpec) -> AgentSpec:
        """Return the spec with other tools, and the base tokens of its models to match."""

        def estimate(name: str, card: ModelCard) -> int:
            provider = self.model.find(name).provider
            tokens = estimate_tools_tokens(tools.definitions, self.completion.output_schema, provider)
            return self.instruction_tokens + tokens

        return replace(self, tools=tools, model=self.model.with_base_tokens(estimate))

    def narrow_tools(self, allowed: frozenset[str]) -> AgentSpec:
        """Return the spec with these tools only. Tools of sources are narrowed when the driver has opened them."""
        resolve = self.tools.resolve
        if resolve is None:
            return self
        narrowed = replace(self, tools=replace(self.tools, allowed=allowed))
        return narrowed if self.tools.sources else resolve(narrowed, ())

    def add_instructions(self, text: str, replacing: str = "") -> AgentSpec:
        """Return the spec with more instructions, in place of earlier ones that were added."""
        before = self.instructions
        if replacing:
            before = (before or "").removesuffix(replacing).removesuffix("\n\n")
        more = estimate_tokens(text) - estimate_tokens(replacing)
        return replace(
            self,
            instructions=f"{before}\n\n{text}" if before else text,
            instruction_tokens=self.instruction_tokens + more,
            model=self.model.with_base_tokens(lambda _, card: card.base_tokens + more),
        )


@dataclass(slots=True, kw_only=True)
class Plan:
    """Input of one run: the spec of its agent, its task, and its own data."""

    spec: AgentSpec
    run_id: str
    messages: Sequence[Message]
    """Earlier messages of the session, then the task."""
    session_id: str | None = None
    """None means that the run has no session."""
    started_at: float = 0.0
    """Seconds since the epoch."""
    until: float | None = None
    """Time at which work must end, in seconds since the epoch. None means no such time."""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    """Values of `ctx.state`. The run changes them."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_seconds: float = math.inf
    """Seconds left in the deadline shared with other runs."""
    max_amounts: Mapping[str, int] | None = None
    """Amounts left in shared budgets, by budget. None means no shared budget."""
    has_transcript: bool = False
    """True if a store keeps the transcript, so that the loop must append to it."""
    stored_count: int = 0
    """Number of messages that the transcript already has."""
    session_run_number: int = 1
    """Number of the run in its session, from 1."""
    extra_instructions: str = ""
    """Instructions that were added to those of the agent."""
    elapsed_s: float = 0.0
    """Seconds used before the loop started, to open tool sources."""
    not_started: End | None = None
    """End of a run that cannot start. None means that it starts."""
    parent_run_id: str | None = None
    """Run that delegated this one. None means that it is no child run."""
    level: int = 0
    """Number of runs above this one in its tree."""
    has_shared_budget: bool = False
    """True if claims also count in budgets that other runs share."""
    token_scale: float | None = None
    """Factor for nearer estimates of tokens, as the provider reported before. None means that there are none."""
    jitter_seed: int = 0
    """Seed for the random part of waits."""

    @property
    def inherits(self) -> bool:
        """True if the run starts with less than the limits of its agent: with less time, or with capped amounts."""
        return self.max_amounts is not None or self.max_seconds != math.inf or self.level > 0 or self.elapsed_s > 0

    @property
    def header(self) -> Header:
        """Data that all events of the run share."""
        return Header(self.run_id, self.session_id, self.started_at, self.metadata, self.parent_run_id)
