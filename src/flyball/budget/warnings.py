"""Warnings before a limit is reached, once for each limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .budget import IterationBudget
from .model_limits import list_model_keys

if TYPE_CHECKING:
    from .run_budget import TurnBudget  # cycle: its type only; a TurnBudget has the warnings

WARNING_SHARE = 0.7
"""Share of a ceiling above which a budget is nearly used up. The core rules warn the model at the same share."""
_LIMITS = ("turns", "tool_calls", "tokens", "usd")
"""Budgets that end a run."""

UseThresholds = tuple[tuple[str, int, int], ...]
"""Name of each watched budget, its ceiling, and the use up to which no warning is due."""


class BudgetWarning(NamedTuple):
    """A limit that is nearly reached, in the budget's unit; whole seconds for `seconds`."""

    budget: str
    used: int
    ceiling: int


def find_thresholds(budgets: Mapping[str, IterationBudget]) -> UseThresholds:
    """Return the thresholds of those budgets that have a ceiling."""
    names = (*_LIMITS, *list_model_keys(budgets))
    ceilings = [(name, budgets[name].ceiling) for name in names if name in budgets]
    return tuple([(name, ceiling, _find_threshold(ceiling)) for name, ceiling in ceilings if ceiling])


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
        """Return the limits that are nearly reached at this clock time, each once in a run. Mark where the next are."""
        budget.clear_marks()
        found, left = list[BudgetWarning](), list[tuple[str, int, int]]()
        for name, ceiling, threshold in self._thresholds:
            counter = budget.budgets[name]
            used, current = counter.used, counter.ceiling
            if current != ceiling:
                ceiling = current or ceiling
                threshold = _find_threshold(ceiling)
            if threshold < used < ceiling:
                found.append(BudgetWarning(name, used, ceiling))
                continue
            left.append((name, ceiling, threshold))
            if used <= threshold:  # otherwise only an increase of the ceiling can change it
                counter.mark = threshold + 1
        self._thresholds = tuple(left)
        if not self._time_is_known and now > budget.nearly_over_at:
            self._time_is_known = True
            total = budget.work_seconds
            found.append(BudgetWarning("seconds", int(total - budget.remaining_s()), int(total)))
        budget.look_at = math.inf if self._time_is_known else budget.nearly_over_at
        return found


def find_nearly_over(work_at: float, work_seconds: float) -> float:
    """Return the clock time of the warning about seconds. `math.inf` means that there is no deadline."""
    return math.inf if work_at == math.inf else work_at - (1 - WARNING_SHARE) * work_seconds
