"""What a run inherits: from an envelope that it shares with others, and from the chain in which it was called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..budget.budget import IterationBudget
from ..budget.budget_set import COUNTED, narrow
from ..budget.deadline import Deadline
from ..budget.run_budget import TurnBudget
from ..chain.caller import Caller, current
from ..loop.child_task import add_instructions, subtract_end_margin
from ..loop.plan import AgentSpec
from ..runtime.child_budget import HELD_BUDGETS


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What others leave a run, which no limit of its own can raise."""

    shared_budget: TurnBudget | None = None
    """Where its claims count too."""
    max_seconds: float = math.inf
    max_amounts: Mapping[str, int] | None = None
    instructions: str = ""
    """What its model must know of this."""

    @classmethod
    def from_shared(cls, shared_budget: TurnBudget | None) -> Inheritance:
        """What a run that begins now inherits from an envelope, and from the caller that is being served here."""
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
        """The limit of money that is inherited, if one is."""
        return None if self.shared_budget is None else self.shared_budget.budgets["usd"]

    def apply_to(self, spec: AgentSpec) -> AgentSpec:
        """The terrain of a run whose model knows of it."""
        return add_instructions(spec, self.instructions) if self.instructions else spec


_NOTHING = Inheritance()


def _from_chain(caller: Caller, shared_budget: TurnBudget | None) -> Inheritance:
    left, most_s = caller.left, subtract_end_margin(caller.remaining_s)
    most = left if shared_budget is None else narrow(left, shared_budget.remaining(*HELD_BUDGETS))
    if shared_budget is None:
        return Inheritance(caller.envelope, most_s, most, describe_caller(caller))
    most_s = min(most_s, shared_budget.remaining_s())
    return Inheritance(_combine_budgets(caller, shared_budget), most_s, most, describe_caller(caller))


def _combine_budgets(caller: Caller, shared_budget: TurnBudget) -> TurnBudget:
    """An envelope for runs that count in two that know nothing of each other."""
    left = caller.left
    if not left:
        return shared_budget
    deadline = Deadline.after(min(caller.remaining_s, shared_budget.remaining_s()), shared_budget.clock)
    pool = TurnBudget.of(dict.fromkeys(COUNTED) | left, deadline, prefix="shared_", parent=shared_budget)
    caller.shared_envelopes.append(pool)
    return pool


def describe_caller(caller: Caller) -> str:
    """What a model is told that works because another agent has called."""
    name = f"{caller.agent} at {caller.host}" if caller.host else caller.agent or "it gave no name"
    doubt = "" if caller.signed or not caller.agent else " (by its own account; the call is not signed)"
    hops = f"This is hop {caller.depth} of at most {caller.ceiling - 1} in a chain of agents."
    return f"You work because another agent called this service: {name}{doubt}. {hops}"
