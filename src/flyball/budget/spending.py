"""Tokens and money of a run: reserved before a request, settled after it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from .price import Price, compute_max_request_cost
from .run_budget import TurnBudget
from .usage import Usage

_MAX_TOKENS = 1_000_000_000
"""Upper end of the search for affordable tokens; more than any request or reply has."""

Holds = tuple[int, int]
"""Tokens and money reserved for one request. They stay reserved until they are settled."""
NO_HOLDS: Holds = (0, 0)


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Name and prices of a model."""

    name: str
    price: Price | None
    """Usual price. None means unknown."""
    reserve_price: Price | None = None
    """Highest price that a request can reach. None means the usual price."""


def add_holds(holds: Iterable[Holds]) -> Holds:
    """Return the sum of several reservations.

    >>> add_holds([(10, 0), (5, 2)])
    (15, 2)
    """
    tokens = money = 0
    for held in holds:
        tokens += held[0]
        money += held[1]
    return tokens, money


class Spending:
    """Reserves and records the tokens and money of a run's requests."""

    __slots__ = (
        "_cached",
        "_input",
        "_model",
        "_output",
        "_reasoning",
        "_reserve_price",
        "_tokens",
        "_written",
        "costs",
        "envelope",
        "estimated_requests",
        "is_input_expected",
        "is_limited",
        "largest_input_tokens",
        "price",
        "unpriced",
    )  # fmt: skip

    def __init__(
        self,
        envelope: TurnBudget,
        price: Price | None = None,
        model: str = "unknown",
        reserve_price: Price | None = None,
        provider: str | None = None,
    ) -> None:
        self.envelope = envelope
        self._input = self._output = self._cached = self._reasoning = self._written = 0
        self.costs: dict[str, int] = {}
        """Billionths of a dollar by model; only models with a price."""
        self.unpriced: tuple[str, ...] = ()
        """Models used without a known price, in order of first use."""
        self.estimated_requests = 0
        """Number of requests whose usage was not reported."""
        self.set_model(model, price, reserve_price, provider)
        self.largest_input_tokens = 0
        """Largest input so far. In a growing conversation the next input is rarely smaller."""
        self.is_input_expected = False
        """True if the loop announces the input of each request, so that no estimate is needed."""
        self._tokens = envelope.budgets["tokens"]
        self.is_limited = self._tokens.ceiling is not None or envelope.budgets.find_ceiling("usd") is not None
        """True if tokens or money have a ceiling, so that requests need reservations."""

    def set_model(
        self, model: str, price: Price | None, reserve_price: Price | None = None, provider: str | None = None
    ) -> None:
        """Count following requests for this model and price; None means unpriced.

        `reserve_price` is the highest price that a request can reach. None means `price`. `provider` counts only for
        limits per model.
        """
        self._model = model
        self.price = price
        self._reserve_price = price if reserve_price is None else reserve_price
        if price is not None:
            self.costs.setdefault(model, 0)

    @property
    def reserve_price(self) -> Price | None:
        """Highest price that a request can reach."""
        return self._reserve_price

    @property
    def cost(self) -> int:
        """Billionths of a dollar of all priced requests."""
        return sum(self.costs.values())

    @property
    def usage(self) -> Usage:
        """Tokens of all requests with reported usage."""
        return Usage.summed(self._input, self._output, self._cached, self._reasoning, self._written)

    @property
    def likely_input_tokens(self) -> int:
        """Estimated input of the next request; 0 if the loop announces it."""
        return 0 if self.is_input_expected else self.largest_input_tokens

    def compute_max_output(self, input_tokens: int) -> int | None:
        """Return the longest affordable reply in tokens; None means no limit."""
        room = self._tokens.available - input_tokens
        if self._reserve_price is not None and (money := self.envelope.budgets["usd"].available) != math.inf:
            room = min(room, compute_affordable_output(self._reserve_price, input_tokens, int(money)))
        return None if room == math.inf else max(0, int(room))

    def compute_max_input(self, output_tokens: int) -> float:
        """Return the longest affordable input in tokens; `math.inf` means no limit."""
        room = self._tokens.available - output_tokens
        if self._reserve_price is not None and (money := self.envelope.budgets["usd"].available) != math.inf:
            room = min(room, compute_affordable_input(self._reserve_price, output_tokens, int(money)))
        return max(0, room)

    def find_short_budgets(self, input_tokens: int, output_tokens: int = 1) -> tuple[str, ...]:
        """Return the budgets too low for this input and this output."""
        short = () if self._tokens.available >= input_tokens + output_tokens else ("tokens",)
        price, money = self._reserve_price, self.envelope.budgets["usd"].available
        if price is not None and compute_max_request_cost(price, input_tokens, output_tokens) > money:
            return (*short, "usd")
        return short

    def hold(self, input_tokens: int, output_tokens: int) -> Holds | None:
        """Reserve the worst case of a request, all or nothing; None if a budget refuses."""
        envelope, budgets, tokens = self.envelope, self.envelope.budgets, input_tokens + output_tokens
        money = (
            0
            if self._reserve_price is None
            else compute_max_request_cost(self._reserve_price, input_tokens, output_tokens)
        )
        with envelope.lock:
            wanted = {name: amount for name, amount in (("tokens", tokens), ("usd", money)) if amount}
            refused = [name for name, amount in wanted.items() if amount > budgets[name].available]
            for name in refused:
                envelope.refuse(name, input_tokens=input_tokens)
            if refused:
                return None
            for name, amount in wanted.items():
                budgets[name].reserve(amount, amount)
        return tokens, money

    def release(self, holds: Holds) -> None:
        """Release the reservations of a request that was not made, or used nothing."""
        with self.envelope.lock:
            self._tokens.settle(holds[0], 0)
            self.envelope.budgets["usd"].settle(holds[1], 0)

    def hold_up_to(self, input_tokens: int, max_output_tokens: int | None) -> tuple[Holds, int | None] | None:
        """Reserve the input and the longest affordable reply.

        `max_output_tokens` caps the reply; None means no cap. Returns the reservations and the length of the reply, or
        None if a budget refuses.
        """
        if self.price is None and input_tokens > 0:  # only tokens to reserve: one atomic step
            held = self._tokens.reserve(
                input_tokens + 1, math.inf if max_output_tokens is None else input_tokens + max_output_tokens
            )
            if held:
                return (held, 0), held - input_tokens
        return self._hold_longest(input_tokens, max_output_tokens)

    def _hold_longest(self, input_tokens: int, max_output_tokens: int | None) -> tuple[Holds, int | None] | None:
        """Reserve what `hold_up_to` says, with the limits of tokens and of money."""
        with self.envelope.lock:
            room = self.compute_max_output(input_tokens)
            output = (
                room
                if max_output_tokens is None
                else max_output_tokens
                if room is None
                else min(room, max_output_tokens)
            )
            holds = self.hold(input_tokens, output or 0) if output != 0 else None
        return None if holds is None else (holds, output)

    def settle(self, holds: Holds, usage: Usage, price: Price | None = None, model: ModelPrice | None = None) -> Holds:
        """Settle reservations to the reported usage, and return the tokens and the money.

        The usage may exceed the reservations: the request has already happened. `price` is that of the request, if it
        is not the usual one of its model. `model` None means that of the run. Threads that settle requests of one run
        at the same time hold the lock of its budgets.
        """
        input, output = usage.input, usage.output
        price = price or (self.price if model is None else model.price)
        money = 0 if price is None else price.cost(usage)
        self._settle_amounts(holds, input + output, money, model)
        self._input += input
        self._output += output
        if usage.cached or usage.reasoning or usage.written:  # most requests have none of them
            self._cached += usage.cached
            self._reasoning += usage.reasoning
            self._written += usage.written
        if input > self.largest_input_tokens:
            self.largest_input_tokens = input
        return input + output, money

    def settle_estimate(
        self,
        holds: Holds,
        input_tokens: int = 0,
        output_tokens: int = 0,
        model: ModelPrice | None = None,
        *,
        is_observed: bool = False,
    ) -> Holds:
        """Settle a request whose usage was not reported, and return the tokens and the money.

        Counts the reservation or the given tokens, whichever is more: a limit must assume the worst. `is_observed`
        means that the tokens were counted as they passed, so they count, and the reservation is only their maximum.
        """
        price = self._reserve_price if model is None else model.reserve_price or model.price
        with self.envelope.lock:
            money = 0 if price is None else compute_max_request_cost(price, input_tokens, output_tokens)
            tokens, limit = input_tokens + output_tokens, min if is_observed and holds[0] else max
            tokens, money = limit(tokens, holds[0]), limit(money, holds[1])
            self._settle_amounts(holds, tokens, money, model)
            self.estimated_requests += 1
        return tokens, money

    def _settle_amounts(self, holds: Holds, tokens: int, money: int, model: ModelPrice | None = None) -> None:
        name, price = (self._model, self.price) if model is None else (model.name, model.price)
        if price is not None:
            self.costs[name] = self.costs.get(name, 0) + money
        elif name not in self.unpriced:
            self.unpriced += (name,)
        if money or holds[1]:
            with self.envelope.lock:
                self._tokens.settle(holds[0], tokens)
                self.envelope.budgets["usd"].settle(holds[1], money)
        else:
            self._tokens.settle(holds[0], tokens)


