"""Limits of a run: the user's settings, and the budgets made from them.

`Limits` is declared once. `Limits.terms()` looks up settings and defaults; `open()` creates the `TurnBudget` of one
run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, cast

from .._internal import validation
from ..errors import ConfigError, FlyballError, UsageError
from ..unit import Unit
from .budget import IterationBudget
from .budget_set import COUNTED, BudgetSet
from .deadline import SYSTEM, Clock, Deadline, create_deadline
from .model_limits import (
    FIELDS,
    build_model_budget,
    check_model_limits,
    iter_model_settings,
    list_model_keys,
    matches_model,
    split_key,
)
from .price import Price, compute_max_total_cost
from .registry import UNSET, IterationBudgetRegistry, Resolution, Unset
from .run_budget import TurnBudget
from .warnings import UseThresholds, find_thresholds


class RunKind(StrEnum):
    """Kind of run, which selects the registered budgets for turns and seconds."""

    AGENT = "agent"
    CONVERSATION = "conversation"
    CHILD = "child"


def _format_set_fields(value: Any) -> str:
    """Return the call that creates an object, without the fields that have their default."""
    shown: list[str] = []
    for one in fields(value):
        default = one.default if one.default_factory is MISSING else one.default_factory()
        if getattr(value, one.name) != default:
            shown.append(f"{one.name}={getattr(value, one.name)!r}")
    return f"{type(value).__name__}({', '.join(shown)})"


@dataclass(frozen=True, slots=True, repr=False)
class Reserve:
    """Part of the limits kept back for the final report.

    Seconds, tokens and US dollars. A field left out gets the default share of its limit.
    """

    seconds: float | Unset = UNSET
    tokens: int | Unset = UNSET
    usd: float | Unset = UNSET

    def __repr__(self) -> str:
        return _format_set_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Limits:
    """Limits of one run.

    A field left out gets its value from the settings or the default. None means no limit.

    >>> with Limits(turns=3, tokens=100).open() as envelope:
    ...     envelope.claim(turns=1, tokens=80), envelope.claim(turns=1, tokens=1), envelope.flags
    (True, False, ('max_tokens_reached',))
    """

    turns: int | Unset | None = UNSET
    tool_calls: int | Unset | None = UNSET
    calls: Mapping[str, int] = field(default_factory=dict[str, int])
    """Maximum number of calls by tool name."""
    tool_seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Maximum seconds of one call by tool name."""
    reflections: int | Unset | None = UNSET
    nudges: int | Unset | None = UNSET
    retries: int | Unset | None = UNSET
    tokens: int | Unset | None = UNSET
    """Input and output tokens of all requests together."""
    context_tokens: int | Unset | None = UNSET
    """Maximum input tokens of one request."""
    usd: float | Unset | None = UNSET
    """US dollars."""
    seconds: float | Unset | None = UNSET
    """Seconds of active time; waiting for a person does not count."""
    until: datetime | None = None
    """Absolute time at which the run must end; never postponed. None means no such time."""
    children: int | Unset | None = UNSET
    """Maximum number of child runs."""
    depth: int | Unset | None = UNSET
    """Maximum number of levels of child runs below this run."""
    by_model: Mapping[str, Limits] = field(default_factory=dict[str, "Limits"])
    """Limits of single models by pattern, such as `{"gpt-*": Limits(tokens=50_000)}`: `tokens`, `usd`,
    `context_tokens`."""
    report_tokens: int | Unset | None = UNSET
    """Maximum output tokens of the report."""
    report_seconds: float | Unset | None = UNSET
    """Maximum seconds of the report."""
    reserve: Reserve = field(default_factory=Reserve)

    def __post_init__(self) -> None:
        if self.by_model or not isinstance(self.by_model, dict):  # fast: most limits have none
            check_model_limits(self.by_model, Limits)
        validation.check_type("limits, calls", self.calls, Mapping)
        validation.check_type("limits, tool_seconds", self.tool_seconds, Mapping)
        validation.check_type("limits, reserve", self.reserve, Reserve)
        for tool, calls in self.calls.items():
            validation.check_int(f"limits, calls of {tool!r}", calls)
        for tool, seconds in self.tool_seconds.items():
            validation.parse_timeout(f"limits, seconds of {tool!r}", seconds)
        if self.until is not None and (not isinstance(self.until, datetime) or self.until.tzinfo is None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("limits, until", self.until, "a datetime with a time zone")

    def __repr__(self) -> str:
        return _format_set_fields(self)

    def _repr_html_(self) -> str:
        """Return each limit and its source for a notebook."""
        from .._internal.markup import build_element, build_table  # imported here, because it loads a table of entities

        try:
            limits = self.explain().items()
        except FlyballError as error:  # of a settings file, which has nothing to do with these limits
            return build_element("div", repr(self), build_element("div", str(error)))
        rows = [(name.replace("_", " "), limit.spec.unit.show(limit.value), limit.origin) for name, limit in limits]
        rows += [(f"calls of {tool}", f"{calls:,}", "code") for tool, calls in self.calls.items()]
        rows += [(f"seconds of {tool}", f"{seconds:g} s", "code") for tool, seconds in self.tool_seconds.items()]
        rows += [("until", self.until.isoformat(), "code")] if self.until else []
        rows += [] if self.reserve == Reserve() else [("reserve", repr(self.reserve), "code")]
        return build_table(("limit", "maximum", "from"), rows)

    def explain(
        self, registry: IterationBudgetRegistry | None = None, kind: RunKind = RunKind.AGENT
    ) -> dict[str, Resolution]:
        """Return the source of each ceiling, by field name."""
        registry = registry or IterationBudgetRegistry()
        names = _registered_names(kind)
        return {
            field: _allow_no_turn(field, registry.explain(name, getattr(self, field))) for field, name in names.items()
        }

    def without_default_context(self, registry: IterationBudgetRegistry | None = None) -> Limits:
        """Return these limits, without the default of `context_tokens`, for programs that fit requests to their models.

        It holds if the code or a setting sets or clamps it.
        """
        default = (registry or IterationBudgetRegistry()).explain("context_tokens")
        if self.context_tokens is not UNSET or default.is_requested or default.bounds.high is not None:
            return self
        return replace(self, context_tokens=None)

    def open(
        self,
        registry: IterationBudgetRegistry | None = None,
        *,
        kind: RunKind = RunKind.AGENT,
        grace: bool = True,
        clock: Clock = SYSTEM,
    ) -> TurnBudget:
        """Create the budget of a run that starts now.

        Without `grace` nothing is reserved for a report.
        """
        return self.resolve(registry, kind=kind, grace=grace).open(clock)

    def resolve(
        self,
        registry: IterationBudgetRegistry | None = None,
        *,
        kind: RunKind = RunKind.AGENT,
        grace: bool = True,
        with_models: bool = False,
    ) -> ResolvedLimits:
        """Look up settings and defaults once, for many runs.

        With `with_models` the caller counts the limits per model too. Raise UsageError if it does not, but has some.
        """
        registry = registry or IterationBudgetRegistry()
        by_model: Mapping[str, Limits] = self._resolve_models(registry) if with_models else dict[str, Limits]()
        if self.by_model and not with_models:
            raise UsageError("Limits(by_model=...) holds for the runs of an Agent: use tokens= and usd= here")
        resolved = {
            name: self._resolve_limit(registry, name, budget_name)
            for name, budget_name in _registered_names(kind).items()
        }
        budgets = {name: resolved[name].template for name in COUNTED}
        budgets |= {f"calls.{tool}": IterationBudget(f"calls_of_{tool}", calls) for tool, calls in self.calls.items()}
        reserve = {
            name: int(self.reserve_of(name, budgets[name].ceiling, budgets[name].unit))
            for name in ("tokens", "usd")
            if grace
        }
        for pattern, limits in by_model.items():
            for name in ("tokens", "usd"):
                amount, unit = getattr(limits, name), FIELDS[name][1]
                ceiling = None if amount in (UNSET, None) else validation.parse_amount(f"limits, {name}", amount, unit)
                if ceiling is not None:
                    key = f"{name}.{pattern}"
                    budgets[key] = cast("IterationBudget", build_model_budget(key, int(ceiling)))
                    reserve |= {key: int(limits.reserve_of(name, ceiling, unit))} if grace else {}
        seconds = validation.parse_duration("limits, seconds", resolved["seconds"].value)
        max_seconds = resolved["seconds"].bounds.high
        reserve_s = self.reserve_of("seconds", seconds, Unit.SECONDS) if grace else 0.0
        return ResolvedLimits(
            self,
            budgets,
            seconds=seconds,
            context_tokens=resolved["context_tokens"].ceiling,
            report=_build_report_cap(resolved, reserve.get("tokens", 0), reserve_s),
            reserve=reserve,
            max_extended_seconds=math.inf if max_seconds is None else float(max_seconds),
            default_reserve_s=reserve_s,
            grace=grace,
            clamped={name: str(limit) for name, limit in resolved.items() if limit.is_clamped and limit.is_requested},
            model_context_tokens={
                pattern: limits.context_tokens
                for pattern, limits in by_model.items()
                if isinstance(limits.context_tokens, int)
            },
        )

    def _resolve_models(self, registry: IterationBudgetRegistry) -> Mapping[str, Limits]:
        """Return the limits per model, with those of the settings. A limit given in code counts before a setting."""
        resolved = dict(self.by_model)
        for pattern, name, _, amount in iter_model_settings(registry.settings):
            limits = resolved.get(pattern, Limits())
            if getattr(limits, name) is UNSET:
                resolved[pattern] = replace(limits, **{name: FIELDS[name][1].outer(amount)})
        return resolved

    def _resolve_limit(self, registry: IterationBudgetRegistry, name: str, budget_name: str) -> Resolution:
        value = getattr(self, name)
        if name == "turns" and value == 0:
            return _allow_no_turn(name, registry.explain(budget_name, value))
        return registry.resolve(budget_name, value)

    def reserve_of(self, name: str, limit: int | float | None, unit: Unit) -> int | float:
        """Return the reserved part of one limit, in internal units.

        Raises ConfigError if the reserve is as large as the limit, or if there is no limit to take it from.
        """
        requested = getattr(self.reserve, name)
        if limit is None or limit == math.inf:
            if requested is not UNSET:
                raise ConfigError(f"limits, reserve.{name}", requested, f"no reserve, because {name} has no limit")
            return 0
        if requested is UNSET:
            return default_reserve(name, limit)
        amount = validation.parse_amount(f"limits, reserve.{name}", requested, unit)
        if amount >= limit:
            raise ConfigError(f"limits, reserve.{name}", requested, f"less than the run's limit of {unit.show(limit)}")
        return amount

    def worst_case(
        self,
        price: Price | None = None,
        registry: IterationBudgetRegistry | None = None,
        kind: RunKind = RunKind.AGENT,
    ) -> WorstCase:
        """Compute upper bounds on the usage of one run.

        `price` bounds the cost by the token limit; None means only `usd` bounds it.
        """
        explained = self.explain(registry, kind)
        turns, tokens = explained["turns"].ceiling, explained["tokens"].ceiling
        refunds, report = turns, 1
        parts = [turns, refunds, explained["retries"].ceiling, explained["reflections"].ceiling, report]
        requests = None if None in parts else sum(part for part in parts if part is not None)
        priced = None if price is None or tokens is None else compute_max_total_cost(price, tokens, requests)
        costs = [explained["usd"].ceiling, priced]
        return WorstCase(turns, requests, tokens, min((cost for cost in costs if cost is not None), default=None))


@dataclass(frozen=True, slots=True)
class ReportCap:
    """Maximum of a report, whatever is left of the run's limits."""

    tokens: int | None = None
    """Output tokens. None means that only the budgets limit it."""
    seconds: float = math.inf
    """Seconds. `math.inf` means that only the deadline limits it."""


@dataclass(frozen=True, slots=True)
class ResolvedLimits:
    """Limits with all settings looked up, ready to open."""

    limits: Limits
    budgets: Mapping[str, IterationBudget]
    """Unused templates by name; each run gets its own copies."""
    seconds: float
    max_extended_seconds: float
    """Maximum that rules may extend `seconds` to."""
    context_tokens: int | None
    reserve: Mapping[str, int]
    default_reserve_s: float
    grace: bool
    report: ReportCap = field(default_factory=ReportCap)
    clamped: Mapping[str, str] = field(default_factory=dict[str, str])
    """Explanations of the limits that are not as requested, by name."""
    model_context_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    """Maximum input tokens of one request, by pattern of model names."""
    has_model_budgets: bool = field(init=False, repr=False)
    """True if some model has its own limit of tokens or money."""
    thresholds: UseThresholds = field(init=False, repr=False)
    """Amounts above which a limit is nearly reached."""
    look_at: float | None = None
    """Seconds of a run until rules and warnings look at its budgets, unless counts change. None means at once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", find_thresholds(self.budgets))
        object.__setattr__(self, "has_model_budgets", bool(list_model_keys(self.budgets)))

    def find_context_tokens(self, provider: str | None, name: str) -> int | None:
        """Return the maximum input tokens of one request to a model."""
        own = [tokens for key, tokens in self.model_context_tokens.items() if matches_model(key, provider, name)]
        return min((tokens for tokens in (self.context_tokens, *own) if tokens is not None), default=None)

    def ceilings(self) -> dict[str, float | int | None]:
        """Return the resolved ceilings, for `with_ceilings` on resume."""
        counted = {name: budget.ceiling for name, budget in self.budgets.items()}
        others = {"seconds": self.seconds, "context_tokens": self.context_tokens}
        report = {"report_tokens": self.report.tokens, "report_seconds": self.report.seconds}
        return {**counted, **others, **{name: None if value == math.inf else value for name, value in report.items()}}

    def with_ceilings(self, recorded: Mapping[str, Any]) -> ResolvedLimits:
        """Return these limits with the ceilings recorded by an earlier run."""
        if recorded == self.ceilings():
            return self
        counted = {name: self.budgets[name] for name in COUNTED}  # an older record may lack one
        budgets = counted | {
            name: self._budget_with_ceiling(name, recorded[name]) for name in recorded if name not in _NOT_COUNTED
        }
        seconds = recorded["seconds"]
        reserve = {name: self._compute_reserve(name, budgets[name]) for name in self.reserve}
        reserve_s = self.limits.reserve_of("seconds", seconds, Unit.SECONDS) if self.grace else 0.0
        return replace(
            self,
            budgets=budgets,
            seconds=seconds,
            context_tokens=recorded["context_tokens"],
            report=ReportCap(recorded.get("report_tokens"), _parse_seconds(recorded.get("report_seconds"))),
            reserve=reserve,
            default_reserve_s=reserve_s,
        )

    def without_maximum(self, name: str) -> ResolvedLimits:
        """Return these limits with a budget that can be extended as often as wanted."""
        template = self.budgets[name]
        budget = IterationBudget(
            template.name, template.ceiling, refund_limit=template.refund_limit, unit=template.unit
        )
        return replace(self, budgets={**self.budgets, name: budget})

    def _compute_reserve(self, key: str, budget: IterationBudget) -> int:
        name, pattern = split_key(key) or (key, None)
        limits = self.limits if pattern is None else self.limits.by_model.get(pattern, Limits())
        return int(limits.reserve_of(name, budget.ceiling, budget.unit))

    def _budget_with_ceiling(self, name: str, ceiling: int | None) -> IterationBudget:
        template = self.budgets.get(name)
        if template is None:
            return build_model_budget(name, ceiling) or IterationBudget(name.replace("calls.", "calls_of_"), ceiling)
        maximum = None if ceiling is None or template.maximum is None else max(ceiling, template.maximum)
        return IterationBudget(
            template.name, ceiling, maximum=maximum, refund_limit=template.refund_limit, unit=template.unit
        )

    def open(
        self,
        clock: Clock = SYSTEM,
        max_seconds: float = math.inf,
        max_amounts: Mapping[str, int] | None = None,
        level: int = 0,
    ) -> TurnBudget:
        """Create the budget of a run that starts now.

        `max_seconds` and `max_amounts` are inherited caps; the limits never exceed them. `level` is the number of
        ancestor runs, from which the depth budget starts.
        """
        until, now = self.limits.until, clock.now()
        own_until_s = math.inf if until is None else max(0.0, until.timestamp() - clock.wall())
        until_s = min(max_seconds, own_until_s)
        budgets = BudgetSet(self.budgets, max_amounts)
        if level:
            budgets["depth"] = self._create_depth_budget(level, (max_amounts or {}).get("depth"), budgets["turns"])
        envelope = TurnBudget(
            budgets,
            create_deadline(now + self.seconds, clock),
            until=None if until_s == math.inf else Deadline(now + until_s, clock),
            seconds=min(self.seconds, until_s),
            context_tokens=self.context_tokens,
            reserve_s=self.compute_reserve_s(until_s),
            reserve=self.reserve if max_amounts is None else self._narrow_reserve(max_amounts),
            tool_seconds=self.limits.tool_seconds,
            counts_tools=len(self.budgets) > len(COUNTED),
            thresholds=self.thresholds if max_amounts is None else None,
        )
        envelope.clamped, envelope.is_time_shared = self.clamped, max_seconds < min(self.seconds, own_until_s)
        if self.look_at is not None and envelope.changes is not None:
            envelope.look_at, envelope.changes.is_due = now + self.look_at, False
        return envelope

    def with_marks(self, counts: Mapping[str, float], look_at: float) -> ResolvedLimits:
        """Return these limits for runs whose rules need not look before one of these counts, or this second."""
        marks = dict(counts)
        for name, _, threshold in self.thresholds:
            marks[name] = min(threshold + 1, marks.get(name, math.inf))
        budgets = {name: budget.create_marked(marks.get(name, math.inf)) for name, budget in self.budgets.items()}
        return replace(self, budgets=budgets, look_at=look_at)

    def _create_depth_budget(self, level: int, max_depth: int | None, beside: IterationBudget) -> IterationBudget:
        # The run's own limit counts from its level; the inherited one counts from the top of the tree.
        own = self.budgets["depth"].ceiling
        ceilings = [depth for depth in (None if own is None else level + own, max_depth) if depth is not None]
        ceiling = min(ceilings, default=None)
        return IterationBudget("depth", ceiling, start=level, beside=beside, maximum=ceiling)

    def _narrow_reserve(self, max_amounts: Mapping[str, int]) -> dict[str, int]:
        # An inherited cap below the limit, or without a limit beside it, gets the default share of that cap.
        shares = {name: int(default_reserve(name, amount)) for name, amount in max_amounts.items()}
        return {
            name: shares.get(name, amount)
            if self.budgets[name].ceiling is None
            else min(amount, shares.get(name, amount))
            for name, amount in self.reserve.items()
        }

    def compute_reserve_s(self, max_seconds: float = math.inf) -> float:
        """Return the seconds reserved for the report."""
        if max_seconds >= self.seconds or not self.grace:
            return self.default_reserve_s
        return self.limits.reserve_of("seconds", max(0.0, max_seconds), Unit.SECONDS)


@dataclass(frozen=True, slots=True)
class WorstCase:
    """Upper bounds on the usage of a run. None means unbounded.

    `cost` is in billionths of a US dollar.
    """

    turns: int | None
    requests: int | None
    tokens: int | None
    cost: int | None

    def __str__(self) -> str:
        show = Unit.COUNT.show
        turns = "any number of" if self.turns is None else show(self.turns)
        requests = "any number of" if self.requests is None else show(self.requests)
        tokens = "any number of" if self.tokens is None else show(self.tokens)
        cost = "any amount of money" if self.cost is None else Unit.USD.show(self.cost)
        return (
            f"These limits allow at most {turns} turns ({requests} requests with refunds, retries, reflections and the "
            f"report), {tokens} tokens, {cost}."
        )


def _allow_no_turn(name: str, resolution: Resolution) -> Resolution:
    """Return a limit of 0 turns as it is: such a run makes no claim at all. Settings are clamped to at least 1."""
    is_zero = name == "turns" and resolution.requested == 0 and not resolution.is_from_setting
    return replace(resolution, value=0) if is_zero else resolution


@cache
def _registered_names(kind: RunKind) -> Mapping[str, str]:
    turns = {
        RunKind.AGENT: "agent_iterations",
        RunKind.CONVERSATION: "conversation_turns",
        RunKind.CHILD: "child_iterations",
    }
    names = {name: name for name in (*COUNTED, "context_tokens", "report_tokens", "report_seconds")}
    seconds = "child_seconds" if kind is RunKind.CHILD else "seconds"
    return names | {"usd": "cost_usd", "turns": turns[kind], "seconds": seconds}


_NOT_COUNTED = ("seconds", "context_tokens", "report_tokens", "report_seconds")
"""Names of recorded ceilings without a counter."""


def _build_report_cap(resolved: Mapping[str, Resolution], reserved_tokens: int, reserved_s: float) -> ReportCap:
    """Return the cap of the report. A default is not below what is reserved for the report."""
    tokens, seconds = resolved["report_tokens"], resolved["report_seconds"]
    max_tokens, max_seconds = tokens.value, seconds.value
    if max_tokens is not None and reserved_tokens > max_tokens and not tokens.is_requested:
        max_tokens = reserved_tokens
    if max_seconds is not None and reserved_s > max_seconds and not seconds.is_requested:
        max_seconds = reserved_s
    return _create_report_cap(max_tokens, max_seconds)


@lru_cache(100)
def _create_report_cap(tokens: float | None, seconds: float | None) -> ReportCap:
    return ReportCap(None if tokens is None else int(tokens), math.inf if seconds is None else seconds)


def _parse_seconds(recorded: float | None) -> float:
    return math.inf if recorded is None else recorded


def default_reserve(name: str, limit: int | float) -> int | float:
    """Return the part of a limit that is reserved for the report by default, in internal units."""
    match name:
        case "seconds":
            return min(20.0, limit * 0.15)
        case "tokens":
            return min(2_000, int(limit) // 5)
        case _:
            return int(limit) // 10
