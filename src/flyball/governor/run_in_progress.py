"""Run in progress at a place in the code, on whose budgets the runs that begin inside it draw too."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..budget.run_budget import TurnBudget

PLACE: ContextVar[Any] = ContextVar("flyball_place", default=None)
"""Object whose `run` has an `outer_envelope`, and tells whether it `is_open`. None outside of runs. Adapters set it."""


def choose_within(within: TurnBudget | None) -> TurnBudget | None:
    """Return the shared budget of a run that begins here: the given one, or that of the outermost run in progress."""
    place = PLACE.get()
    if within is not None or place is None or not place.run.is_open:
        return within
    return place.run.outer_envelope
