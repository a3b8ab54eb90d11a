"""Bars that show how much of each budget is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..budget.snapshot import BudgetSnapshot
from ..unit import Unit

_ALWAYS_SHOWN = ("turns", "tool_calls", "tokens", "usd")
"""Budgets shown even if unused; others are shown once they are used."""
_DEPTH = "depth"
"""Position of the run in its tree, not a usage that grows."""
_WIDTH = 32


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar of one budget that has a ceiling."""

    name: str
    used: float
    ceiling: float
    unit: Unit = Unit.COUNT

    @property
    def is_full(self) -> bool:
        return self.used >= self.ceiling

    @property
    def amount(self) -> str:
        """Used and maximum amount, with units."""
        return f"{self.unit.show(self.used)} of {self.unit.show(self.ceiling)}"

    def render(self, ascii_only: bool = False) -> str:
        """Render the bar as one line.

        >>> Bar("turns", 3, 6).render(ascii_only=True)
        '       turns ################---------------- 3 of 6'
        """
        full_char, empty_char = "#-" if ascii_only else "━─"
        filled = min(_WIDTH, int(self.used * _WIDTH / self.ceiling)) if self.ceiling else _WIDTH
        return f"{self.name:>12} {full_char * filled}{empty_char * (_WIDTH - filled)} {self.amount}"


def build_bars(budgets: Mapping[str, BudgetSnapshot], seconds: float, work_seconds: float) -> Iterable[Bar]:
    """Yield a bar for each budget in use, and one for the time."""
    for name, budget in budgets.items():
        if budget.ceiling is not None and (budget.used or name in _ALWAYS_SHOWN) and name != _DEPTH:
            yield Bar(name.replace("_", " "), budget.used, budget.ceiling, budget.unit)
    if work_seconds > 0:
        yield Bar("seconds", round(seconds, 1), round(work_seconds, 1), Unit.SECONDS)
