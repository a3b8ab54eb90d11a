"""Observation of a program: nothing is refused or changed, and what would have been is recorded."""

from __future__ import annotations

from ..budget.limits import Limits
from ..budget.registry import IterationBudgetRegistry
from ..unit import Unit

_UNITS = {"usd": Unit.USD, "seconds": Unit.SECONDS}
_OPEN_BUDGETS = {
    "agent_iterations": Unit.COUNT, "tool_calls": Unit.COUNT, "tokens": Unit.COUNT, "context_tokens": Unit.COUNT,
    "cost_usd": Unit.USD, "seconds": Unit.SECONDS,
}  # fmt: skip
"""Budgets that have no ceiling while a program is observed."""


class Observer:
    """Compares what a program uses with limits that do not hold."""

    def __init__(self, limits: Limits, registry: IterationBudgetRegistry | None) -> None:
        explained = limits.explain(registry)
        names = ("turns", "tool_calls", "tokens", "usd", "seconds")
        self._ceilings = {name: explained[name].ceiling for name in names}
        self._ceilings["seconds"] = explained["seconds"].value  # pyright: ignore[reportArgumentType]
        self.notes: list[str] = []
        """Sentences about what would have been refused, in order."""

    def check(self, used: dict[str, float], request: int) -> None:
        """Note the limits that this request would have met first."""
        for name, amount in used.items():
            ceiling = self._ceilings.get(name)
            if ceiling is not None and amount >= ceiling:
                del self._ceilings[name]
                shown = _UNITS.get(name, Unit.COUNT).show(ceiling)
                what = "limit" if name in _UNITS else f"limit of {name.replace('_', ' ')}"
                self.note(f"request {request} would have met the {what} ({shown})")

    def note(self, sentence: str) -> None:
        """Note a sentence, unless it was noted before."""
        if sentence not in self.notes:
            self.notes.append(sentence)


def open_registry(registry: IterationBudgetRegistry | None) -> IterationBudgetRegistry:
    """Return a registry with the same settings and without ceilings."""
    opened = IterationBudgetRegistry(settings=None if registry is None else registry.settings)
    for name, unit in _OPEN_BUDGETS.items():
        opened.register(name, default=None, unit=unit)
    return opened
