"""Snapshots of a budget: to display, to store as JSON, and to restore."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

from .._internal import validation
from ..errors import ConfigError, suggest_names
from ..unit import Unit


@dataclass(frozen=True, slots=True)
class BudgetSnapshot:
    """Consistent copy of one budget's counters, taken under its lock.

    `used + held + remaining == ceiling`, unless `used` exceeds the ceiling; then `remaining` is 0.
    """

    name: str
    ceiling: int | None
    used: int
    held: int = 0
    unsettled: int = 0
    """Units counted as used on restore, for holds open in the earlier snapshot."""
    brought: int = 0
    """Units used before the budget existed; never counted in an ancestor."""
    refunds: Mapping[str, int] = field(default_factory=dict[str, int])
    """Refunded units by reason."""
    refund_limit: int | None = None
    """Maximum of all refunds together. None means the ceiling."""
    maximum: int | None = None
    """Highest ceiling that `extend` may reach. None means no limit."""
    extensions: tuple[Extension, ...] = ()
    unit: Unit = Unit.COUNT

    @property
    def remaining(self) -> int | float:
        """Units left in this budget alone; `math.inf` without a ceiling."""
        return math.inf if self.ceiling is None else max(0, self.ceiling - self.used - self.held)

    @property
    def refunded(self) -> int:
        """Sum of all refunds."""
        return sum(self.refunds.values())

    @property
    def claimed(self) -> int:
        """Units ever counted, including those refunded later."""
        return self.used + self.refunded

    @property
    def exceeded(self) -> bool:
        """True once the ceiling is reached."""
        return self.ceiling is not None and self.used >= self.ceiling

    @property
    def ratio(self) -> float:
        """Share of the ceiling that is used; 0.0 without a ceiling."""
        return compute_ratio(self.used, self.ceiling)

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot in JSON types, for `from_dict`."""
        row = {name: getattr(self, name) for name in _FIELDS}
        row["refunds"] = dict(self.refunds)
        row["extensions"] = [{"amount": extension.amount, "by": extension.by} for extension in self.extensions]
        row["unit"] = self.unit.value
        return row

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BudgetSnapshot:
        """Parse the output of `to_dict`.

        Raises ConfigError naming the first invalid key or value.
        """
        _check_keys("budget snapshot", data, set(_FIELDS))
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


_FIELDS = tuple(field.name for field in fields(BudgetSnapshot))


@dataclass(frozen=True, slots=True)
class Extension:
    """Increase of a ceiling: the amount, and who raised it."""

    amount: int
    by: str


def compute_ratio(used: int, ceiling: int | None) -> float:
    """Return used / ceiling: 0.0 without a ceiling, 1.0 for a ceiling of 0."""
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
    if not isinstance(data, Mapping):
        raise ConfigError(where, data, f"a mapping with the keys {', '.join(sorted(known))}")
    keys = {str(key) for key in cast("Mapping[object, object]", data)}
    for key in sorted(keys - known):
        raise ConfigError(where, key, f"the key {' or '.join(suggest_names(key, known) or sorted(known))}")
    # A missing key is an error: a lost ceiling must not mean that there is none.
    for key in sorted(known - keys):
        raise ConfigError(where, sorted(keys), f"also the key {key!r}")
