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

    __slots__ = ("_created", "_moves", "_names", "_time_at", "_watched")

    def __init__(self) -> None:
        self._names: Sequence[str] = _LIMITS
        self._watched: Sequence[tuple[str, IterationBudget, float]] = ()
        """Budgets in use that have a ceiling, each with the use up to which no warning is due."""
        self._created = 0
        """Number of budgets when `_watched` was built. A run creates its budgets when it uses them."""
        self._time_at = math.inf
        """Clock time of the warning about seconds. It moves with the deadline."""
        self._moves: int | None = -1
        """The deadline's `moves` that it was computed for. None after the warning."""

    def take(self, budget: TurnBudget, now: float) -> Sequence[BudgetWarning]:
        """Return the limits that are nearly reached at this clock time, each once in a run."""
        if _count_created(budget.budgets) != self._created:
            self._watch(budget.budgets)
        for _, counter, enough in self._watched:
            if counter.used > enough:
                return self._find(budget, now)
        if self._moves == budget.moves and now <= self._time_at:
            return ()
        return self._find(budget, now)

    def _watch(self, budgets: dict[str, IterationBudget]) -> None:
        self._created = _count_created(budgets)
        created = [(name, counter) for name in self._names if (counter := _get_created(budgets, name)) is not None]
        self._watched = [
            (name, counter, WARNING_SHARE * counter.ceiling - 1) for name, counter in created if counter.ceiling
        ]

    def _find(self, budget: TurnBudget, now: float) -> Sequence[BudgetWarning]:
        found = [warning for name, counter, _ in self._watched if (warning := _check(name, counter)) is not None]
        if found:
            warned = {warning.budget for warning in found}
            self._names = [name for name in self._names if name not in warned]
            self._watch(budget.budgets)
        if self._moves != budget.moves and self._moves is not None:
            self._moves, total = budget.moves, _compute_seconds(budget)
            self._time_at = math.inf if total == math.inf else budget.work_at - (1 - WARNING_SHARE) * total
        if now > self._time_at:
            self._moves, self._time_at, total = None, math.inf, _compute_seconds(budget)
            found.append(BudgetWarning("seconds", int(total - budget.remaining_s()), int(total)))
        return found


_get_created = dict[str, IterationBudget].get
_count_created = dict[str, IterationBudget].__len__


def _check(name: str, counter: IterationBudget) -> BudgetWarning | None:
    used, ceiling = counter.used, counter.ceiling
    # Not `used > share * ceiling`: 0.7 * 90 is 62.999... A limit that is used up is refused next; no warning helps.
    return BudgetWarning(name, used, ceiling) if ceiling and 1 > used / ceiling > WARNING_SHARE else None


def _compute_seconds(budget: TurnBudget) -> float:
    """Return the seconds for work in all."""
    return budget.seconds + budget.postponed_s - budget.reserve_s
