"""Options of a governed loop."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from .._internal import validation
from ..budget.deadline import SYSTEM
from ..budget.limits import Limits
from ..budget.price import Unpriced
from ..errors import ConfigError

if TYPE_CHECKING:
    from ..budget.deadline import Clock
    from ..budget.price import Price
    from ..budget.registry import IterationBudgetRegistry
    from ..budget.run_budget import TurnBudget
    from ..recorder import Sink
    from ..rules import RuleSet


class Unsettled(StrEnum):
    """Handling of a turn without a reported usage."""

    CHARGE = "charge"
    """Count its reservation as used: the longest reply that was allowed, and the estimated input."""
    REFUSE = "refuse"
    """Count it in the same way, and end the run as failed."""
    IGNORE = "ignore"
    """Count nothing."""


@dataclass(kw_only=True, eq=False, repr=False)
class GovernOptions:
    """Constructor arguments of `govern`."""

    limits: Limits = field(default_factory=Limits, kw_only=False)
    price: Price | None = None
    """Token prices, required by a money limit. None means those of `model`, if they are known."""
    unpriced: Unpriced | Literal["refuse", "tokens_only"] = Unpriced.REFUSE
    """Handling of a money limit without a price.

    Either reject the run, or ignore the limit and report the model in `result.unpriced`.
    """
    unsettled: Unsettled | Literal["charge", "refuse", "ignore"] = Unsettled.CHARGE
    """Handling of a turn that ends without a usage, or with one of no tokens."""
    grace: bool = True
    model: str = "unknown"
    """Name of the model. One such as `openai:gpt-4o` also gives its price and longest reply, wherever it is served."""
    max_output_tokens: int | None = None
    """Maximum output tokens of one turn. None means that only the model and the budgets limit it."""
    within: TurnBudget | None = None
    """Shared budget. The claims of this run also count there, and it can refuse them. None means no such budget."""
    rules: RuleSet | None = None
    """Rules to apply, such as `RuleSet.load(...)`; add the core rules with `.with_core()`. None means no rules."""
    registry: IterationBudgetRegistry | None = None
    clock: Clock = SYSTEM
    sinks: Iterable[Sink] = ()
    events_kept: int = 10_000
    run_id: str = field(default_factory=lambda: os.urandom(16).hex())
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        validation.check_type("govern, limits", self.limits, Limits)
        validation.check_optional_int("govern, max_output_tokens", self.max_output_tokens)
        validation.check_int("govern, events_kept", self.events_kept)
        validation.check_type("govern, metadata", self.metadata, Mapping)
        validation.check_type("govern, sinks", self.sinks, Iterable)
        validation.parse_enum("govern, unpriced", self.unpriced, Unpriced)
        if self.within is not None and not callable(getattr(self.within, "try_hold", None)):
            raise ConfigError("govern, within", self.within, "a shared TurnBudget, as for Agent.run(within=...)")
        validation.parse_enum("govern, unsettled", self.unsettled, Unsettled)
        if self.price is not None and not callable(getattr(self.price, "cost", None)):
            raise ConfigError("govern, price", self.price, "a price, such as TokenPrice(input=3, output=15)")
