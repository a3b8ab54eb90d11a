"""What a budget was at one moment: enough to show it, to keep it as JSON, and to continue it exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast

from .._internal import validation
from ..errors import ConfigError, suggest_names
from ..unit import Unit


@dataclass(frozen=True, slots=True)
class Extension:
    """One raise of a ceiling: how much, and by whom."""

    amount: int
    by: str


@dataclass(frozen=True, slots=True)
class BudgetSnapshot:
    """A consistent reading of one budget, taken under its lock.

    `used + held + remaining == ceiling`, unless facts have passed the ceiling; then `remaining` is 0.
    """

    name: str
    ceiling: int | None
    used: int
    held: int = 0
    unsettled: int = 0
    """How much was counted as used, when an earlier snapshot was restored, for holds that were open in it."""
    brought: int = 0
    """How much was used before the budget began, and so never counted for an ancestor."""
    refunds: Mapping[str, int] = field(default_factory=dict[str, int])
    """What was given back, by reason."""
    refund_limit: int | None = None
    """The most that is ever given back; None means as much as the ceiling."""
    maximum: int | None = None
    """The highest that `extend` may raise the ceiling; None means any height."""
    extensions: tuple[Extension, ...] = ()
    unit: Unit = Unit.COUNT

    @property
    def remaining(self) -> int | float:
        """What this budget itself still allows; `math.inf` without a ceiling."""
        return math.inf if self.ceiling is None else max(0, self.ceiling - self.used - self.held)

    @property
    def refunded(self) -> int:
        """How much was given back in all."""
        return sum(self.refunds.values())

    @property
    def claimed(self) -> int:
        """How much was ever counted: a fact that no refund takes back."""
        return self.used + self.refunded

    @property
    def exceeded(self) -> bool:
        """Whether the ceiling is reached."""
        return self.ceiling is not None and self.used >= self.ceiling

    @property
    def ratio(self) -> float:
        """Used of ceiling: 0.0 without a ceiling, above 1.0 when facts have passed it."""
        return compute_ratio(self.used, self.ceiling)

    def to_dict(self) -> dict[str, Any]:
        """The same in JSON types; `from_dict` reads it back."""
        return asdict(self) | {
            "unit": self.unit.value,
            "extensions": [asdict(extension) for extension in self.extensions],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BudgetSnapshot:
        """Read what `to_dict` wrote; a ConfigError names the first thing it cannot have written."""
        _check_keys("budget snapshot", data, {f.name for f in fields(cls)})
        where = f"snapshot of budget {validation.check_text('budget snapshot, name', data['name'])!r}"

        def count(key: str) -> int:
            return validation.check_int(f"{where}, {key}", data[key])

        def bound(key: str) -> int | None:
            return validation.check_optional_int(f"{where}, {key}", data[key])

        return cls(
            name=data["name"],
            ceiling=bound("ceiling"),
            used=count("used"),
            held=count("held"),
            unsettled=count("unsettled"),
            brought=count("brought"),
            refunds=_parse_refunds(f"{where}, refunds", data["refunds"]),
            refund_limit=bound("refund_limit"),
            maximum=bound("maximum"),
            extensions=_parse_extensions(f"{where}, extensions", data["extensions"]),
            unit=validation.parse_enum(f"{where}, unit", data["unit"], Unit),
        )


def compute_ratio(used: int, ceiling: int | None) -> float:
    """Used of ceiling; where nothing is allowed, all of it is used."""
    if ceiling is None:
        return 0.0
    return used / ceiling if ceiling else 1.0


def _parse_refunds(where: str, data: object) -> dict[str, int]:
    if not isinstance(data, Mapping):
        raise ConfigError(where, data, "a mapping of reasons to amounts")
    rows = cast("Mapping[object, object]", data)
    return {
        validation.check_text(where, reason): validation.check_int(f"{where}, {reason}", amount)
        for reason, amount in rows.items()
    }


def _parse_extensions(where: str, data: object) -> tuple[Extension, ...]:
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise ConfigError(where, data, "a list of extensions")
    rows = cast("Sequence[Mapping[str, Any]]", data)
    return tuple(_parse_extension(f"{where}[{n}]", row) for n, row in enumerate(rows))


def _parse_extension(where: str, row: Mapping[str, Any]) -> Extension:
    _check_keys(where, row, {"amount", "by"})
    return Extension(
        validation.check_int(f"{where}.amount", row["amount"], min_value=1),
        validation.check_text(f"{where}.by", row["by"]),
    )


def _check_keys(where: str, data: object, known: set[str]) -> None:
    """Exactly these keys: a bound that got lost on the way must not mean that there is none."""
    if not isinstance(data, Mapping):
        raise ConfigError(where, data, f"a mapping with the keys {', '.join(sorted(known))}")
    keys = {str(key) for key in cast("Mapping[object, object]", data)}
    for key in sorted(keys - known):
        raise ConfigError(where, key, f"the key {' or '.join(suggest_names(key, known) or sorted(known))}")
    for key in sorted(known - keys):
        raise ConfigError(where, sorted(keys), f"the key {key!r} too")
