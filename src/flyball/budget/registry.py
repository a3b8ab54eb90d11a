"""Registry of budgets: the name, default, bounds and setting of each.

A program may register its own. Each run gets fresh counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from .._internal import validation
from ..errors import ConfigError, UnknownBudget
from ..settings import Setting, Settings
from ..unit import Unit
from .budget import IterationBudget

Amount = int | float


class Unset(Enum):
    """Type of UNSET, which marks an argument left out where None has a meaning."""

    UNSET = "unset"


UNSET = Unset.UNSET
_DEFAULT_SOURCE = "the default"


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """Declaration of a budget.

    Amounts are in the unit that people write (dollars, not billionths). None means no limit. `setting` is the
    configuration key that overrides the default, and `general_setting` the one that does if `setting` is not set.
    """

    name: str
    default: Amount | None
    min: Amount = 0
    max: Amount | None = None
    setting: str | None = None
    unit: Unit = Unit.COUNT
    general_setting: str | None = None

    def __post_init__(self) -> None:
        validation.check_text("budget name", self.name)
        object.__setattr__(self, "unit", validation.parse_enum(f"budget {self.name!r}, unit", self.unit, Unit))
        if self.setting is not None:
            validation.check_text(f"budget {self.name!r}, setting", self.setting)
        bounds, default = self.bounds, self.inner("default", self.default)
        if bounds.low < 0:
            raise self.error("min", self.min, "at least 0")
        if bounds.high is not None and bounds.high < bounds.low:
            raise self.error("max", self.max, f"at least its min of {self.min}")
        if bounds.clamp(default) != default:
            raise self.error("default", self.default, f"a value {bounds.show(self.unit)}")

    @property
    def settings(self) -> tuple[str, ...]:
        """Keys of the settings that may set the ceiling. The first that is set counts."""
        return tuple(filter(None, (self.setting, self.general_setting)))

    @property
    def bounds(self) -> CeilingBounds:
        """Bounds that every ceiling is clamped to, in internal units."""
        low = self.inner("min", self.min)
        if low is None:
            raise self.error("min", None, self.unit.expected)
        return CeilingBounds(low, self.inner("max", self.max))

    def inner(self, field: str, amount: object) -> Amount | None:
        """Convert an amount given in code to internal units.

        Strings are rejected; only settings may use them.
        """
        if amount is None:
            return None
        try:
            return self.unit.parse(None if isinstance(amount, str) else amount)
        except ValueError:
            raise self.error(field, amount, f"{self.unit.expected}, or None") from None

    def error(self, field: str, found: object, expected: str) -> ConfigError:
        """Build the ConfigError for an unusable field of this budget."""
        return ConfigError(f"budget {self.name!r}, {field}", found, expected)


@dataclass(frozen=True, slots=True)
class CeilingBounds:
    """Minimum and maximum of a ceiling, in internal units.

    `high` None means no maximum. `narrowed_by` is the setting that lowered `high`, if any.
    """

    low: Amount
    high: Amount | None
    narrowed_by: Setting | None = None

    def clamp(self, amount: Amount | None) -> Amount | None:
        """Return the nearest amount within the bounds."""
        if amount is None:
            return self.high
        return max(self.low, amount if self.high is None else min(amount, self.high))

    def show(self, unit: Unit) -> str:
        """Format the bounds for a person: `from 1 to 50`."""
        high = "up" if self.high is None else f"to {unit.show(self.high)}"
        by = f", narrowed by {self.narrowed_by.source}" if self.narrowed_by else ""
        return f"from {unit.show(self.low)} {high}{by}"


@dataclass(frozen=True)
class Resolution:
    """Ceiling of a budget, and where it came from."""

    spec: BudgetSpec
    value: Amount | None
    """Ceiling in internal units. None means no limit."""
    requested: Amount | None
    """Requested ceiling before clamping. None means no limit."""
    source: str
    """Origin: `the given ceiling`, a setting's source, or `the default`."""
    bounds: CeilingBounds
    is_from_setting: bool = False
    setting: str | None = None
    """Key of the setting that counted. None if none did."""

    @property
    def ceiling(self) -> int | None:
        """`value` as a whole number, for counted units."""
        return None if self.value is None else int(self.value)

    @property
    def is_clamped(self) -> bool:
        """True if the bounds changed the requested ceiling."""
        return self.value != self.requested

    @property
    def is_requested(self) -> bool:
        """True if a setting or the code asked for this ceiling. A default may be narrowed on purpose."""
        return self.source != _DEFAULT_SOURCE

    @cached_property
    def template(self) -> IterationBudget:
        """Unused counter with this ceiling, for `IterationBudget.create_fresh`."""
        return self.create_budget()

    def create_budget(
        self, start: Amount = 0, parent: IterationBudget | None = None, beside: IterationBudget | None = None
    ) -> IterationBudget:
        """Create a fresh counter with this ceiling."""
        if self.spec.unit is Unit.SECONDS:
            raise self.spec.error("unit", "seconds", "a counted unit, such as count or usd")
        return IterationBudget(
            self.spec.name,
            self.ceiling,
            start=int(validation.parse_amount(f"budget {self.spec.name!r}, start", start, self.spec.unit)),
            parent=parent,
            beside=beside,
            maximum=None if self.bounds.high is None else int(self.bounds.high),
            unit=self.spec.unit,
        )

    @property
    def origin(self) -> str:
        """Source, and the requested ceiling if it was clamped."""
        unit = self.spec.unit
        clamped = f"; clamped from {unit.show(self.requested)} (allowed: {self.bounds.show(unit)})"
        return f"{self.source}{clamped if self.is_clamped else ''}"

    def __str__(self) -> str:
        return f"{self.spec.name}: {self.spec.unit.show(self.value)}, from {self.origin}"


