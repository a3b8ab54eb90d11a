"""Units of budgets: parsing amounts from users and formatting them."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from enum import StrEnum

NANO = 1_000_000_000
_MAX_SHOWN = 10**40


class Unit(StrEnum):
    """Unit that a budget counts in.

    Internally a count is an int, money is an int of billionths of a dollar, and time is float seconds. Users write
    `40`, `4.30` and `90`. Only `parse`, `outer` and `show` convert between the two.

    >>> Unit.USD.parse("4.30"), Unit.USD.show(4_300_000_000)
    (4300000000, '$4.30')
    """

    COUNT = "count"
    USD = "usd"
    SECONDS = "seconds"

    @property
    def expected(self) -> str:
        """Describe a valid value, for error messages."""
        match self:
            case Unit.COUNT:
                return "a whole number"
            case Unit.USD:
                return "dollars, such as 4.30"
            case Unit.SECONDS:
                return "seconds, such as 90"

    def parse(self, value: object) -> int | float:
        """Return the internal amount for a number or its text.

        Raises ValueError, with the expected form as its text, for anything else.
        """
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
        """Convert an internal amount to the number users write; None stays None."""
        if self is not Unit.USD or amount is None:
            return amount
        try:
            return amount / NANO
        except OverflowError:  # more dollars than a float can hold
            return amount // NANO

    def show(self, amount: int | float | None) -> str:
        """Format an internal amount for users; None means no ceiling."""
        if amount is None or amount == math.inf:
            return "no ceiling"
        match self:
            case Unit.COUNT:
                return f"{amount:,}" if abs(amount) < _MAX_SHOWN else "a number of more than 40 digits"
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
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError(value)
    number = Decimal(str(value))  # through the text, because 0.1 as a float is not a tenth of a dollar
    if not number.is_finite() or number.adjusted() > 30:  # 1E+900000 would take minutes to multiply
        raise InvalidOperation(value)
    return number
