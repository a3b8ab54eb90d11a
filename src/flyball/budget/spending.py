"""The purse: a run's tokens and money, set aside before a request is made and settled to what it used."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from .budget import Hold
from .price import Price, worst
from .run_budget import TurnBudget
from .usage import Usage

_MOST_TOKENS = 1_000_000_000
"""More than any request or reply has: where the search for what some money buys may end."""

Holds = dict[str, Hold]
"""What was set aside for one request, by budget."""


class Spending:
    """What requests may use of a run's tokens and money, and what they have used."""

    __slots__ = (
        "_model", "_tokens", "_unpriced", "_usd", "_used", "costs", "envelope", "estimated", "input_is_told",
        "largest_input", "limited", "price",
    )  # fmt: skip

    def __init__(self, envelope: TurnBudget, price: Price | None = None, model: str = "unknown") -> None:
        self.envelope = envelope
        self._used = [0, 0, 0, 0, 0]
        self.costs: dict[str, int] = {}
        """Billionths of a dollar, by model; only of those that have a price."""
        self._unpriced: dict[str, None] = {}
        self.estimated = 0
        """Of how many requests nobody told what they used."""
        self.pay_for(model, price)
        self.largest_input = 0
        """Of all requests so far: the next one, in a conversation that grows, will hardly be smaller."""
        self.input_is_told = False
        """Whether the loop tells what input it expects; then nothing has to be guessed."""

        self._tokens, self._usd = envelope.budgets["tokens"], envelope.budgets["usd"]
        self.limited = self._tokens.ceiling is not None or self._usd.ceiling is not None
        """Whether anything has to be set aside at all."""

    def pay_for(self, model: str, price: Price | None) -> None:
        """From now on the requests are those of this model."""
        self._model = model
        self.price = price
        if price is not None:
            self.costs.setdefault(model, 0)

    @property
    def cost(self) -> int:
        """What all requests have cost, as far as there are prices."""
        return sum(self.costs.values())

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The models that were asked though nobody knows their price, in that order."""
        return tuple(self._unpriced)

    @property
    def usage(self) -> Usage:
        """What all requests have used."""
        return Usage.summed(*self._used)

    @property
    def likely_input(self) -> int:
        """The input of the next request, as far as one can know."""
        return 0 if self.input_is_told else self.largest_input

    def output_room(self, input: int) -> int | None:
        """How many tokens the reply to so many may have; None where nothing limits it."""
        room = self._tokens.available - input
        if self.price is not None and (money := self._usd.available) != math.inf:
            room = min(room, _affordable(self.price, input, int(money)))
        return None if room == math.inf else max(0, int(room))

    def input_room(self, output: int) -> float:
        """How many tokens may be read where so many are to be said; infinitely many where nothing limits it."""
        room = self._tokens.available - output
        if self.price is not None and (money := self._usd.available) != math.inf:
            room = min(room, _readable(self.price, output, int(money)))
        return max(0, room)

    def short_of(self, input: int) -> tuple[str, ...]:
        """The budgets that have no room for such a request and a reply of one token."""
        budgets = self.envelope.budgets
        short = [] if budgets["tokens"].available > input else ["tokens"]
        if self.price is not None and worst(self.price, input, 1) > budgets["usd"].available:
            short.append("usd")
        return tuple(short)

    def hold(self, input: int, output: int) -> Holds | None:
        """Set the worst case aside; None, and nothing is, where a budget refuses."""
        tokens = input + output
        if self.price is not None:
            amounts = {"tokens": tokens, "usd": worst(self.price, input, output)}
            return self.envelope.try_hold(**{name: amount for name, amount in amounts.items() if amount})
        if not tokens:
            return {}
        hold = self._tokens.try_hold(tokens)
        if hold is None:
            self.envelope.refuse("tokens")
        return None if hold is None else {"tokens": hold}

    def hold_most(self, input: int, most: int | None) -> tuple[Holds, int | None] | None:
        """Set aside the input and the longest reply that there is room for, `most` at most; and how long that is."""
        if self.price is None and input > 0:  # then tokens are all there is to set aside
            hold = self._tokens.hold_some(input + 1, math.inf if most is None else input + most)
            if hold is not None:
                return {"tokens": hold}, hold.amount - input
        with self.envelope.lock:
            room = self.output_room(input)
            output = room if most is None else most if room is None else min(room, most)
            holds = self.hold(input, output or 0) if output != 0 else None
        return None if holds is None else (holds, output)

    def settle(self, holds: Sequence[Holds], usage: Usage) -> dict[str, int]:
        """Book what a request has used, which may be more than was set aside: it has happened; and tell it."""
        input, output, lock = usage.input, usage.output, self.envelope.lock
        facts = {"tokens": input + output, "usd": 0 if self.price is None else self.price.cost(usage)}
        lock.acquire()
        try:
            self._book(holds, facts)
            used = self._used
            used[0] += input
            used[1] += output
            if usage.cached or usage.reasoning or usage.written:
                used[2] += usage.cached
                used[3] += usage.reasoning
                used[4] += usage.written
            if input > self.largest_input:
                self.largest_input = input
        finally:
            lock.release()
        return facts

    def book(self, holds: Sequence[Holds], input: int = 0, output: int = 0) -> dict[str, int]:
        """Book what was set aside, or so many tokens where that is more, as nobody told what was used; and tell it.

        What guards assumes the worst.
        """
        with self.envelope.lock:
            facts = {"tokens": input + output, "usd": 0 if self.price is None else worst(self.price, input, output)}
            for name, least in facts.items():
                facts[name] = max(least, sum(row[name].amount for row in holds if name in row))
            self._book(holds, facts)
            self.estimated += 1
        return facts

    def _book(self, holds: Sequence[Holds], facts: dict[str, int]) -> None:
        """Settle what was set aside to the facts, and count what is more."""
        if self.price is None:
            self._unpriced[self._model] = None
        else:
            self.costs[self._model] += facts["usd"]
        for name, fact in facts.items():
            for row in holds:
                if row and name in row:
                    row[name].settle(fact)
                    fact = 0
            if fact:
                self.envelope.budgets[name].increment(fact)


def _affordable(price: Price, input: int, money: int) -> float:
    """How many tokens of output the money buys, the input being paid; infinitely many where they are free."""
    if worst(price, input, _MOST_TOKENS) <= money:
        return math.inf
    return bisect_right(range(_MOST_TOKENS), money, key=lambda output: worst(price, input, output)) - 1


def _readable(price: Price, output: int, money: int) -> float:
    """How many tokens of input the money buys, the output being paid; infinitely many where they are free."""
    if worst(price, _MOST_TOKENS, output) <= money:
        return math.inf
    return bisect_right(range(_MOST_TOKENS), money, key=lambda input: worst(price, input, output)) - 1
