"""Run in progress at a place in the code, on whose budgets the runs that begin inside it draw too."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..budget.run_budget import TurnBudget

PLACE: ContextVar[Any] = ContextVar("flyball_place", default=None)
"""Object whose `run` has `envelopes`, and tells whether it `is_open`. None outside of runs. Adapters set it."""


def choose_shared(within: TurnBudget | None) -> tuple[TurnBudget, ...]:
    """Return the shared budgets of a run that begins here: the given one, or those of all runs in progress around it.

    The innermost one is first.
    """
    place = PLACE.get()
    if within is not None:
        return (within,)
    return () if place is None or not place.run.is_open else place.run.envelopes
