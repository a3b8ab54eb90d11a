"""What a run inherits: from an envelope that it shares with others, and from the chain in which it was called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..budget.budget import IterationBudget
from ..budget.deadline import Deadline
from ..budget.run_budget import TurnBudget
from ..chain.caller import Caller, current
from ..loop.child_task import spared, told
from ..loop.plan import AgentSpec
from ..runtime.child_budget import pool_of
from ..runtime.shared_budget import left_of


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What others leave a run, which no limit of its own can raise."""

    within: TurnBudget | None = None
    """Where its claims count too."""
    most_s: float = math.inf
    most: Mapping[str, int] | None = None
    words: str = ""
    """What its model must know of this."""

    @classmethod
    def of(cls, within: TurnBudget | None) -> Inheritance:
        """What a run that begins now inherits from an envelope, and from the caller that is being served here."""
        caller = current()
        if caller is not None and caller.depth:
            return _from_chain(caller, within)
        return _NOTHING if within is None else cls(within, within.remaining_s(), left_of(within))

    @property
    def money(self) -> IterationBudget | None:
        """The limit of money that is inherited, if one is."""
        return None if self.within is None else self.within.budgets.get("usd")

    def told(self, terrain: AgentSpec) -> AgentSpec:
        """The terrain of a run whose model knows of it."""
        return told(terrain, self.words) if self.words else terrain


_NOTHING = Inheritance()


def _from_chain(caller: Caller, within: TurnBudget | None) -> Inheritance:
    left, most_s = caller.left, spared(caller.left_s)
    most = left if within is None else _least(left, left_of(within))
    if within is None:
        return Inheritance(caller.envelope, most_s, most, words_of(caller))
    most_s = min(most_s, within.remaining_s())
    return Inheritance(_both(caller, within), most_s, most, words_of(caller))


def _both(caller: Caller, within: TurnBudget) -> TurnBudget:
    """An envelope for runs that count in two that know nothing of each other."""
    left = caller.left
    if not left:
        return within
    amounts = {name: left.get(name) for name in {**within.budgets, **left}}
    pool = pool_of(amounts, within, Deadline.after(min(caller.left_s, within.remaining_s()), within.clock))
    caller.lent.append(pool)
    return pool


def _least(some: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {name: min(amounts[name] for amounts in (some, others) if name in amounts) for name in {**some, **others}}


def words_of(caller: Caller) -> str:
    """What a model is told that works because another agent has called."""
    name = f"{caller.agent} at {caller.host}" if caller.host else caller.agent or "which has not said its name"
    doubt = "" if caller.signed or not caller.agent else " (so it says of itself; nobody has signed that)"
    hops = f"This is hop {caller.depth} of at most {caller.ceiling - 1} in a chain of agents."
    return f"You work because another agent has called this service: {name}{doubt}. {hops}"
