"""What tokens cost, in billionths of a dollar."""

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
"""Prices are for a million tokens."""


class Unpriced(StrEnum):
    """What becomes of a money limit with a model whose price nobody knows."""

    REFUSE = "refuse"
    """Nothing is asked."""
    TOKENS_ONLY = "tokens_only"
    """It does not hold for that model, and the result says so."""


class Price(Protocol):
    """What a request costs. It may not fail: a price that is not known must be refused before, not guessed here.

    More tokens may not cost less, and of tokens that are in part cached, written or reasoning none may cost more than
    the dearest kind does: that is how the most that a request can cost is found.
    """

    def cost(self, usage: Usage) -> int:
        """Billionths of a dollar for one request, rounded up."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """What all tokens of a request cost whose input has more than `above` tokens, in dollars for a million."""

    above: int
    input: float
    output: float
    cached: float | None = None
    written: float | None = None


class _Rates(NamedTuple):
    """What a million tokens of each kind cost, as whole numbers; `dearest` is the most that one of the input can."""

    input: int
    output: int
    cached: int
    written: int
    max_input: int


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """Dollars for a million tokens, as providers print it.

    >>> Unit.USD.show(TokenPrice(input=3.0, output=15.0).cost(Usage(1_000, 200)))
    '$0.006'
    """

    input: float
    output: float
    cached: float | None = None
    """For input read from a cache; None means that it costs like other input."""
    written: float | None = None
    """For input written into a cache; None means that it costs like other input."""
    tiers: tuple[Tier, ...] = ()
    """Other prices for requests with a long input."""
    _rates: tuple[_Rates, ...] = field(init=False, repr=False, compare=False)
    _worst: tuple[_Rates, ...] = field(init=False, repr=False, compare=False)
    """The same, but none is below the one for less input: to be used where the input may turn out shorter."""
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _unit: int = field(init=False, repr=False, compare=False)
    """How many of the rates' units are a billionth of a dollar, for a million tokens."""

    def __post_init__(self) -> None:
        _check_prices("price", self)
        starts = tuple(tier.above for tier in self.tiers)
        for number, tier in enumerate(self.tiers):
            validation.check_int(f"price, tiers[{number}].above", tier.above)
            _check_prices(f"price, tiers[{number}]", tier)
        if sorted(set(starts)) != list(starts):
            raise ConfigError("price, tiers", starts, "tiers that each begin above the one before")
        rows = [_to_decimals(row) for row in (self, *self.tiers)]
        places = max(0, *[-int(dollars.normalize().as_tuple().exponent) - 9 for row in rows for dollars in row])
        rates = tuple(_to_rates(row, places) for row in rows)
        keep = object.__setattr__
        keep(self, "_rates", rates)
        keep(self, "_worst", tuple(accumulate(rates, lambda one, other: _Rates(*map(max, one, other)))))
        keep(self, "_starts", starts)
        keep(self, "_unit", _TOKENS_PER_PRICE * 10**places)

    def cost(self, usage: Usage) -> int:
        """Billionths of a dollar for one request, rounded up: a limit must not leak."""
        rates = self._rates[bisect_left(self._starts, usage.input)]
        plain = max(0, usage.input - usage.cached - usage.written)
        amount = plain * rates.input + usage.cached * rates.cached + usage.written * rates.written
        return -(-(amount + usage.output * rates.output) // self._unit)

    def to_dict(self) -> dict[str, Any]:
        """The same in JSON types; `from_dict` reads it back."""
        own = {name: getattr(self, name) for name in ("input", "output", "cached", "written")}
        return {**own, "tiers": [asdict(tier) for tier in self.tiers]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TokenPrice:
        """Read what `to_dict` wrote; `tiers` may be missing."""
        own: dict[str, Any] = {**data, "tiers": tuple(Tier(**tier) for tier in data.get("tiers", ()))}
        return cls(**own)

    def worst(self, input: int, output: int) -> int:
        """The most that a request of up to so many tokens can cost, whichever of them are cached or written."""
        rates = self._worst[bisect_left(self._starts, input)]
        return -(-(input * rates.max_input + output * rates.output) // self._unit)

    def most(self, tokens: int, requests: int) -> int:
        """The most that so many tokens can cost in so many requests, whichever way they flow."""
        rates = self._worst[bisect_left(self._starts, tokens)]
        dearest = max(rates.max_input, rates.output)
        rounded = 0 if all(rate % self._unit == 0 for rate in rates) else max(0, requests - 1)
        return -(-tokens * dearest // self._unit) + rounded


def _check_prices(where: str, row: TokenPrice | Tier) -> None:
    cached, written = (row.input if dollars is None else dollars for dollars in (row.cached, row.written))
    for name, dollars in {"input": row.input, "output": row.output, "cached": cached, "written": written}.items():
        validation.parse_amount(f"{where}, {name}", dollars, Unit.USD)


def _to_decimals(row: TokenPrice | Tier) -> tuple[Decimal, Decimal, Decimal, Decimal]:
    """A row as it was written down: 0.1 is a tenth, not what a float makes of it."""
    cached = row.input if row.cached is None else row.cached
    written = row.input if row.written is None else row.written
    return Decimal(str(row.input)), Decimal(str(row.output)), Decimal(str(cached)), Decimal(str(written))


def _to_rates(row: tuple[Decimal, ...], places: int) -> _Rates:
    input, output, cached, written = [int(dollars.scaleb(9 + places)) for dollars in row]
    return _Rates(input, output, cached, written, max(input, cached, written))


def compute_max_request_cost(price: Price, input_tokens: int, output_tokens: int) -> int:
    """The most that a request of up to so many tokens can cost. Of a price that is not ours the corners are tried."""
    if type(price) is TokenPrice:
        return price.worst(input_tokens, output_tokens)
    splits = [(0, 0), (input_tokens, 0), (0, input_tokens)]
    return max(
        price.cost(Usage(input_tokens, output_tokens, cached, reasoning, written))
        for cached, written in splits
        for reasoning in {0, output_tokens}
    )


def compute_max_total_cost(price: Price, tokens: int, requests: int | None = None) -> int:
    """The most that so many tokens can cost, whichever way and in however many requests they flow."""
    requests = tokens if requests is None else min(requests, tokens)
    if type(price) is TokenPrice:
        return price.most(tokens, requests)
    return compute_max_request_cost(price, tokens, tokens) + requests
