"""Checks of values that callers pass.

Each returns the value, or raises an error that names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from ..errors import AmountError, ConfigError, suggest_names
from ..unit import Unit

_MAX_SECONDS = 1e15
"""Seconds. Longer durations are treated as unlimited, before float precision suffers."""

Member = TypeVar("Member", bound=StrEnum)


def check_amount(budget: str, value: object, *, min_value: int = 1) -> int:
    """Return `value` if it is an amount to claim; raise AmountError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= min_value:
        return value
    raise AmountError(budget, value, min_value)


def check_int(where: str, value: object, *, min_value: int = 0) -> int:
    """Return `value` if it is an int of at least `min_value`.

    A bool is refused.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= min_value:
        return value
    raise ConfigError(where, value, f"an int of at least {min_value}")


def check_optional_int(where: str, value: object, *, min_value: int = 0) -> int | None:
    """Return `value` if it is None or passes `check_int`."""
    if value is None:
        return None
    try:
        return check_int(where, value, min_value=min_value)
    except ConfigError as error:
        raise ConfigError(where, value, f"{error.expected}, or None") from None


def parse_amount(where: str, value: object, unit: Unit) -> int | float:
    """Convert a number to the internal amount of a unit.

    Strings are refused; only settings may use them.
    """
    try:
        inner = unit.parse(None if isinstance(value, str) else value)
    except ValueError:
        inner = -1
    if inner < 0:
        raise ConfigError(where, value, f"{unit.expected}, at least 0")
    return inner


def check_type(where: str, value: object, expected_type: type) -> None:
    """Raise ConfigError unless the value is an instance of a type.

    For callers without a type checker, who may break an annotation.
    """
    if not isinstance(value, expected_type):
        raise ConfigError(where, value, f"a {expected_type.__name__}")


def check_text(where: str, value: object) -> str:
    """Return `value` if it is a string that is not blank."""
    if isinstance(value, str) and value.strip():
        return value
    raise ConfigError(where, value, "a non-empty string")


def parse_enum(where: str, value: object, enum_type: type[Member]) -> Member:
    """Return the enum member that `value` is, or names."""
    if isinstance(value, enum_type):
        return value
    if isinstance(value, str) and value in list(enum_type):
        return enum_type(value)
    raise ConfigError(where, value, f"one of {', '.join(enum_type)}")


def parse_duration(where: str, value: object) -> float:
    """Return seconds, 0 or more; None and `math.inf` mean no limit."""
    if value is None:
        return math.inf
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value) if value < _MAX_SECONDS else math.inf
    raise ConfigError(where, value, "seconds of at least 0, or None for no limit")


def parse_timeout(where: str, value: object) -> float:
    """Return seconds as `parse_duration` does, but refuse 0."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ConfigError(where, value, "more than 0 seconds, or None for no deadline")
    return parse_duration(where, value)


def check_options(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for an unknown option, because a misspelt one guards nothing."""
    for name in given:
        names = list(known)
        if name not in names:
            suggestions = suggest_names(name, names) or sorted(names)
            raise ConfigError(f"{where}, options", name, f"an option such as {' or '.join(suggestions)}")
