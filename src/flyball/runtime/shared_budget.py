"""Claims, settlements and refunds of one run in a budget that it shares with other runs."""

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
        """Refund, settle and claim. Return the refusal of the claim, or None."""
        for reason, amounts in grant.refund.items():
            for name, amount in amounts.items():
                self._envelope.budgets[name].refund(amount, reason=reason)
        if grant.settle is not None:
            self._settle(dict(grant.settle))
        return self._claim(grant.claim) if grant.claim else None

    def reapply(self, grant: Grant) -> None:
        """Repeat a recorded grant. It cannot be refused, because other runs may have claimed in another order."""
        if self.apply(grant) is not None:
            for name, amount in grant.claim.items():
                if name in _SETTLED_IMMEDIATELY:
                    self._envelope.budgets[name].increment(amount)

    def close(self) -> None:
        """Settle what is still held, at its full amount: a guard assumes the worst."""
        self._settle({})

    def _settle(self, facts: dict[str, int]) -> None:
        for name, hold in self._holds.items():
            hold.settle(facts.pop(name, hold.amount))
        self._holds = {}
        for name, fact in facts.items():
            if fact:  # it happened, although nothing was reserved for it
                self._envelope.budgets[name].increment(fact)

    def _claim(self, amounts: Mapping[str, int]) -> Refusal | None:
        envelope = self._envelope
        with envelope.lock:
            if envelope.is_expired():
                return envelope.refuse("seconds")
            holds = envelope.try_hold(**amounts)
            if holds is None:
                exceeded = [name for name, amount in amounts.items() if envelope.budgets[name].available < amount]
                return envelope.refuse(exceeded[0])
            for name, hold in holds.items():
                if name in _SETTLED_IMMEDIATELY:
                    hold.settle(hold.amount)
                else:
                    self._holds[name] = hold
        return None
