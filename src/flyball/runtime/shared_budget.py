"""The lender: takes from budgets that a run shares with others, and gives back what it did not need."""

from __future__ import annotations

from collections.abc import Mapping

from ..budget.budget import Hold
from ..budget.run_budget import Refusal, TurnBudget
from ..loop.effects import Grant

_SETTLED_IMMEDIATELY = frozenset({"turns", "tool_calls", "children"})


class SharedBudgetClient:
    """Claims of one run on budgets that it shares with other runs."""

    def __init__(self, envelope: TurnBudget) -> None:
        self._envelope = envelope
        self._holds: dict[str, Hold] = {}

    def apply(self, grant: Grant) -> Refusal | None:
        """Do it; where something is taken, the refusal that stands against it."""
        for reason, amounts in grant.refund.items():
            for name, amount in amounts.items():
                self._envelope.budgets[name].refund(amount, reason=reason)
        if grant.settle is not None:
            self._settle(dict(grant.settle))
        return self._claim(grant.claim) if grant.claim else None

    def reapply(self, grant: Grant) -> None:
        """Do again what was granted before. Others may have taken in another order then, so it cannot be refused."""
        if self.apply(grant) is not None:
            for name, amount in grant.claim.items():
                if name in _SETTLED_IMMEDIATELY:
                    self._envelope.budgets[name].increment(amount)

    def close(self) -> None:
        """Book what nobody settled: what guards assumes the worst."""
        self._settle({})

    def _settle(self, facts: dict[str, int]) -> None:
        for name, hold in self._holds.items():
            hold.settle(facts.pop(name, hold.amount))
        self._holds = {}
        for name, fact in facts.items():
            if fact:  # it happened, though nothing was held for it
                self._envelope.budgets[name].increment(fact)

    def _claim(self, amounts: Mapping[str, int]) -> Refusal | None:
        envelope = self._envelope
        with envelope.lock:
            if envelope.is_expired():
                return envelope.refuse("seconds")
            holds = envelope.try_hold(**amounts)
            if holds is None:
                short = [name for name, amount in amounts.items() if envelope.budgets[name].available < amount]
                return envelope.refuse(short[0])
            for name, hold in holds.items():
                if name in _SETTLED_IMMEDIATELY:
                    hold.settle(hold.amount)
                else:
                    self._holds[name] = hold
        return None
