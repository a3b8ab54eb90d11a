"""Changes of a run's budgets that its rules, its warnings and its events must know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .budget import IterationBudget  # cycle: its type only; a budget reports its changes

_MAX_COUNTS = 1_000
"""Newest changes of counts that wait for their event."""


class CountChange(NamedTuple):
    """Count that was set in a run."""

    budget: IterationBudget
    difference: int
    used: int
    """The count after the change."""


class RunChanges:
    """Changes of one run's budgets since its rules and warnings have looked at them. All its budgets share it."""

    __slots__ = ("counts", "is_due")

    def __init__(self) -> None:
        self.is_due = True
        """True if a count has reached its mark, or has changed in any way but by a claim, or a limit has moved."""
        self.counts: Sequence[CountChange] = ()
        """Counts that were set and have no event yet."""

    def add_count(self, change: CountChange) -> None:
        """Note a count that was set."""
        self.counts = [*self.counts, change][-_MAX_COUNTS:]

    def take_counts(self) -> Sequence[CountChange]:
        """Return the counts that were set, and forget them."""
        counts, self.counts = self.counts, ()
        return counts
