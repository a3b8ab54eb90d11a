"""Steadiness: what an agent is told about calls that come again, and about looking back at its work."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from ._internal import validation
from .errors import ConfigError
from .settings import Setting, Settings
from .unit import Unit

WINDOW_SIZE = 16
"""How many of the newest calls are looked at."""
_PREFIX = "repetition."


class Duplicates(StrEnum):
    """What becomes of a call that an equal one has answered, if nothing was changed since."""

    ALLOW = "allow"
    """It is made."""
    REUSE = "reuse"
    """It is not made; the earlier result is its result, marked."""
    REJECT = "reject"
    """It is denied; the model is shown the earlier result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From when on calls that come again are a loop; None looks for no such loop. Settings: `[repetition]`.

    >>> Thresholds.of(Settings({"repetition.same": 5})).same
    5
    """

    same: int | None = 3
    """So often in a row the same call with the same result."""
    rounds: int | None = 2
    """So often through the same circle of calls with the same results."""
    longest: int = 4
    """The most calls in a circle."""
    failures: int | None = 2
    """So often the same call with the same kind of error: the model gets a hint."""

    def __post_init__(self) -> None:
        for name in ("same", "rounds", "failures"):
            validation.check_optional_int(f"thresholds, {name}", getattr(self, name), min_value=2)
        validation.check_int("thresholds, longest", self.longest, min_value=2)
        if (self.same or 0) > WINDOW_SIZE:
            raise ConfigError("thresholds, same", self.same, f"at most {WINDOW_SIZE}: so many calls are looked at")
        if (self.rounds or 0) * self.longest > WINDOW_SIZE:
            found = f"{self.rounds} rounds of {self.longest} calls"
            raise ConfigError("thresholds, rounds", found, f"at most {WINDOW_SIZE} calls in all: so many are looked at")

    @classmethod
    def of(cls, settings: Settings) -> Thresholds:
        """Those that the settings say; the usual ones else."""
        found = {name: settings.find(key) for name, key in _KEYS.items()}
        given = {name: setting for name, setting in found.items() if setting is not None}
        values: dict[str, Any] = {name: _parse_count(setting) for name, setting in given.items()}
        try:
            return cls(**values)
        except ConfigError as error:
            name = error.where.removeprefix("thresholds, ")
            setting = given.get(name) or next(iter(given.values()))
            raise setting.error(error.expected) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflection:
    """When an agent looks back at its work, in a request without tools; what it says guides the next turn."""

    every: int | None = None
    """After every so many turns."""
    after_failure: bool = False
    """After a turn in which a call failed or timed out."""
    prompt: str = (
        "Look back at the work so far, in a few sentences: what is done, what did not work and why, and what is the "
        "best next step? Call no tool now."
    )

    def __post_init__(self) -> None:
        validation.check_optional_int("reflection, every", self.every, min_value=1)
        validation.check_type("reflection, after_failure", self.after_failure, bool)
        validation.check_text("reflection, prompt", self.prompt)
        if self.every is None and not self.after_failure:
            raise ConfigError("reflection", "neither every=N nor after_failure=True", "one of them, or both")


_KEYS = {field.name: f"{_PREFIX}{field.name}" for field in fields(Thresholds)}
SETTINGS = tuple(_KEYS.values())
"""The keys that are read."""


def _parse_count(setting: Setting) -> int | None:
    value = setting.value
    if isinstance(value, str) and value.strip().lower() == "none":
        return None
    try:
        return int(Unit.COUNT.parse(value))
    except ValueError:
        raise setting.error(f"{Unit.COUNT.expected}, or none") from None
