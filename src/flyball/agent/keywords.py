"""Options of an agent as keywords, for type checkers: they cannot infer the type of the answer from a dataclass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from ..budget.deadline import Clock
from ..budget.limits import Limits, RunKind
from ..budget.price import Unpriced
from ..budget.registry import IterationBudgetRegistry
from ..completion.assertions import Assertions
from ..message import Message
from ..models import Model
from ..person import Approver
from ..progress import Hook, Policy, Progress
from ..recorder import Sink
from ..rules import RuleSet
from ..settings import Settings
from ..steadiness import Duplicates, Reflection, Thresholds
from ..store import Store
from ..tool_rules import ToolRule, ToolRules
from ..tools.excerpt import Excerpt
from ..tools.source import Tools
from .delegation import Child, Delegable


class SharedKeywords(TypedDict, total=False):
    """Options that `Agent` and `run_conversation` take. `AgentOptions` explains them."""

    children: Sequence[Child | Delegable]
    background_children: bool
    instructions: str | None
    limits: Limits
    announce_limits: bool
    completion: Policy | Assertions | Mapping[str, Any] | str | Path | None
    tool_rules: ToolRules | Sequence[ToolRule | Mapping[str, Any]] | str | Path | None
    duplicates: Duplicates | Literal["allow", "reuse", "reject"]
    repetition: Thresholds | None
    reflection: Reflection | None
    compact: Callable[[Sequence[Message]], Any] | None
    max_result_characters: int | None
    excerpt: Excerpt | None
    recall: bool
    should_continue: Callable[[Progress], bool] | None
    hooks: Sequence[Hook]
    rules: RuleSet | str | Path | Sequence[str | Path]
    reload_rules: bool
    models: Mapping[str, Model | str]
    fallback_models: Sequence[Model | str]
    approver: Approver | None
    approver_seconds: float | None
    on_exhausted: Literal["grace", "ask"]
    grace: bool
    check_report: bool
    single_turn: bool
    lease_seconds: float
    start_metadata: Mapping[str, Any]
    unpriced: Unpriced | Literal["refuse", "tokens_only"]
    max_output_tokens: int | None
    sinks: Sequence[Sink]
    events_kept: int
    settings: Settings | Mapping[str, object] | None
    clock: Clock


class AgentKeywords(SharedKeywords, total=False):
    """Options that only `Agent` takes, without `model` and `output`."""

    tools: Tools
    description: str
    name: str
    store: Store | str | None
    registry: IterationBudgetRegistry | None
    metadata: Mapping[str, Any]
    kind: RunKind
