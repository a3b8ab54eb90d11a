"""Token prices, and the highest cost that a request or a run can have.

Costs are whole billionths of a US dollar, rounded up so that a limit cannot leak.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from enum import StrEnum
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from .._internal import validation
from ..errors import ConfigError
from ..unit import Unit
from .usage import Usage

_TOKENS_PER_PRICE = 1_000_000
"""Providers quote prices per million tokens."""


class Unpriced(StrEnum):
    """Handling of a money limit when the model's price is unknown."""

    REFUSE = "refuse"
    """Make no request."""
    TOKENS_ONLY = "tokens_only"
    """Make requests without enforcing the money limit; the result lists the model as unpriced."""


class Price(Protocol):
    """Price of a model's requests.

    `cost` must not fail: reject unknown prices earlier. Flyball computes the highest possible cost of a request from
    it. So more tokens must not cost less, and tokens of mixed kinds must not cost more than the same number of the most
    expensive kind.
    """

    def cost(self, usage: Usage) -> int:
        """Return the cost of one request in billionths of a dollar, rounded up."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Prices for requests with more than `above` input tokens.

    US dollars per million tokens. They apply to all tokens of the request. None means the price of `input`.
    """

    above: int
    input: float
    output: float
    cached: float | None = None
    written: float | None = None


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """Prices in US dollars per million tokens, as providers quote them.

    >>> Unit.USD.show(TokenPrice(input=3.0, output=15.0).cost(Usage(1_000, 200)))
    '$0.006'
    """

    input: float
    output: float
    cached: float | None = None
    """Price of input read from a cache. None means the price of `input`."""
    written: float | None = None
    """Price of input written to a cache. None means the price of `input`."""
    tiers: tuple[Tier, ...] = ()
    """Prices for requests with long input, in ascending order of `above`."""
    _rates: tuple[_Rates, ...] = field(init=False, repr=False, compare=False)
    _worst: tuple[_Rates, ...] = field(init=False, repr=False, compare=False)
    """Rates that never fall as input grows; used when the real input may be shorter than the estimate."""
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _unit: int = field(init=False, repr=False, compare=False)
    """Divisor that turns rates times tokens into billionths of a dollar."""

    def __post_init__(self) -> None:
        _check_prices("price", self)
        starts = tuple(tier.above for tier in self.tiers)
        for number, tier in enumerate(self.tiers):
            validation.check_int(f"price, tiers[{number}].above", tier.above)
            _check_prices(f"price, tiers[{number}]", tier)
        if sorted(set(starts)) != list(starts):
            raise ConfigError("price, tiers", starts, "tiers in ascending order of above")
        rows = [_to_decimals(row) for row in (self, *self.tiers)]
        places = max(0, *[-int(dollars.normalize().as_tuple().exponent) - 9 for row in rows for dollars in row])
        rates = tuple(_to_rates(row, places) for row in rows)
        set_field = object.__setattr__  # the dataclass is frozen
        set_field(self, "_rates", rates)
        set_field(self, "_worst", tuple(accumulate(rates, lambda lower, higher: _Rates(*map(max, lower, higher)))))
        set_field(self, "_starts", starts)
        set_field(self, "_unit", _TOKENS_PER_PRICE * 10**places)

    def cost(self, usage: Usage) -> int:
        """Return the cost of one request in billionths of a dollar, rounded up."""
        rates = self._rates[bisect_left(self._starts, usage.input)]
        plain = max(0, usage.input - usage.cached - usage.written)
        amount = plain * rates.input + usage.cached * rates.cached + usage.written * rates.written
        return -(-(amount + usage.output * rates.output) // self._unit)

    def to_dict(self) -> dict[str, Any]:
        """Return the prices in JSON types, for `from_dict`."""
        own = {name: getattr(self, name) for name in ("input", "output", "cached", "written")}
        return {**own, "tiers": [asdict(tier) for tier in self.tiers]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TokenPrice:
        """Parse the output of `to_dict`; `tiers` may be missing."""
        own: dict[str, Any] = {**data, "tiers": tuple(Tier(**tier) for tier in data.get("tiers", ()))}
        return cls(**own)

    def highest(self, *others: TokenPrice) -> TokenPrice:
        """Return the highest price of each kind of token, over all tiers of this price and of others."""
        rates = [row for price in (self, *others) for row in (price, *price.tiers)]
        return TokenPrice(
            input=max(row.input for row in rates),
            output=max(row.output for row in rates),
            cached=max(row.input if row.cached is None else row.cached for row in rates),
            written=max(row.input if row.written is None else row.written for row in rates),
        )

    def max_cost(self, input: int, output: int) -> int:
        """Return the highest cost of a request with up to these tokens."""
        rates = self._worst[bisect_left(self._starts, input)]
        return -(-(input * rates.max_input + output * rates.output) // self._unit)

    def max_cost_of_requests(self, tokens: int, requests: int) -> int:
        """Return the highest cost of `tokens` in up to `requests` requests."""
        rates = self._worst[bisect_left(self._starts, tokens)]
        max_rate = max(rates.max_input, rates.output)
        # Each request is rounded up separately, which can add one unit per request.
        rounding = 0 if all(rate % self._unit == 0 for rate in rates) else max(0, requests - 1)
        return -(-tokens * max_rate // self._unit) + rounding


def compute_max_request_cost(price: Price, input_tokens: int, output_tokens: int) -> int:
    """Return the highest cost of a request with up to these tokens.

    For a price that is not a `TokenPrice`, it tries the extreme splits into cached, written and reasoning tokens.
    """
    if type(price) is TokenPrice:
        return price.max_cost(input_tokens, output_tokens)
    splits = [(0, 0), (input_tokens, 0), (0, input_tokens)]
    return max(
        price.cost(Usage.summed(input_tokens, output_tokens, cached, reasoning, written))
        for cached, written in splits
        for reasoning in {0, output_tokens}
    )


def compute_max_total_cost(price: Price, tokens: int, requests: int | None = None) -> int:
    """Return the highest cost of `tokens` over any mix of requests.

    `requests` is the maximum number of requests; None means one per token.
    """
    requests = tokens if requests is None else min(requests, tokens)
    if type(price) is TokenPrice:
        return price.max_cost_of_requests(tokens, requests)
    return compute_max_request_cost(price, tokens, tokens) + requests


class _Rates(NamedTuple):
    """Prices of each kind of token as whole numbers; `max_input` is the highest for input."""

    input: int
    output: int
    cached: int
    written: int
    max_input: int


def _check_prices(where: str, row: TokenPrice | Tier) -> None:
    cached, written = (row.input if dollars is None else dollars for dollars in (row.cached, row.written))
    for name, dollars in {"input": row.input, "output": row.output, "cached": cached, "written": written}.items():
        validation.parse_amount(f"{where}, {name}", dollars, Unit.USD)


def _to_decimals(row: TokenPrice | Tier) -> tuple[Decimal, Decimal, Decimal, Decimal]:
    # From the decimal text: 0.1 means a tenth, not the nearest float.
    cached = row.input if row.cached is None else row.cached
    written = row.input if row.written is None else row.written
    return Decimal(str(row.input)), Decimal(str(row.output)), Decimal(str(cached)), Decimal(str(written))


def _to_rates(row: tuple[Decimal, ...], places: int) -> _Rates:
    input, output, cached, written = [int(dollars.scaleb(9 + places)) for dollars in row]
    return _Rates(input, output, cached, written, max(input, cached, written))