def compute_affordable_output(price: Price, input_tokens: int, money: int, report_tokens: int | None = None) -> float:
    """Return the longest reply in tokens that this money can pay, in billionths of a dollar; `math.inf` if any.

    With `report_tokens`, it must also pay a report of this length that follows the reply. -1 means no reply at all.
    """

    def compute_cost(output: int) -> int:
        cost = compute_max_request_cost(price, input_tokens, output)
        return cost if report_tokens is None else cost + compute_report_cost(price, input_tokens, output, report_tokens)

    if compute_cost(_MAX_TOKENS) <= money:
        return math.inf
    return bisect_right(range(_MAX_TOKENS), money, key=compute_cost) - 1


def compute_report_cost(price: Price, input_tokens: int, output_tokens: int, report_tokens: int) -> int:
    """Return the highest cost of a report that reads a request and its reply once more."""
    return compute_max_request_cost(price, input_tokens + output_tokens, report_tokens)


def compute_affordable_input(price: Price, output_tokens: int, money: int) -> float:
    """Return the longest input in tokens that this money can pay besides the reply; `math.inf` if any."""
    if compute_max_request_cost(price, _MAX_TOKENS, output_tokens) <= money:
        return math.inf
    return (
        bisect_right(range(_MAX_TOKENS), money, key=lambda input: compute_max_request_cost(price, input, output_tokens))
        - 1
    )
