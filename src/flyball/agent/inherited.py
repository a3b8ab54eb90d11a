"""Limits that a run inherits from a shared budget and from the chain of calls that it serves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..budget.budget import IterationBudget
from ..budget.budget_set import COUNTED, narrow
from ..budget.deadline import Deadline
from ..budget.run_budget import TurnBudget
from ..chain.caller import Caller, current
from ..loop.child_task import subtract_end_margin
from ..runtime.child_budget import HELD_BUDGETS


@dataclass(frozen=True, slots=True)
class Inheritance:
    """Limits of a run that come from outside. Its own limits cannot raise them."""

    shared_budget: TurnBudget | None = None
    """Budget in which claims of the run also count. None means no such budget."""
    max_seconds: float = math.inf
    max_amounts: Mapping[str, int] | None = None
    """Amounts left, by budget. None means no limit."""
    instructions: str = ""
    """Text about the caller, for the model."""

    @classmethod
    def from_shared(cls, shared_budget: TurnBudget | None) -> Inheritance:
        """Return what a run that starts now inherits from a shared budget and from the caller served here."""
        caller = current()
        if caller is not None and caller.depth:
            return _from_chain(caller, shared_budget)
        return (
            _NOTHING
            if shared_budget is None
            else cls(shared_budget, shared_budget.remaining_s(), shared_budget.remaining(*HELD_BUDGETS))
        )

    @property
    def money(self) -> IterationBudget | None:
        """Inherited money budget, or None."""
        return None if self.shared_budget is None else self.shared_budget.budgets["usd"]


_NOTHING = Inheritance()


def _from_chain(caller: Caller, shared_budget: TurnBudget | None) -> Inheritance:
    left, max_seconds, text = caller.left, subtract_end_margin(caller.remaining_s), describe_caller(caller)
    if shared_budget is None:
        return Inheritance(caller.envelope, max_seconds, left, text)
    max_amounts = narrow(left, shared_budget.remaining(*HELD_BUDGETS))
    max_seconds = min(max_seconds, shared_budget.remaining_s())
    return Inheritance(_combine_budgets(caller, shared_budget), max_seconds, max_amounts, text)


def _combine_budgets(caller: Caller, shared_budget: TurnBudget) -> TurnBudget:
    """Return a budget whose claims count both for the caller and in the shared budget."""
    left = caller.left
    if not left:
        return shared_budget
    deadline = Deadline.after(min(caller.remaining_s, shared_budget.remaining_s()), shared_budget.clock)
    pool = TurnBudget.of(dict.fromkeys(COUNTED) | left, deadline, prefix="shared_", parent=shared_budget)
    caller.shared_envelopes.append(pool)
    return pool


def describe_caller(caller: Caller) -> str:
    """Return the text that tells a model which agent called it."""
    name = f"{caller.agent} at {caller.host}" if caller.host else caller.agent or "it gave no name"
    doubt = "" if caller.signed or not caller.agent else " (by its own account; the call is not signed)"
    hops = f"This is hop {caller.depth} of at most {caller.ceiling - 1} in a chain of agents."
    return f"You work because another agent called this service: {name}{doubt}. {hops}"