BUILT_IN = (
    BudgetSpec("conversation_turns", 25, 1, 50, "max_turns"),
    BudgetSpec("agent_iterations", 90, 1, 500, "max_iterations", general_setting="max_turns"),
    BudgetSpec("child_iterations", 50, 1, 250, "delegation.max_iterations", general_setting="max_turns"),
    BudgetSpec("chain_depth", 3, 1, 10, "max_chain_depth"),
    BudgetSpec("tool_calls", None, setting="max_tool_calls"),
    BudgetSpec("reflections", 4, 0, 20, "max_reflections"),
    BudgetSpec("nudges", 3, 0, 20, "max_nudges"),
    BudgetSpec("retries", 10, 0, 100, "max_retries"),
    BudgetSpec("tokens", None, setting="max_tokens"),
    BudgetSpec("context_tokens", 200_000, setting="max_context_tokens"),
    BudgetSpec("cost_usd", None, setting="max_usd", unit=Unit.USD),
    BudgetSpec("seconds", 3_600, 1, 86_400, "max_seconds", Unit.SECONDS),
    BudgetSpec("child_seconds", 600, 1, 86_400, "delegation.child_timeout_seconds", Unit.SECONDS),
    BudgetSpec("children", 16, 0, 1_000, "delegation.max_children"),
    BudgetSpec("depth", 2, 0, 8, "delegation.max_depth"),
    BudgetSpec("report_tokens", 4_000, 32, setting="max_report_tokens"),
    BudgetSpec("report_seconds", 30, 1, setting="max_report_seconds", unit=Unit.SECONDS),
)


