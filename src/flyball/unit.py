"""Units of what a budget counts: how an amount is read from outside and shown to a person."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from enum import StrEnum

NANO = 1_000_000_000
_MAX_SHOWN = 10**40


class Unit(StrEnum):
    """What one step of a budget stands for.

    Inside, counts are ints, money is an int of billionths of a dollar, time is float seconds. Outside, people write
    `40`, `4.30` and `90`. Only `parse`, `outer` and `show` turn one into the other.

    >>> Unit.USD.parse("4.30"), Unit.USD.show(4_300_000_000)
    (4300000000, '$4.30')
    """

    COUNT = "count"
    USD = "usd"
    SECONDS = "seconds"

    @property
    def expected(self) -> str:
        """What a person should have written, for error messages."""
        match self:
            case Unit.COUNT:
                return "a whole number"
            case Unit.USD:
                return "dollars, such as 4.30"
            case Unit.SECONDS:
                return "seconds, such as 90"

    def parse(self, value: object) -> int | float:
        """The inner amount for a number or its text; ValueError, saying what was expected, for anything else."""
        try:
            match self:
                case Unit.COUNT:
                    return _parse_int(value)
                case Unit.USD:
                    return int((_parse_decimal(value) * NANO).to_integral_value())
                case Unit.SECONDS:
                    return float(_parse_decimal(value))
        except (ArithmeticError, ValueError):
            raise ValueError(self.expected) from None

    def outer(self, amount: int | float | None) -> int | float | None:
        """The number a person would write for an inner amount; None stays None."""
        return amount / NANO if self is Unit.USD and amount is not None else amount

    def show(self, amount: int | float | None) -> str:
        """The amount as a person would write it; None is no ceiling."""
        if amount is None or amount == math.inf:
            return "no ceiling"
        match self:
            case Unit.COUNT:
                return f"{amount:,}" if abs(amount) < _MAX_SHOWN else "an absurd number"
            case Unit.USD:
                whole, _, cents = f"{Decimal(amount) / NANO:,.9f}".partition(".")
                return f"${whole}.{cents.rstrip('0').ljust(2, '0')}"
            case Unit.SECONDS:
                return f"{amount:,.10g} s"


def _parse_int(value: object) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(value)


def _parse_decimal(value: object) -> Decimal:
    """By way of the text, because 0.1 as a float is not a tenth of a dollar."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError(value)
    number = Decimal(str(value))
    if not number.is_finite() or number.adjusted() > 30:  # also because 1E+900000 would take minutes to multiply
        raise InvalidOperation(value)
    return number
