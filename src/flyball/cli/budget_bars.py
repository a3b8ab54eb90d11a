"""Bars that show how much of each budget is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..budget.snapshot import BudgetSnapshot
from ..unit import Unit

_ALWAYS_SHOWN = ("turns", "tool_calls", "tokens", "usd")
"""Budgets shown even if unused; others are shown once they are used."""
_DEPTH = "depth"
"""Position of the run in its tree, not a usage that grows."""
_NAME_WIDTH, _MAX_WIDTH, _MIN_WIDTH = 12, 32, 4


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

    @property
    def max_amount_width(self) -> int:
        """Width of the amount when all is used. Bars that grow must not change their width."""
        full = len(self.unit.show(self.ceiling))
        return max(len(self.amount), 2 * full + len(" of ") + (len(".9") if self.unit is Unit.SECONDS else 0))

    def render(self, ascii_only: bool = False, width: int = _MAX_WIDTH) -> str:
        """Render the bar as one line; `width` is that of the bar alone.

        >>> Bar("turns", 3, 6).render(ascii_only=True, width=10)
        '       turns #####----- 3 of 6'
        """
        full_char, empty_char = "#-" if ascii_only else "━─"
        filled = min(width, int(self.used * width / self.ceiling)) if self.ceiling else width
        drawn = f"{full_char * filled}{empty_char * (width - filled)} " if width else ""
        return f"{self.name:>{_NAME_WIDTH}} {drawn}{self.amount}"


def render_bars(bars: Sequence[Bar], columns: int, ascii_only: bool = False) -> Iterator[tuple[Bar, str]]:
    """Yield each bar and its line, with bars of one width.

    In few columns the bars get shorter and then vanish; the amounts stay.

    >>> [line for _, line in render_bars([Bar("turns", 3, 6), Bar("tokens", 1, 9_000)], 34, ascii_only=True)]
    ['       turns ###--- 3 of 6', '      tokens ------ 1 of 9,000']
    """
    longest = max((bar.max_amount_width for bar in bars), default=0)
    width = min(_MAX_WIDTH, columns - _NAME_WIDTH - 2 - longest)
    for bar in bars:
        yield bar, bar.render(ascii_only, width if width >= _MIN_WIDTH else 0)


def build_bars(budgets: Mapping[str, BudgetSnapshot], seconds: float, work_seconds: float) -> list[Bar]:
    """Build a bar for each budget in use, and one for the time."""
    bars = [
        Bar(name.replace("_", " "), budget.used, budget.ceiling, budget.unit)
        for name, budget in budgets.items()
        if budget.ceiling is not None and (budget.used or name in _ALWAYS_SHOWN) and name != _DEPTH
    ]
    if work_seconds > 0:
        bars.append(Bar("seconds", round(seconds, 1), round(work_seconds, 1), Unit.SECONDS))
    return bars
