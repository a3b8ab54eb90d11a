"""Settings against repeated calls, and for reflection."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from ._internal import validation
from .errors import ConfigError, UsageError
from .settings import Setting, Settings
from .unit import Unit

WINDOW_SIZE = 16
"""Number of newest calls that are searched for repetition."""
_PREFIX = "repetition."


class Duplicates(StrEnum):
    """Handling of a repeated call when nothing changed since the first."""

    ALLOW = "allow"
    """The call is made."""
    REUSE = "reuse"
    """The call is not made. It gets the earlier result, with a note."""
    REJECT = "reject"
    """The call is denied. The model sees the earlier result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Numbers of repetitions that count as a loop. Settings: `[repetition]`.

    None disables a check.

    >>> Thresholds.of(Settings({"repetition.same": 5})).same
    5
    """

    same: int | None = 3
    """Number of equal calls in a row with equal results."""
    rounds: int | None = 2
    """Number of rounds through a cycle of calls with equal results."""
    longest: int = 4
    """Maximum number of calls in a cycle."""
    failures: int | None = 2
    """Number of equal calls with the same kind of error, after which the model gets a hint."""

    def __post_init__(self) -> None:
        for name in ("same", "rounds", "failures"):
            validation.check_optional_int(f"thresholds, {name}", getattr(self, name), min_value=2)
        validation.check_int("thresholds, longest", self.longest, min_value=2)
        if (self.same or 0) > WINDOW_SIZE:
            raise ConfigError("thresholds, same", self.same, f"at most {WINDOW_SIZE}, the number of compared calls")
        if (self.rounds or 0) * self.longest > WINDOW_SIZE:
            raise ConfigError("thresholds, rounds", self.rounds, f"rounds times longest of at most {WINDOW_SIZE} calls")

    @classmethod
    def of(cls, settings: Settings) -> Thresholds:
        """Read the thresholds from settings, with defaults for missing ones."""
        candidates = {name: settings.find(key) for name, key in _KEYS.items()}
        present = {name: setting for name, setting in candidates.items() if setting is not None}
        values: dict[str, Any] = {name: _parse_count(setting) for name, setting in present.items()}
        try:
            return cls(**values)
        except ConfigError as error:
            name = error.where.removeprefix("thresholds, ")
            setting = present.get(name) or next(iter(present.values()))
            raise setting.error(error.expected) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflection:
    """Points at which the model reviews its work in a request without tools.

    Its reflection guides the next turn.
    """

    every: int | None = None
    """Number of turns between reflections. None means no regular reflection."""
    after_failure: bool = False
    """Reflect after a turn in which a call failed or timed out."""
    prompt: str = (
        "Look back at the work so far, in a few sentences: what is done, what did not work and why, and what is the "
        "best next step? Call no tool now."
    )

    def __post_init__(self) -> None:
        validation.check_optional_int("reflection, every", self.every, min_value=1)
        validation.check_type("reflection, after_failure", self.after_failure, bool)
        validation.check_text("reflection, prompt", self.prompt)
        if self.every is None and not self.after_failure:
            raise UsageError("Reflection() needs every=N, after_failure=True, or both")


_KEYS = {field.name: f"{_PREFIX}{field.name}" for field in fields(Thresholds)}
SETTINGS = tuple(_KEYS.values())
"""Keys of the settings that `Thresholds.of` reads."""


def _parse_count(setting: Setting) -> int | None:
    value = setting.value
    if isinstance(value, str) and value.strip().lower() == "none":
        return None
    try:
        return int(Unit.COUNT.parse(value))
    except ValueError:
        raise setting.error(f"{Unit.COUNT.expected}, or none") from None
