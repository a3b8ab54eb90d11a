"""Operations of expressions, with bounds: no int beyond 64 bits, and no text or list of unlimited length.

Every value comes from a view or was computed here, so it has one of Python's built-in types. Python's own operators are
used where they are safe. A function here replaces an operator that has no bound, or that does more than arithmetic. An
operation refuses by raising TypeError, ValueError, ZeroDivisionError or RuleError.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import RuleError
from .view import MAX_INT, MAX_ITEMS, Table, describe_type, get_field, to_plain

_MIN_INT = -MAX_INT
_NUMBER_TYPES: frozenset[type] = frozenset({int, float, bool})
_CONTAINER_TYPES: frozenset[type] = frozenset({list, Table})
_MAX_NUMBER_LENGTH = 100
"""Maximum characters of a text that is parsed as a number."""
_MAX_DIGITS = 15
"""Maximum decimal places: a float has no more. `round(5, -10**9)` would compute 10 to that power."""


def _add(left: Any, right: Any) -> Any:
    if type(left) is str or type(left) is list:
        return _join(left, right)
    result = left + right
    return result if type(result) is not int or _MIN_INT <= result <= MAX_INT else _check_int(result)


def _join(left: Any, right: Any) -> Any:
    if type(left) is type(right) and len(left) + len(right) > MAX_ITEMS:
        raise RuleError(
            f"{describe_type(left)} of more than {MAX_ITEMS:,} {'characters' if type(left) is str else 'items'}"
        )
    return left + right


def _subtract(left: Any, right: Any) -> Any:
    result = left - right
    return result if type(result) is not int or _MIN_INT <= result <= MAX_INT else _check_int(result)


def _multiply(left: Any, right: Any) -> Any:
    try:
        result = +left * +right  # a unary + accepts numbers only; Python would repeat a text or a list
    except TypeError:
        raise TypeError(f"* is for numbers, not for {describe_type(left)} and {describe_type(right)}") from None
    return result if type(result) is not int or _MIN_INT <= result <= MAX_INT else _check_int(result)


def _remainder(left: Any, right: Any) -> Any:
    try:
        return +left % right  # a unary + accepts numbers only; with a text, % would format
    except TypeError:
        raise TypeError(f"% is for numbers, not for {describe_type(left)} and {describe_type(right)}") from None


def _check_int(value: Any) -> Any:
    if type(value) is int and not _MIN_INT <= value <= MAX_INT:
        raise RuleError("a number of more than 64 bits")
    return value


def _slice(value: Any, start: Any, stop: Any, step: Any) -> Any:
    return value[start:stop:step]


def _round(value: Any, digits: Any = None) -> Any:
    _check_number(value)
    return _check_int(round(value, digits if digits is None else _check_digits(digits, -_MAX_DIGITS)))


def _percent(value: Any, digits: Any = 0) -> str:
    """Format a fraction as a percentage.

    >>> _percent(0.725), _percent(2, 1)
    ('72%', '200.0%')
    """
    return f"{_check_number(value):.{_check_digits(digits, 0)}%}"


def _filter_int(value: Any, default: Any = 0) -> Any:
    """Convert a number, or a text that is one, as Jinja does; anything else is the default.

    >>> _filter_int(85.7), _filter_int("3.9"), _filter_int("many"), _filter_int(None, -1)
    (85, 3, 0, -1)
    """
    if type(value) in _CONTAINER_TYPES:
        raise TypeError(f"{describe_type(value)} is not a number")
    try:
        number = float(_check_numeric_text(value)) if type(value) is str and not value.isdecimal() else value
        return _int(number)
    except (TypeError, ValueError, OverflowError):
        return default


def _filter_length(value: Any) -> int:
    if type(value) is not str and type(value) not in _CONTAINER_TYPES:
        raise TypeError(f"{describe_type(value)} has no length")
    return len(value)


def _filter_upper(value: Any) -> str:
    return _bound_text(_check_text(value).upper())


def _filter_lower(value: Any) -> str:
    return _bound_text(_check_text(value).lower())


def _check_text(value: Any) -> str:
    if type(value) is str:
        return value
    raise TypeError(f"{describe_type(value)} is not a string")


def _bound_text(text: str) -> str:
    if len(text) > MAX_ITEMS:  # some letters have an upper case of three letters
        raise RuleError(f"a string of more than {MAX_ITEMS:,} characters")
    return text


def _get(table: Any, key: Any, default: Any = None) -> Any:
    return table[key] if _has(table, key) else default


def _has(table: Any, key: Any) -> bool:
    return key in _check_table(table)


def _keys(table: Any) -> list[str]:
    return list(_check_table(table))


def _check_table(value: Any) -> Table:
    if type(value) is Table:
        return value
    raise TypeError(f"{describe_type(value)} has no keys")


def _check_digits(value: Any, min_digits: int) -> int:
    if type(value) is int and min_digits <= value <= _MAX_DIGITS:
        return value
    raise ValueError(f"digits must be a whole number from {min_digits} to {_MAX_DIGITS}")


def _check_number(value: Any) -> Any:
    if type(value) in _NUMBER_TYPES:
        return value
    raise TypeError(f"{describe_type(value)} is not a number")


def _int(value: Any) -> Any:
    return _check_int(int(_check_numeric_text(value)))


def _float(value: Any) -> float:
    return float(_check_numeric_text(value))


def _check_numeric_text(value: Any) -> Any:
    if type(value) is str and len(value) > _MAX_NUMBER_LENGTH:
        raise ValueError(f"a string of more than {_MAX_NUMBER_LENGTH} characters is not a number")
    return value


def to_text(value: object, max_characters: int = MAX_ITEMS) -> str:
    """Convert a value to text. Raises RuleError if that is too long."""
    text = str(to_plain(value, max_characters) if type(value) in _CONTAINER_TYPES else value)
    if len(text) > max_characters:
        raise RuleError(f"a string of more than {max_characters:,} characters")
    return text


def _sum(value: Any) -> Any:
    return _check_int(sum(value))


def _sorted(value: Any) -> list[Any]:
    if len(value) > MAX_ITEMS:
        raise RuleError(f"{describe_type(value)} of more than {MAX_ITEMS:,} items")
    return sorted(value)


def _default(value: Callable[[], object], fallback: Callable[[], object]) -> object:
    """Return the fallback for a value that is none or fails."""
    try:
        result = value()
    except Exception:
        result = None
    return fallback() if result is None else result


class Function(NamedTuple):
    """A function that an expression may call, with its number of arguments."""

    call: Callable[..., object]
    min_arguments: int = 1
    max_arguments: int = 1


FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(abs),
    "all": Function(all),
    "any": Function(any),
    "bool": Function(bool),
    "float": Function(_float),
    "int": Function(_int),
    "len": Function(len),
    "max": Function(max, max_arguments=100),
    "min": Function(min, max_arguments=100),
    "round": Function(_round, max_arguments=2),
    "sorted": Function(_sorted),
    "str": Function(to_text),
    "sum": Function(_sum),
}
_PYTHON: Any = operator
METHODS: Mapping[str, tuple[int, int]] = {"get": (1, 2), "has": (1, 1), "keys": (0, 0)}
"""Methods of tables, with their minimum and maximum number of arguments."""
SIGNS: Mapping[str, Callable[..., object]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _PYTHON.truediv,
    "//": _PYTHON.floordiv,
    "%": _remainder,
    ".": get_field,
    "[]": _PYTHON.getitem,
    "[:]": _slice,
    "|default": _default,
    "|int": _filter_int,
    "|length": _filter_length,
    "|lower": _filter_lower,
    "|percent": _percent,
    "|round": _round,
    "|upper": _filter_upper,
    ".get": _get,
    ".has": _has,
    ".keys": _keys,
}
"""Operations by the names that compiled code uses for them."""
