"""A loan: what a remote run may take of budgets that it shares with runs here."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..budget.budget import Hold
from ..budget.run_budget import Refusal, TurnBudget
from ..chain.caller import COUNTED
from ..result import Result


class Loan:
    """A run elsewhere cannot ask here before each turn, so what it may take is held when it begins.

    That is its own limit, or half of what others leave, so that they can go on beside it. When it has ended, what it
    and all runs below it have used is booked, and the rest given back; if nobody knows what it used, all is booked. It
    is never more than was lent: what a service says to have used beyond that takes nothing from others here.
    """

    def __init__(self, within: TurnBudget | None) -> None:
        self._within = within
        self._holds: dict[str, Hold] = {}

    def take(self, own: Mapping[str, int | None]) -> Refusal | None:
        """Hold what it may take, at most its own ceilings; or the refusal of a budget of which nothing is left."""
        within = self._within
        if within is None:
            return None
        with within.lock:
            for name in COUNTED:
                budget = within.budgets.get(name)
                if budget is None or budget.available == math.inf:
                    continue
                half, ceiling = (int(budget.available) + 1) // 2, own.get(name)
                amount = half if ceiling is None else min(half, ceiling)
                if amount < 1:
                    self.give_back()
                    return within.refuse(name)
                self._holds[name] = budget.hold(amount)
        return None

    @property
    def amounts(self) -> dict[str, int]:
        """What is held, by budget."""
        return {name: hold.amount for name, hold in self._holds.items()}

    def give_back(self) -> None:
        """Nothing was run."""
        for hold in self._holds.values():
            hold.release()
        self._holds = {}

    def settle(self, result: Result | None) -> None:
        """Book what was used; None where nobody knows."""
        for name in COUNTED:
            used = None if result is None else _used(result, name)
            hold = self._holds.get(name)
            if hold is not None:
                hold.settle(hold.amount if used is None else min(used, hold.amount))
            elif used and self._within is not None and name in self._within.budgets:
                self._within.budgets[name].increment(used)
        self._holds = {}


def _used(result: Result, name: str) -> int | None:
    """By a run and all below it; None where one of them does not tell.

    Its own budget may have counted those below it, or not, and the facts may lack an estimate: the greater is right.
    """
    if not _tells(result, name):
        return None
    return max(result.budgets[name].used, _happened(result, name))


def _tells(result: Result, name: str) -> bool:
    return name in result.budgets and all(_tells(child, name) for child in result.children)


def _happened(result: Result, name: str) -> int:
    match name:
        case "tokens":
            return result.usage_with_children.total
        case "usd":
            return sum(result.cost_with_children.values())
        case _:
            return result.turns + sum(_happened(child, name) for child in result.children)
