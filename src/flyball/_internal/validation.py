"""The checks that parts make of a value they are given; each returns the value, or raises an error that names it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from ..errors import AmountError, ConfigError, suggest_names
from ..unit import Unit

_MAX_SECONDS = 1e15
"""Seconds; longer than this is never, and would not fit into a float for ever."""

Member = TypeVar("Member", bound=StrEnum)


def check_amount(budget: str, value: object, *, min_value: int = 1) -> int:
    """`value` if it is an amount that one can claim from a budget."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= min_value:
        return value
    raise AmountError(budget, value, min_value)


def check_int(where: str, value: object, *, min_value: int = 0) -> int:
    """`value` if it is an int of at least `least`; a bool is no number here."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= min_value:
        return value
    raise ConfigError(where, value, f"an int of at least {min_value}")


def check_optional_int(where: str, value: object, *, min_value: int = 0) -> int | None:
    """As `whole`, and None passes."""
    if value is None:
        return None
    try:
        return check_int(where, value, min_value=min_value)
    except ConfigError as error:
        raise ConfigError(where, value, f"{error.expected}, or None") from None


def parse_amount(where: str, value: object, unit: Unit) -> int | float:
    """What a number given in code is inside, in a unit; texts are for settings only."""
    try:
        inner = unit.parse(None if isinstance(value, str) else value)
    except ValueError:
        inner = -1
    if inner < 0:
        raise ConfigError(where, value, f"{unit.expected}, at least 0")
    return inner


def check_type(where: str, value: object, expected_type: type) -> None:
    """That a value is of the class that its annotation promises, which a caller without type checker may break."""
    if not isinstance(value, expected_type):
        raise ConfigError(where, value, f"a {expected_type.__name__}")


def check_text(where: str, value: object) -> str:
    """`value` if it is a string that says something."""
    if isinstance(value, str) and value.strip():
        return value
    raise ConfigError(where, value, "a text that is not empty")


def parse_enum(where: str, value: object, enum_type: type[Member]) -> Member:
    """The member of a closed set that `value` is, or names."""
    if isinstance(value, str) and value in list(enum_type):
        return enum_type(value)
    raise ConfigError(where, value, f"one of {', '.join(enum_type)}")


def parse_duration(where: str, value: object) -> float:
    """Seconds, 0 or more; None and `math.inf` are forever."""
    if value is None:
        return math.inf
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value) if value < _MAX_SECONDS else math.inf
    raise ConfigError(where, value, "seconds, 0 or more, or None for no limit")


def parse_timeout(where: str, value: object) -> float:
    """As `duration`, but no time at all is no timeout."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ConfigError(where, value, "more than 0 seconds, or None for no deadline")
    return parse_duration(where, value)


def check_options(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """An option that is misspelt would not guard anything."""
    for name in given:
        names = list(known)
        if name not in names:
            near = suggest_names(name, names) or sorted(names)
            raise ConfigError(f"{where}, options", name, f"an option such as {' or '.join(near)}")
