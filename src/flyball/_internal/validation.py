"""The checks that parts make of a value they are given; each returns the value, or raises an error that names it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from ..errors import AmountError, ConfigError, nearest
from ..unit import Unit

_AGES = 1e15
"""Seconds; longer than this is never, and would not fit into a float for ever."""

Member = TypeVar("Member", bound=StrEnum)


def amount(budget: str, value: object, *, least: int = 1) -> int:
    """`value` if it is an amount that one can claim from a budget."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise AmountError(budget, value, least)


def whole(where: str, value: object, *, least: int = 0) -> int:
    """`value` if it is an int of at least `least`; a bool is no number here."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise ConfigError(where, value, f"an int of at least {least}")


def whole_or_none(where: str, value: object, *, least: int = 0) -> int | None:
    """As `whole`, and None passes."""
    if value is None:
        return None
    try:
        return whole(where, value, least=least)
    except ConfigError as error:
        raise ConfigError(where, value, f"{error.expected}, or None") from None


def amount_of(where: str, value: object, unit: Unit) -> int | float:
    """What a number given in code is inside, in a unit; texts are for settings only."""
    try:
        inner = unit.parse(None if isinstance(value, str) else value)
    except ValueError:
        inner = -1
    if inner < 0:
        raise ConfigError(where, value, f"{unit.expected}, at least 0")
    return inner


def kind(where: str, value: object, wanted: type) -> None:
    """That a value is of the class that its annotation promises, which a caller without type checker may break."""
    if not isinstance(value, wanted):
        raise ConfigError(where, value, f"a {wanted.__name__}")


def text(where: str, value: object) -> str:
    """`value` if it is a string that says something."""
    if isinstance(value, str) and value.strip():
        return value
    raise ConfigError(where, value, "a text that is not empty")


def member(where: str, value: object, kind: type[Member]) -> Member:
    """The member of a closed set that `value` is, or names."""
    if isinstance(value, str) and value in list(kind):
        return kind(value)
    raise ConfigError(where, value, f"one of {', '.join(kind)}")


def duration(where: str, value: object) -> float:
    """Seconds, 0 or more; None and `math.inf` are forever."""
    if value is None:
        return math.inf
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value) if value < _AGES else math.inf
    raise ConfigError(where, value, "seconds, 0 or more, or None for no limit")


def timeout(where: str, value: object) -> float:
    """As `duration`, but no time at all is no timeout."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ConfigError(where, value, "more than 0 seconds, or None for no deadline")
    return duration(where, value)


def options(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """An option that is misspelt would not guard anything."""
    for name in given:
        names = list(known)
        if name not in names:
            near = nearest(name, names) or sorted(names)
            raise ConfigError(f"{where}, options", name, f"an option such as {' or '.join(near)}")
