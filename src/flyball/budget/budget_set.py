"""Budgets of one run by name, and amounts by the same names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from threading import RLock
from types import MappingProxyType
from typing import Any

from ..unit import Unit
from .budget import IterationBudget

COUNTED = ("turns", "tool_calls", "reflections", "nudges", "retries", "tokens", "usd", "children", "depth")
"""Budgets that every run has. A budget of one tool, such as `calls.search`, exists only if it has a limit."""
_NAMES = {"turns": "agent_iterations", "usd": "cost_usd"}
"""Names of budgets that differ from their key."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class BudgetSet(dict[str, IterationBudget]):
    """Budgets of one run by name, most of them created on first access from a template.

    Every name in `COUNTED` has a budget: one without a template has no ceiling, and is not listed. A budget that is set
    is listed. All share the lock of `turns`.
    """

    __slots__ = ("_templates", "_turns")

    def __init__(
        self,
        templates: Mapping[str, IterationBudget],
        max_amounts: Mapping[str, int | None] | None = None,
        parents: Mapping[str, IterationBudget] | None = None,
    ) -> None:
        """Create a set from templates, with ceilings of at most `max_amounts`.

        None means no cap. Claims on the capped budgets, and on `turns`, also count in their `parents`.
        """
        self._templates = templates
        if max_amounts is None:
            self._turns = turns = templates["turns"].create_fresh()
        else:
            above = parents or _NOTHING
            turns = templates["turns"].create_capped(None, max_amounts.get("turns"), above.get("turns"))
            self._turns = turns
            for name, amount in max_amounts.items():
                if name != "turns":
                    self.setdefault(name, templates[name].create_capped(turns, amount, above.get(name)))
        super().__setitem__("turns", turns)

    @classmethod
    def of(cls, budgets: Mapping[str, IterationBudget]) -> BudgetSet:
        """Return a set that has these budgets themselves; `turns` is required."""
        complete = cls.__new__(cls)
        complete._templates, complete._turns = budgets, budgets["turns"]
        complete.update(budgets)
        return complete

    def __missing__(self, name: str) -> IterationBudget:
        template = self._templates.get(name) or build_templates()[name]
        return self.setdefault(name, template.create_fresh(self._turns))  # threads may race here

    @property
    def created(self) -> Iterable[IterationBudget]:
        """Budgets that were used so far."""
        return super().values()

    @property
    def lock(self) -> RLock:
        """Lock of all budgets."""
        return self._turns.lock

    def find_ceiling(self, name: str) -> int | None:
        """Return the ceiling of a budget without creating it. None means no limit."""
        budget = super().get(name) or self._templates.get(name)
        return None if budget is None else budget.ceiling

    def is_capped(self, name: str) -> bool:
        """Check whether the ceiling of a budget is a cap from outside, below that of its template."""
        ceiling, own = self[name].ceiling, self._templates.get(name)
        return ceiling is not None and own is not None and (own.ceiling is None or ceiling < own.ceiling)

    def __setitem__(self, name: str, budget: IterationBudget) -> None:
        if name not in self._templates:
            self._templates = {**self._templates, name: budget}
        super().__setitem__(name, budget)

    def __contains__(self, name: object) -> bool:
        return name in self._templates or name in COUNTED

    def get(self, name: str, default: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the budget of that name, or the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[str]:
        return iter(self._templates)

    def __len__(self) -> int:
        return len(self._templates)

    def keys(self) -> Any:
        """Return the listed names, in the order of the templates."""
        return self._templates.keys()

    def values(self) -> Any:
        """Return the listed budgets, creating those not used yet."""
        return [self[name] for name in self._templates]

    def items(self) -> Any:
        """Return pairs of name and budget."""
        return [(name, self[name]) for name in self._templates]


@cache
def build_templates(prefix: str = "") -> Mapping[str, IterationBudget]:
    """Return a template without a ceiling for each name in `COUNTED`.

    `prefix` is the start of their names, which flags and messages show.
    """
    units = {"usd": Unit.USD}
    names = {key: prefix + key if prefix else _NAMES.get(key, key) for key in COUNTED}
    return {key: IterationBudget(name, None, unit=units.get(key, Unit.COUNT)) for key, name in names.items()}


def narrow(*amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the lowest amount of each name.

    >>> narrow({"turns": 3, "tokens": 50}, {"turns": 2})
    {'turns': 2, 'tokens': 50}
    """
    narrowed: dict[str, int] = {}
    for mapping in amounts:
        for name, amount in mapping.items():
            narrowed[name] = min(amount, narrowed.get(name, amount))
    return narrowed
