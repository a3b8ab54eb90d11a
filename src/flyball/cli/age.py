"""Ages such as `30d`, as options give them."""

from __future__ import annotations

import re

from ..errors import ConfigError

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])")


def parse_age(option: str, age: str) -> float:
    """Return the seconds of an age.

    >>> parse_age("spend, --since", "1.5h")
    5400.0
    """
    match = _AGE.fullmatch(age.strip().lower())
    if match is None:
        raise ConfigError(option, age, "a number and a unit: 45m, 12h, 30d or 2w")
    return float(match[1]) * _SECONDS[match[2]]
