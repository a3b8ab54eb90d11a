"""Warnings before a limit is reached, once for each limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .budget import IterationBudget

if TYPE_CHECKING:
    from .run_budget import TurnBudget  # cycle: its type only; a TurnBudget has the warnings

WARNING_SHARE = 0.7
"""Share of a ceiling above which a budget is nearly used up. The core rules warn the model at the same share."""
_LIMITS = ("turns", "tool_calls", "tokens", "usd")
"""Budgets that end a run."""


class BudgetWarning(NamedTuple):
    """A limit that is nearly reached, in the budget's unit; whole seconds for `seconds`."""

    budget: str
    used: int
    ceiling: int


class BudgetWarnings:
    """Limits of one run that were not warned of yet."""

    __slots__ = ("_moves", "_names", "_time_at")

    def __init__(self) -> None:
        self._names: Sequence[str] = _LIMITS
        self._time_at = math.inf
        """Clock time of the warning about seconds. It moves with the deadline."""
        self._moves: int | None = -1
        """The deadline's `moves` that it was computed for. None after the warning."""

    def take(self, budget: TurnBudget, now: float) -> Sequence[BudgetWarning]:
        """Return the limits that are nearly reached at this clock time, each once in a run."""
        warnings: Sequence[BudgetWarning] = ()
        for name in self._names:
            counter = _get_created(budget.budgets, name)
            if counter is not None and counter.used * 2 > (counter.ceiling or math.inf):  # mostly false, and cheap
                warning = _check(name, counter)
                warnings = warnings if warning is None else [*warnings, warning]
        if warnings:
            warned = {warning.budget for warning in warnings}
            self._names = [name for name in self._names if name not in warned]
        if self._moves != budget.moves and self._moves is not None:
            self._moves, total = budget.moves, _compute_seconds(budget)
            self._time_at = math.inf if total == math.inf else budget.work_at - (1 - WARNING_SHARE) * total
        if now > self._time_at:
            self._moves, self._time_at, total = None, math.inf, _compute_seconds(budget)
            warnings = [*warnings, BudgetWarning("seconds", int(total - budget.remaining_s()), int(total))]
        return warnings


_get_created = dict[str, IterationBudget].get
"""Returns a budget if it exists. A run creates its budgets when it uses them, so the others are far from a limit."""


def _check(name: str, counter: IterationBudget) -> BudgetWarning | None:
    used, ceiling = counter.used, counter.ceiling
    # Not `used > share * ceiling`: 0.7 * 90 is 62.999... A limit that is used up is refused next; no warning helps.
    return BudgetWarning(name, used, ceiling) if ceiling and 1 > used / ceiling > WARNING_SHARE else None


def _compute_seconds(budget: TurnBudget) -> float:
    """Return the seconds for work in all."""
    return budget.seconds + budget.postponed_s - budget.reserve_s
