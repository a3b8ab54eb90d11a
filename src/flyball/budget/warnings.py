"""Warnings before a limit is reached, once for each limit."""

# Private counters are read directly, because they are needed in every turn.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .budget import IterationBudget
from .model_limits import split_key

if TYPE_CHECKING:
    from .run_budget import TurnBudget  # cycle: its type only; a TurnBudget has the warnings

WARNING_SHARE = 0.7
"""Share of a ceiling above which a budget is nearly used up. The core rules warn the model at the same share."""
_LIMITS = ("turns", "tool_calls", "tokens", "usd")
"""Budgets that end a run."""

UseThresholds = tuple[tuple[str, int], ...]
"""Name of each watched budget, and the use up to which no warning is due."""


class BudgetWarning(NamedTuple):
    """A limit that is nearly reached, in the budget's unit; whole seconds for `seconds`."""

    budget: str
    used: int
    ceiling: int


def find_thresholds(budgets: Mapping[str, IterationBudget], names: Sequence[str] = ()) -> UseThresholds:
    """Return the thresholds of those budgets that have a ceiling: of `names`, or of all that end a run."""
    names = names or (*_LIMITS, *(key for key in budgets if split_key(key) is not None))
    ceilings = [(name, budgets[name].ceiling) for name in names if name in budgets]
    return tuple([(name, _find_threshold(ceiling)) for name, ceiling in ceilings if ceiling])


def _find_threshold(ceiling: int) -> int:
    threshold = math.ceil(WARNING_SHARE * ceiling)  # 0.7 * 90 is 62.999...
    return threshold if threshold / ceiling <= WARNING_SHARE else threshold - 1


class BudgetWarnings:
    """Limits of one run that were not warned of yet."""

    __slots__ = ("_thresholds", "_time_is_known")

    def __init__(self, thresholds: UseThresholds) -> None:
        self._thresholds = thresholds
        self._time_is_known = False
        """True after the warning about seconds."""

    def take(self, budget: TurnBudget, now: float) -> Sequence[BudgetWarning]:
        """Return the limits that are nearly reached at this clock time, each once in a run."""
        if now <= budget.nearly_over_at:
            budgets = budget.budgets
            for name, threshold in self._thresholds:
                counter = budgets[name]
                if threshold < counter._used < counter._limit:
                    break
            else:
                return ()
        return self._find(budget, now)

    def _find(self, budget: TurnBudget, now: float) -> Sequence[BudgetWarning]:
        names = [name for name, _ in self._thresholds]
        found = [warning for name in names if (warning := _check(name, budget.budgets[name])) is not None]
        if found:
            warned = [warning.budget for warning in found]
            self._thresholds = tuple([row for row in self._thresholds if row[0] not in warned])
        else:  # a ceiling was raised, or time is short
            self._thresholds = find_thresholds(budget.budgets, names)
        if now > budget.nearly_over_at and not self._time_is_known:
            self._time_is_known = True
            total = budget.work_seconds
            found.append(BudgetWarning("seconds", int(total - budget.remaining_s()), int(total)))
        return found


def _check(name: str, counter: IterationBudget) -> BudgetWarning | None:
    used, ceiling = counter.used, counter.ceiling
    return BudgetWarning(name, used, ceiling) if ceiling and 1 > used / ceiling > WARNING_SHARE else None


def find_nearly_over(work_at: float, work_seconds: float) -> float:
    """Return the clock time of the warning about seconds. `math.inf` means that there is no deadline."""
    return math.inf if work_at == math.inf else work_at - (1 - WARNING_SHARE) * work_seconds
