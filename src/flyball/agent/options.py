"""Options of an agent, of a new run and of a resumed run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .._internal import validation
from ..budget.deadline import SYSTEM
from ..budget.limits import Limits, RunKind
from ..budget.price import Unpriced
from ..budget.run_budget import TurnBudget
from ..steadiness import Duplicates

if TYPE_CHECKING:
    from pathlib import Path

    from ..budget.deadline import Clock
    from ..budget.registry import IterationBudgetRegistry
    from ..completion.assertions import Assertions
    from ..message import Message
    from ..models import Model
    from ..person import Approver
    from ..progress import Hook, Policy, Progress
    from ..recorder import Sink
    from ..rules import RuleSet
    from ..settings import Settings
    from ..steadiness import Reflection, Thresholds
    from ..store import Store
    from ..tool_rules import ToolRule, ToolRules
    from ..tools.excerpt import Excerpt
    from ..tools.source import Tools
    from .delegation import Child, Delegable


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AgentOptions:
    """Constructor arguments of an `Agent`, as the caller passes them. `check_agent` validates them."""

    model: Model | str
    """Model, or its name: `openai:NAME`, `anthropic:NAME`, `http://HOST:PORT/v1#NAME`, `local:smollm2`,
    `local:PATH.gguf`, `script:PATH.toml`."""
    tools: Tools = ()
    """Functions, tools, definitions by name, and sources of tools such as `mcp(...)`. Each run opens its sources and
    closes them."""
    children: Sequence[Child | Delegable] = ()
    """Agents to delegate tasks to, including remote ones. A `Child` selects how its budget relates to the parent's."""
    background_children: bool = False
    """True if the model may delegate in the background: `delegate` takes `background`, and the tool `collect` is
    offered."""
    description: str = ""
    """Purpose of the agent in one sentence, shown to agents that can delegate to it."""
    instructions: str | None = None
    limits: Limits = field(default_factory=Limits)
    announce_limits: bool = False
    """True if the instructions end with the limits of the run. They do not change in a run, which keeps a provider's
    prompt cache. Child runs always get theirs."""
    name: str = "agent"
    output: Any = None
    """Type of the answer: a pydantic model, a dataclass, or another type that JSON can represent. None means text."""
    completion: Policy | Assertions | Mapping[str, Any] | str | Path | None = None
    """Check of whether the task is done when the model stops: a policy, assertions, a mapping of assertions, or the
    path of a TOML file. None means that the task is done when the model stops."""
    tool_rules: ToolRules | Sequence[ToolRule | Mapping[str, Any]] | str | Path | None = None
    """Rules about when each tool may be called, as objects, mappings, or the path of a TOML file."""
    duplicates: Duplicates | Literal["allow", "reuse", "reject"] = Duplicates.ALLOW
    """Handling of a call that equals an earlier one, if nothing has changed since. A tool can override it."""
    repetition: Thresholds | None = None
    """Thresholds from which repeated calls count as a loop. None means the settings."""
    reflection: Reflection | None = None
    """Points at which the model reviews its work in a request without tools. None means never."""
    compact: Callable[[Sequence[Message]], Any] | None = None
    """Function that summarizes old messages when the conversation gets too long. It may be async, and has 60 seconds.
    If it fails, or its summary is too long, or it is None, old messages are elided."""
    max_result_characters: int | None = None
    """Characters of a tool's result that the model sees, at least 500. None means 12,000. A tool can override it."""
    excerpt: Excerpt | None = None
    """Function of a too long result and the maximum that returns what the model sees. A tool can override it. None
    means the beginning, with the length and the id of the whole."""
    recall: bool = True
    """True if the tool `read_artifact` is offered once a result was shown as an excerpt."""
    should_continue: Callable[[Progress], bool] | None = None
    """Function called between turns; False halts the run. It must not block. If it raises, the run ends as failed."""
    hooks: Sequence[Hook] = ()
    rules: RuleSet | str | Path | Sequence[str | Path] = ()
    """Rule files, or folders of them, in addition to the core rules. `ruleset.problems` lists invalid files."""
    reload_rules: bool = False
    """True if changed rule files are loaded again before each run. An invalid file keeps its last valid version."""
    models: Mapping[str, Model | str] = field(default_factory=dict[str, "Model | str"])
    """Other models that a rule can switch to, by name."""
    fallback_models: Sequence[Model | str] = ()
    """Models to ask when the present one times out or its provider fails, in this order: models, their names, or keys
    of `models`. Each attempt takes one of `retries`."""
    approver: Approver | None = None
    """Function that answers a Question for a person, sync or async. None means that the run pauses."""
    approver_seconds: float | None = 600.0
    """Seconds to wait for an answer; then it is no. None means no limit. The wait does not use the run's time."""
    on_exhausted: Literal["grace", "ask"] = "grace"
    """Action when a limit is reached: `grace` asks for the report, `ask` first asks a person to raise the limit."""
    grace: bool = True
    """True if a run that reached a limit gets one more request, without tools, for a report."""
    check_report: bool = True
    """True if the record of the run is shown beside a report whose claims no outcome supports. It reads English."""
    single_turn: bool = False
    store: Store | str | None = None
    """Store of runs and sessions, or its address: `sqlite:///runs.db`, `memory:`. None means that nothing is stored."""
    lease_seconds: float = 300.0
    """Seconds that a run keeps its session locked after its process stops responding."""
    start_metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Data that the store adds to `metadata` in the start of each run. Results and events do not have it."""
    unpriced: Unpriced | Literal["refuse", "tokens_only"] = Unpriced.REFUSE
    """Handling of a money limit when the price of a model is unknown: `refuse` raises an error, `tokens_only` ignores
    the limit for that model and lists it in `result.unpriced`."""
    max_output_tokens: int | None = None
    """Maximum output tokens of one reply. None means that only the budgets limit it."""
    sinks: Sequence[Sink] = ()
    events_kept: int = 10_000
    registry: IterationBudgetRegistry | None = None
    settings: Settings | Mapping[str, object] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Data that is copied to results and to every event."""
    clock: Clock = SYSTEM
    kind: RunKind = RunKind.AGENT
    """Selects the registered budgets for `turns` and `seconds`."""