class IterationBudgetRegistry:
    """Budgets known by name: the built-in ones and those a program registers.

    >>> registry = IterationBudgetRegistry(settings={"max_turns": 400})
    >>> registry.create("conversation_turns").ceiling
    50
    >>> print(registry.explain("conversation_turns"))
    conversation_turns: 50, from settings given in code; clamped from 400 (allowed: from 1 to 50)

    Without `settings=`, the constructor reads the environment and the nearest flyball.toml once.
    """

    def __init__(self, *, settings: Settings | Mapping[str, object] | None = None) -> None:
        if settings is None:
            settings = Settings.load()
        self.settings: Final = settings if isinstance(settings, Settings) else Settings(settings)
        self._specs = {spec.name: spec for spec in BUILT_IN}
        self._bounds: dict[str, tuple[BudgetSpec, CeilingBounds]] = {}
        """Bounds of the budgets used so far. They hold for that spec, because settings are read once."""
        self._defaults: dict[str, Resolution] = {}
        """Ceilings of the budgets used so far, from a setting or the default."""
        self._resolved: dict[str, Resolution] = {}
        """The same, of those whose clamp was logged already."""
        self._logged: set[tuple[str, Amount | None]] = set()

    def __iter__(self) -> Iterator[BudgetSpec]:
        return iter(tuple(self._specs.values()))

    def __contains__(self, budget: object) -> bool:
        """Check whether a budget is registered, by its name or its spec."""
        return budget in self._specs if isinstance(budget, str) else budget in self._specs.values()

    def register(
        self,
        name: str,
        *,
        default: Amount | None,
        min: Amount = 0,
        max: Amount | None = None,
        setting: str | None = None,
        unit: Unit | str = Unit.COUNT,
    ) -> BudgetSpec:
        """Declare a budget, replacing an earlier one of the same name."""
        spec = BudgetSpec(name, default, min, max, setting, validation.parse_enum(f"budget {name!r}, unit", unit, Unit))
        self._specs[name] = spec
        return spec

    def create(
        self,
        name: str,
        start: Amount = 0,
        ceiling: Amount | Unset | None = UNSET,
        *,
        parent: IterationBudget | None = None,
        beside: IterationBudget | None = None,
    ) -> IterationBudget:
        """Create a fresh counter.

        Its ceiling is `ceiling`, otherwise the setting, otherwise the default, clamped to the bounds.
        """
        return self.resolve(name, ceiling).create_budget(start, parent, beside)

    def resolve(self, name: str, ceiling: Amount | Unset | None = UNSET) -> Resolution:
        """Explain the ceiling, and log each clamp of a setting or of a ceiling given in code once."""
        if ceiling is UNSET and type(name) is str:
            known = self._resolved.get(name)
            if known is not None and known.spec is self._specs.get(name):
                return known
        resolution = self.explain(name, ceiling)
        if ceiling is UNSET:
            self._resolved[name] = resolution
        if resolution.is_clamped and resolution.is_requested and (name, resolution.requested) not in self._logged:
            self._logged.add((name, resolution.requested))
            from logging import getLogger  # imported here, because settings are rarely clamped

            getLogger(__name__).warning("%s", resolution)
        return resolution

    def explain(self, name: str, ceiling: Amount | Unset | None = UNSET) -> Resolution:
        """Return the ceiling that `create` would use, with its source.

        Raises UnknownBudget for an unregistered name.
        """
        spec = self._specs.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if spec is None:
            raise UnknownBudget(name, tuple(self._specs))
        if ceiling is UNSET:
            known = self._defaults.get(name)
            if known is None or known.spec is not spec:
                known = self._defaults[name] = self._explain_default(spec)
            return known
        bounds = self._find_bounds(spec)
        requested = spec.inner("ceiling", ceiling)
        if requested is None and bounds.high is not None:
            raise spec.error("ceiling", None, f"a value {bounds.show(spec.unit)}")
        return Resolution(spec, bounds.clamp(requested), requested, "the given ceiling", bounds)

    def _explain_default(self, spec: BudgetSpec) -> Resolution:
        bounds = self._find_bounds(spec)
        setting = next((found for key in spec.settings if (found := self.settings.find(key)) is not None), None)
        if setting is not None:
            requested = _parse_ceiling(spec, setting, bounds)
            return Resolution(
                spec,
                bounds.clamp(requested),
                requested,
                setting.source,
                bounds,
                is_from_setting=True,
                setting=setting.key,
            )
        default = spec.inner("default", spec.default)
        return Resolution(spec, bounds.clamp(default), default, _DEFAULT_SOURCE, bounds)

    def _find_bounds(self, spec: BudgetSpec) -> CeilingBounds:
        known = self._bounds.get(spec.name)
        if known is None or known[0] is not spec:
            known = self._bounds[spec.name] = (spec, self._resolve_bounds(spec))
        return known[1]

    def _resolve_bounds(self, spec: BudgetSpec) -> CeilingBounds:
        bounds = spec.bounds
        clamps = (list(self.settings.every(f"clamp.{key}")) for key in spec.settings)
        # `[clamp]` in the file narrows the declared bounds; the environment may narrow them further.
        for setting in reversed(next(filter(None, clamps), list[Setting]())):
            high = _parse_setting(spec, setting, spec.unit.expected)
            if setting.key != f"clamp.{spec.setting}" and bounds.high is not None and high > bounds.high:
                continue  # it narrows other budgets
            if bounds.clamp(high) != high:
                raise setting.error(f"a value {bounds.show(spec.unit)}: a clamp can only narrow")
            bounds = CeilingBounds(bounds.low, high, setting)
        return bounds


def _parse_ceiling(spec: BudgetSpec, setting: Setting, bounds: CeilingBounds) -> Amount | None:
    value = setting.value
    if value is not None and not (isinstance(value, str) and value.strip().lower() == "none"):
        return _parse_setting(spec, setting, spec.unit.expected + ("" if bounds.high is not None else ", or none"))
    if bounds.high is not None:
        raise setting.error(f"a value {bounds.show(spec.unit)}")
    return None


def _parse_setting(spec: BudgetSpec, setting: Setting, expected: str) -> Amount:
    try:
        return spec.unit.parse(setting.value)
    except ValueError:
        raise setting.error(expected) from None
