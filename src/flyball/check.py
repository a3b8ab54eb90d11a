"""The checks that parts make of a value they are given; each returns the value, or raises an error that names it."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from .errors import AmountError, ConfigError

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