class RunOptions(TypedDict, total=False):
    """Options of one run. All are optional."""

    within: TurnBudget
    """Shared budget. The claims of this run also count there, and it can refuse them."""
    run_id: str
    session: str
    """Session to continue if the agent has a store. Without a store it is only a name in results and events."""
    wait_seconds: float
    """Seconds to wait for another run that holds the session. Default: 0; the run then ends as `contended`."""
    metadata: Mapping[str, Any]
    """Data that is added to the agent's metadata."""
    state: Mapping[str, Any]
    """Initial values of `ctx.state`."""


class ResumeOptions(TypedDict, total=False):
    """Options of a run that is resumed from a store. All are optional."""

    extend: Mapping[str, float]
    """Increase of the limits that the run reached: `{"turns": 20, "seconds": 60}`."""
    from_messages: bool
    """True to start a new run from the messages of the session, if the old run cannot be resumed."""
    within: TurnBudget
    """Budget that the run shares with other runs."""
    wait_seconds: float
    """Seconds to wait for another run that holds the session. Default: 0."""


def check_run_options(options: RunOptions) -> None:
    """Raise ConfigError for the first invalid option."""
    validation.check_options("run", options, RunOptions.__annotations__)
    for name, kind in (("within", TurnBudget), ("metadata", Mapping), ("state", Mapping)):
        if options.get(name) is not None:
            validation.check_type(f"run, {name}", options.get(name), kind)
    for name in ("run_id", "session"):
        if options.get(name) is not None:
            validation.check_text(f"run, {name}", options.get(name))
    if "wait_seconds" in options:  # checked even without a store, which would ignore it
        validation.parse_duration("run, wait_seconds", options["wait_seconds"])
