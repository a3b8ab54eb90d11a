"""Tokens and money of a run: reserved before a request, settled after it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from .budget import Hold, IterationBudget
from .price import Price, compute_max_request_cost
from .run_budget import TurnBudget
from .usage import Usage

_MAX_TOKENS = 1_000_000_000
"""Upper end of the search for affordable tokens; more than any request or reply has."""

Holds = dict[str, Hold]
"""Reservations of one request by budget name."""


class Spending:
    """Reserves and records the tokens and money of a run's requests."""

    __slots__ = (
        "_model",
        "_reserve_price",
        "_tokens",
        "_unpriced",
        "_usd",
        "_used",
        "costs",
        "envelope",
        "estimated_requests",
        "is_input_expected",
        "is_limited",
        "largest_input_tokens",
        "price",
    )  # fmt: skip

    def __init__(
        self,
        envelope: TurnBudget,
        price: Price | None = None,
        model: str = "unknown",
        reserve_price: Price | None = None,
    ) -> None:
        self.envelope = envelope
        self._used = [0, 0, 0, 0, 0]  # in the order of the fields of Usage
        self.costs: dict[str, int] = {}
        """Billionths of a dollar by model; only models with a price."""
        self._unpriced: dict[str, None] = {}
        self.estimated_requests = 0
        """Number of requests whose usage was not reported."""
        self.set_model(model, price, reserve_price)
        self.largest_input_tokens = 0
        """Largest input so far. In a growing conversation the next input is rarely smaller."""
        self.is_input_expected = False
        """True if the loop announces the input of each request, so that no estimate is needed."""

        self._tokens, self._usd = envelope.budgets["tokens"], envelope.budgets["usd"]
        self.is_limited = self._tokens.ceiling is not None or self._usd.ceiling is not None
        """True if tokens or money have a ceiling, so that requests need reservations."""

    def set_model(self, model: str, price: Price | None, reserve_price: Price | None = None) -> None:
        """Count following requests for this model and price; None means unpriced.

        `reserve_price` is the highest price that a request can reach. None means `price`.
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
    def unpriced(self) -> tuple[str, ...]:
        """Models used without a known price, in order of first use."""
        return tuple(self._unpriced)

    @property
    def usage(self) -> Usage:
        """Tokens of all requests with reported usage."""
        return Usage.summed(*self._used)

    @property
    def likely_input_tokens(self) -> int:
        """Estimated input of the next request; 0 if the loop announces it."""
        return 0 if self.is_input_expected else self.largest_input_tokens

    def compute_max_output(self, input_tokens: int) -> int | None:
        """Return the longest affordable reply in tokens; None means no limit."""
        room = self._tokens.available - input_tokens
        if self._reserve_price is not None and (money := self._usd.available) != math.inf:
            room = min(room, compute_affordable_output(self._reserve_price, input_tokens, int(money)))
        return None if room == math.inf else max(0, int(room))

    def compute_max_input(self, output_tokens: int) -> float:
        """Return the longest affordable input in tokens; `math.inf` means no limit."""
        room = self._tokens.available - output_tokens
        if self._reserve_price is not None and (money := self._usd.available) != math.inf:
            room = min(room, _affordable_input(self._reserve_price, output_tokens, int(money)))
        return max(0, room)

    def find_short_budgets(self, input_tokens: int) -> tuple[str, ...]:
        """Return the budgets too low for this input and one output token."""
        short = () if self._tokens.available > input_tokens else ("tokens",)
        if (
            self._reserve_price is not None
            and compute_max_request_cost(self._reserve_price, input_tokens, 1) > self._usd.available
        ):
            return (*short, "usd")
        return short

    def hold(self, input_tokens: int, output_tokens: int) -> Holds | None:
        """Reserve the worst case of a request; None if a budget refuses."""
        tokens = input_tokens + output_tokens
        if self._reserve_price is not None:
            amounts = {
                "tokens": tokens,
                "usd": compute_max_request_cost(self._reserve_price, input_tokens, output_tokens),
            }
            return self.envelope.try_hold(**{name: amount for name, amount in amounts.items() if amount})
        if not tokens:
            return {}
        hold = self._tokens.try_hold(tokens)
        if hold is None:
            self.envelope.refuse("tokens")
        return None if hold is None else {"tokens": hold}

    def hold_up_to(self, input_tokens: int, max_output_tokens: int | None) -> tuple[Holds, int | None] | None:
        """Reserve the input and the longest affordable reply.

        `max_output_tokens` caps the reply; None means no cap. Returns the reservations and the length of the reply, or
        None if a budget refuses.
        """
        if self.price is None and input_tokens > 0:  # only tokens to reserve: one atomic step
            hold = self._tokens.hold_between(
                input_tokens + 1, math.inf if max_output_tokens is None else input_tokens + max_output_tokens
            )
            if hold is not None:
                return {"tokens": hold}, hold.amount - input_tokens
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

    def settle(self, holds: Sequence[Holds], usage: Usage, price: Price | None = None) -> dict[str, int]:
        """Settle reservations to the reported usage, and return the amounts.

        The usage may exceed the reservations: the request has already happened. `price` is that of the request, if it
        is not the usual one.
        """
        input, output, lock = usage.input, usage.output, self.envelope.lock
        price = price or self.price
        amounts = {"tokens": input + output, "usd": 0 if price is None else price.cost(usage)}
        lock.acquire()
        try:
            self._settle_amounts(holds, amounts)
            used = self._used
            used[0] += input
            used[1] += output
            if usage.cached or usage.reasoning or usage.written:
                used[2] += usage.cached
                used[3] += usage.reasoning
                used[4] += usage.written
            if input > self.largest_input_tokens:
                self.largest_input_tokens = input
        finally:
            lock.release()
        return amounts

    def settle_estimate(self, holds: Sequence[Holds], input_tokens: int = 0, output_tokens: int = 0) -> dict[str, int]:
        """Settle a request whose usage was not reported, and return the amounts.

        Counts the reservation or the given tokens, whichever is more: a limit must assume the worst.
        """
        with self.envelope.lock:
            amounts = {
                "tokens": input_tokens + output_tokens,
                "usd": 0
                if self._reserve_price is None
                else compute_max_request_cost(self._reserve_price, input_tokens, output_tokens),
            }
            for name, minimum in amounts.items():
                reserved = sum(reservations[name].amount for reservations in holds if name in reservations)
                amounts[name] = max(minimum, reserved)
            self._settle_amounts(holds, amounts)
            self.estimated_requests += 1
        return amounts

    def _settle_amounts(self, holds: Sequence[Holds], amounts: dict[str, int]) -> None:
        if self.price is None:
            self._unpriced[self._model] = None
        else:
            self.costs[self._model] += amounts["usd"]
        self._settle("tokens", holds, amounts["tokens"], self._tokens)
        self._settle("usd", holds, amounts["usd"], self._usd)

    def _settle(self, name: str, holds: Sequence[Holds], amount: int, budget: IterationBudget) -> None:
        for reservations in holds:
            hold = reservations.get(name)
            if hold is not None:
                hold.settle(amount)  # the first hold takes the whole amount; the others are released
                amount = 0
        if amount:
            budget.increment(amount)


def compute_affordable_output(price: Price, input_tokens: int, money: int) -> float:
    """Return the longest reply in tokens that this money can pay, in billionths of a dollar; `math.inf` if any."""
    if compute_max_request_cost(price, input_tokens, _MAX_TOKENS) <= money:
        return math.inf
    return (
        bisect_right(
            range(_MAX_TOKENS), money, key=lambda output: compute_max_request_cost(price, input_tokens, output)
        )
        - 1
    )


def _affordable_input(price: Price, output_tokens: int, money: int) -> float:
    if compute_max_request_cost(price, _MAX_TOKENS, output_tokens) <= money:
        return math.inf
    return (
        bisect_right(range(_MAX_TOKENS), money, key=lambda input: compute_max_request_cost(price, input, output_tokens))
        - 1
    )
