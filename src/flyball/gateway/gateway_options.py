"""Options of a gateway, and of its engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..budget.deadline import SYSTEM
from ..budget.limits import Limits
from ..budget.price import Unpriced

if TYPE_CHECKING:
    from ..budget.deadline import Clock
    from ..budget.registry import IterationBudgetRegistry
    from ..budget.run_budget import TurnBudget
    from ..recorder import Sink
    from ..rules import RuleSet


@dataclass(kw_only=True)
class EngineOptions:
    """Options of the engine that governs requests, wherever they come from."""

    limits: Limits = field(default_factory=Limits, kw_only=False)
    unpriced: Unpriced | Literal["refuse", "tokens_only"] = Unpriced.REFUSE
    """Handling of a model without a known price under a money limit."""
    final_tools: tuple[str, ...] = ()
    """Names of tools that carry the program's answer, besides those that are known."""
    per: Literal["program", "task"] = "program"
    """Scope of the limits of turns and time: the whole program, or each task that its user gives it."""
    plan_share: float | None = None
    """Largest share of a subscription that the run may use, from 0 to 1. None means no limit."""
    observe: bool = False
    """Whether nothing is refused or changed, and only recorded."""
    within: TurnBudget | None = None
    """Shared budget. The claims of this run also count there, and it can refuse them.

    None means that of the run in progress here, if there is one.
    """
    rules: RuleSet | None = None
    registry: IterationBudgetRegistry | None = None
    clock: Clock = SYSTEM
    sinks: Iterable[Sink] = ()
    events_kept: int = 10_000
    run_id: str = field(default_factory=lambda: os.urandom(16).hex())
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(kw_only=True)
class GatewayOptions(EngineOptions):
    """Constructor arguments of `Gateway`."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    """Environment that the program would have, with the real addresses and keys."""
    upstreams: Mapping[str, str] = field(default_factory=dict[str, str])
    """URLs of providers by name. They replace what the environment says, or add providers that are not known."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of these providers by the variable of the program that points at them."""
    own_keys: Mapping[str, Sequence[str]] = field(default_factory=dict[str, "Sequence[str]"], repr=False)
    """Keys that the program has in its own settings and sends by itself, by provider."""
    pass_keys: bool = False
    """Whether the program gets the real keys. Otherwise it gets stand-ins."""
    is_plan: bool = False
    """Whether the program is logged in to a subscription, so that dollars are imputed."""
    allow_ungoverned: bool = False
    """Whether programs that go around the gateway are started all the same."""
