"""What tokens cost, in billionths of a dollar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from . import check
from .unit import NANO, Unit

_TOKENS_PER_PRICE = 1_000_000


class Price(Protocol):
    """What a request costs. It may not fail: a price that is not known must be refused before, not guessed here."""

    def cost(self, input: int, output: int, cached: int = 0) -> int:
        """Billionths of a dollar for so many tokens; `cached` of the input were read from a cache."""
        ...


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """Dollars for a million tokens, as providers print it.

    >>> Unit.USD.show(TokenPrice(input=3.0, output=15.0).cost(1_000, 200))
    '$0.006'
    """

    input: float
    output: float
    cached: float | None = None
    """For input read from a cache; None means that it costs like other input."""

    def __post_init__(self) -> None:
        given = {
            "input": self.input,
            "output": self.output,
            "cached": self.input if self.cached is None else self.cached,
        }
        for field, dollars in given.items():
            check.amount_of(f"price, {field}", dollars, Unit.USD)

    def cost(self, input: int, output: int, cached: int = 0) -> int:
        """Billionths of a dollar for so many tokens, rounded up: a limit must not leak."""
        cached_price = self.input if self.cached is None else self.cached
        millionths = (
            max(0, input - cached) * _inner(self.input) + cached * _inner(cached_price) + output * _inner(self.output)
        )
        return -(-millionths // _TOKENS_PER_PRICE)


def _inner(dollars: float) -> int:
    return round(dollars * NANO)


def worst(price: Price, input: int, output: int) -> int:
    """The most that such a request can cost: a cache may be dearer than none."""
    return max(price.cost(input, output), price.cost(input, output, input))


def most(price: Price, tokens: int) -> int:
    """The most that so many tokens can cost, whichever way they flow."""
    return max(worst(price, tokens, 0), worst(price, 0, tokens))
