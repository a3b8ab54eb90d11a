"""Warnings before a limit is reached, once for each limit."""

from __future__ import annotations

import math
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

    __slots__ = ("_moves", "_time_at", "_watched")

    def __init__(self) -> None:
        self._watched: list[tuple[str, IterationBudget, float]] | None = None
        """Budgets with a ceiling, and the use above which a warning may be due. None before the first look."""
        self._time_at = math.inf
        """Clock time of the warning about seconds. It moves with the deadline."""
        self._moves: int | None = -1
        """The deadline's `moves` that it was computed for. None after the warning."""

    def take(self, budget: TurnBudget, now: float) -> list[BudgetWarning]:
        """Return the limits that are nearly reached at this clock time, each once in a run."""
        warnings: list[BudgetWarning] = []
        for name, counter, threshold in self._watch(budget) if self._watched is None else self._watched:
            if counter.used > threshold and (warning := _check(name, counter)) is not None:
                warnings.append(warning)
        if warnings and self._watched is not None:
            warned = {warning.budget for warning in warnings}
            self._watched = [watched for watched in self._watched if watched[0] not in warned]
        if self._moves != budget.moves and self._moves is not None:
            self._moves, total = budget.moves, _compute_seconds(budget)
            self._time_at = math.inf if total == math.inf else budget.work_at - (1 - WARNING_SHARE) * total
        if now > self._time_at:
            self._moves, self._time_at, total = None, math.inf, _compute_seconds(budget)
            warnings.append(BudgetWarning("seconds", int(total - budget.remaining_s()), int(total)))
        return warnings

    def _watch(self, budget: TurnBudget) -> list[tuple[str, IterationBudget, float]]:
        # A raised ceiling makes the threshold too low, so `_check` looks at the ceiling again.
        found = [(name, counter, counter.ceiling) for name in _LIMITS if (counter := budget.budgets[name])]
        self._watched = [(name, counter, WARNING_SHARE * limit - 1) for name, counter, limit in found if limit]
        return self._watched


def _check(name: str, counter: IterationBudget) -> BudgetWarning | None:
    used, ceiling = counter.used, counter.ceiling
    # Not `used > share * ceiling`: 0.7 * 90 is 62.999... A limit that is used up is refused next; no warning helps.
    return BudgetWarning(name, used, ceiling) if ceiling and 1 > used / ceiling > WARNING_SHARE else None


def _compute_seconds(budget: TurnBudget) -> float:
    """Return the seconds for work in all."""
    return budget.seconds + budget.postponed_s - budget.reserve_s
