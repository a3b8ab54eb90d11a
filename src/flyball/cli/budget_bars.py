"""Bars: how much of each budget is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..budget.snapshot import BudgetSnapshot
from ..unit import Unit

_ALWAYS_SHOWN = ("turns", "tool_calls", "tokens", "usd")
"""What one wants to see even while it is 0; other budgets are shown when something of them is used."""
_DEPTH = "depth"
"""This one says where in a tree a run stands: it does not go up."""
_WIDTH = 32


@dataclass(frozen=True, slots=True)
class Bar:
    """One budget that has a ceiling."""

    name: str
    used: float
    ceiling: float
    unit: Unit = Unit.COUNT

    @property
    def is_full(self) -> bool:
        """Whether nothing is left."""
        return self.used >= self.ceiling

    @property
    def amount(self) -> str:
        """How much of how much."""
        return f"{self.unit.show(self.used)} of {self.unit.show(self.ceiling)}"

    def render(self, ascii_only: bool = False) -> str:
        """It in one line.

        >>> Bar("turns", 3, 6).render(ascii_only=True)
        '       turns ################---------------- 3 of 6'
        """
        done, left = "#-" if ascii_only else "━─"
        filled = min(_WIDTH, int(self.used * _WIDTH / self.ceiling)) if self.ceiling else _WIDTH
        return f"{self.name:>12} {done * filled}{left * (_WIDTH - filled)} {self.amount}"


def build_bars(budgets: Mapping[str, BudgetSnapshot], seconds: float, work_seconds: float) -> Iterable[Bar]:
    """One for each budget that matters, and one for the time."""
    for name, budget in budgets.items():
        if budget.ceiling is not None and (budget.used or name in _ALWAYS_SHOWN) and name != _DEPTH:
            yield Bar(name.replace("_", " "), budget.used, budget.ceiling, budget.unit)
    if work_seconds > 0:
        yield Bar("seconds", round(seconds, 1), round(work_seconds, 1), Unit.SECONDS)
