"""What an expression can do with values, each within bounds: no int beyond 64 bits, no text or list without end.

Every value is one that left a view, or was made here of such; so it is of one of Python's own types, and what Python
does with it is known. Where Python itself knows no bound, or means by a sign more than arithmetic, the function here
takes care. A TypeError, ValueError, ZeroDivisionError or RuleError is how an operation says no.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import RuleError
from .view import LARGEST, MOST, Table, field_of, kind, plain

_SMALLEST = -LARGEST
_NUMBERS: frozenset[type] = frozenset({int, float, bool})
_MANY: frozenset[type] = frozenset({list, Table})
_LONGEST_NUMBER = 100
"""Characters of a text that is read as a number."""
_MOST_DIGITS = 15
"""Behind the point, of which a float has no more; `round(5, -10**9)` would compute 10 to that power."""


def _add(left: Any, right: Any) -> Any:
    if type(left) is str or type(left) is list:
        return _joined(left, right)
    result = left + right
    return result if type(result) is not int or _SMALLEST <= result <= LARGEST else _whole(result)


def _joined(left: Any, right: Any) -> Any:
    """Two texts or two lists."""
    if type(left) is type(right) and len(left) + len(right) > MOST:
        raise RuleError(f"{kind(left)} of more than {MOST:,} {'characters' if type(left) is str else 'items'}")
    return left + right


def _subtract(left: Any, right: Any) -> Any:
    result = left - right
    return result if type(result) is not int or _SMALLEST <= result <= LARGEST else _whole(result)


def _multiply(left: Any, right: Any) -> Any:
    """Of numbers, which alone can have a sign before them; a text or a list Python would repeat."""
    try:
        result = +left * +right
    except TypeError:
        raise TypeError(f"* is for numbers, not for {kind(left)} and {kind(right)}") from None
    return result if type(result) is not int or _SMALLEST <= result <= LARGEST else _whole(result)


def _remainder(left: Any, right: Any) -> Any:
    """Of numbers; a text would be a format."""
    try:
        return +left % right
    except TypeError:
        raise TypeError(f"% is for numbers, not for {kind(left)} and {kind(right)}") from None


def _whole(value: Any) -> Any:
    """What is made by way of ints stays within their bounds."""
    if type(value) is int and not _SMALLEST <= value <= LARGEST:
        raise RuleError("a number of more than 64 bits")
    return value


def _slice(value: Any, start: Any, stop: Any, step: Any) -> Any:
    """A part, which is never longer than the whole."""
    return value[start:stop:step]


def _round(value: Any, digits: Any = None) -> Any:
    _number(value)
    return _whole(round(value, digits if digits is None else _digits(digits, -_MOST_DIGITS)))


def _percent(value: Any, digits: Any = 0) -> str:
    """A share as a person writes it.

    >>> _percent(0.725), _percent(2, 1)
    ('72%', '200.0%')
    """
    return f"{_number(value):.{_digits(digits, 0)}%}"


def _digits(value: Any, least: int) -> int:
    if type(value) is int and least <= value <= _MOST_DIGITS:
        return value
    raise ValueError(f"digits are a whole number from {least} to {_MOST_DIGITS}")


def _number(value: Any) -> Any:
    if type(value) in _NUMBERS:
        return value
    raise TypeError(f"{kind(value)} is no number")


def _int(value: Any) -> Any:
    return _whole(int(_read(value)))


def _float(value: Any) -> float:
    return float(_read(value))


def _read(value: Any) -> Any:
    """What is to be read as a number, if it is not too long for one."""
    if type(value) is str and len(value) > _LONGEST_NUMBER:
        raise ValueError(f"a text of more than {_LONGEST_NUMBER} characters is no number")
    return value


def text(value: object, most: int = MOST) -> str:
    """A value as Python writes it, in no more than so many characters."""
    written = str(plain(value, most) if type(value) in _MANY else value)
    if len(written) > most:
        raise RuleError(f"a text of more than {most:,} characters")
    return written


def _sum(value: Any) -> Any:
    return _whole(sum(value))


def _sorted(value: Any) -> list[Any]:
    if len(value) > MOST:
        raise RuleError(f"{kind(value)} of more than {MOST:,} items")
    return sorted(value)


def _default(value: Callable[[], object], instead: Callable[[], object]) -> object:
    """A value, or where it is none, or cannot be worked out, another."""
    try:
        found = value()
    except Exception:
        found = None
    return instead() if found is None else found


class Function(NamedTuple):
    """A function that an expression may call, and with how many arguments."""

    call: Callable[..., object]
    least: int = 1
    most: int = 1


FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(abs),
    "all": Function(all),
    "any": Function(any),
    "bool": Function(bool),
    "float": Function(_float),
    "int": Function(_int),
    "len": Function(len),
    "max": Function(max, most=100),
    "min": Function(min, most=100),
    "round": Function(_round, most=2),
    "sorted": Function(_sorted),
    "str": Function(text),
    "sum": Function(_sum),
}
_PYTHON: Any = operator
SIGNS: Mapping[str, Callable[..., object]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _PYTHON.truediv,
    "//": _PYTHON.floordiv,
    "%": _remainder,
    ".": field_of,
    "[]": _PYTHON.getitem,
    "[:]": _slice,
    "|default": _default,
    "|percent": _percent,
    "|round": _round,
}
"""The operations by what the code of an expression calls them."""
