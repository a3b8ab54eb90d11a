"""When rules need not look: while each number that they compare stays on its side of what it is compared with.

Most rules compare a number that only grows with one that does not change: `context.budget.turns.ratio > 0.7`. Until the
moment when that turns over, another look would find the same; and that moment can be reckoned.
"""

# Counts are looked at in every turn, so they are read where they are kept.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..budget.run_budget import TurnBudget
from ..progress import Progress
from .rule import Rule
from .vocabulary import BUDGETS

_TOLERANCE_SECONDS = 1e-6
"""Seconds around a moment in which it is better to look."""
_SIGNS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)
_COUNTS = {"context.turn.iteration_count": ("turns", "used"), "context.turn.token_usage": ("tokens", "used")}
_READINGS, _TIME_READINGS = frozenset({"used", "ratio", "remaining"}), frozenset({"ratio", "remaining"})


class Comparison(NamedTuple):
    """A field that a rule compares with a number; the field by its budget and reading, or ("", "characters")."""

    budget: str
    reading: str
    number: float


def find_comparisons(rules: Iterable[Rule]) -> dict[str, Sequence[Comparison]] | None:
    """All that these rules compare, by their ids; None where one of them does anything else."""
    found: dict[str, Sequence[Comparison]] = {}
    for rule in rules:
        parts = None if rule.condition is None else _collect_comparisons(rule, rule.condition.source.parse())
        if parts is None:
            return None
        found[rule.id] = parts
    return found


def _collect_comparisons(rule: Rule, node: ast.expr) -> list[Comparison] | None:
    match node:
        case ast.BoolOp(values=values):
            parts = [_collect_comparisons(rule, value) for value in values]
            return None if None in parts else [one for part in parts for one in part or ()]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _collect_comparisons(rule, operand)
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if isinstance(sign, _SIGNS):
            one = _parse_comparison(rule, left, right) or _parse_comparison(rule, right, left)
            return None if one is None else [one]
        case _:
            return None


def _parse_comparison(rule: Rule, field: ast.expr, number: ast.expr) -> Comparison | None:
    name, value = ast.unparse(field), _parse_number(rule, number)
    if value is None:
        return None
    if name == "context.result.characters":
        return Comparison("", "characters", value)
    budget, reading = _COUNTS.get(name) or _parse_field(name)
    exact = reading == "ratio" or budget != "usd"  # dollars are fractions
    known = budget in BUDGETS and reading in (_TIME_READINGS if budget == "seconds" else _READINGS)
    return Comparison(budget, reading, value) if known and exact else None


def _parse_field(name: str) -> tuple[str, str]:
    match name.split("."):
        case ["context", "budget", budget, reading]:
            return budget, reading
        case _:
            return "", ""


def _parse_number(rule: Rule, node: ast.expr) -> float | None:
    value: object = None
    match node:
        case ast.Constant(value=found):
            value = found
        case ast.Attribute(value=ast.Name(id="params"), attr=name):
            value = rule.params.get(name)
        case _:
            pass
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return value


Span = tuple[str, float, float, int | None]
"""A budget, between which counts nothing turns over, and its ceiling, by which that was reckoned."""


class ThresholdTable:
    """Where what some rules compare turns over, in a run with these ceilings. Any number of runs may share it."""

    __slots__ = ("_rules", "ceilings", "comparisons", "counts", "moments", "moves", "rules")

    def __init__(
        self, rules: Sequence[Rule], comparisons: Mapping[str, Sequence[Comparison]], envelope: TurnBudget
    ) -> None:
        self.rules = rules
        self.comparisons = comparisons
        self.moves = envelope.moves
        self.counts: dict[str, list[float]] = {}
        self.ceilings: dict[str, int | None] = {}
        self.moments: list[float] = []
        self._rules: dict[tuple[str, ...], list[Rule]] = {}
        for one in {one for row in comparisons.values() for one in row}:
            if one.budget == "seconds":
                self.moments += _compute_moments(one, envelope)
            elif one.budget:
                self.counts.setdefault(one.budget, []).extend(_compute_counts(one, envelope))
                self.ceilings[one.budget] = envelope.budgets[one.budget].ceiling
        self.moments.sort()

    def find_spans(self, progress: Progress) -> list[Span]:
        """Between which counts the run is now."""
        spans = [self.find_span(name, progress.envelope.budgets[name].used) for name in self.counts]
        return [span for span in spans if span[1] != -math.inf or span[2] != math.inf or span[3] is not None]

    def find_span(self, name: str, used: int) -> Span:
        """Between which counts a budget is."""
        return name, *_find_interval(used, self.counts[name]), self.ceilings[name]

    def find_next_moment(self, now: float) -> float:
        """When the time turns something over."""
        return next((moment for moment in self.moments if moment > now), math.inf)

    def find_rules(self, names: Iterable[str]) -> Sequence[Rule]:
        """The rules that compare any of these, in their order."""
        wanted = tuple(names)
        found = self._rules.get(wanted)
        if found is None:
            ids = {id for id, row in self.comparisons.items() if any(one.budget in wanted for one in row)}
            found = self._rules[wanted] = [rule for rule in self.rules if rule.id in ids]
        return found


class ThresholdWatch:
    """The rules of one moment, in one run: which of them have to look."""

    __slots__ = ("_moves", "_points", "_spans", "_until")

    def __init__(self, points: ThresholdTable, spans: Sequence[Span], until: float) -> None:
        self._points = points
        self._spans = spans
        self._until = until
        self._moves = points.moves

    def is_unchanged(self, progress: Progress) -> bool:
        """Whether nothing has turned over since they looked."""
        envelope = progress.envelope
        if envelope.clock.now() >= self._until or envelope.moves != self._moves:
            return False
        budgets = envelope.budgets
        for name, low, high, ceiling in self._spans:
            budget = budgets[name]
            if not low <= budget._used < high or budget._ceiling != ceiling:
                return False
        return True

    def find_changed_rules(self, progress: Progress) -> Sequence[Rule] | None:
        """Those for which something has turned over; None where that must be reckoned anew."""
        envelope, names = progress.envelope, list[str]()
        if envelope.moves != self._moves:
            return None
        for name, low, high, ceiling in self._spans:
            budget = envelope.budgets[name]
            if budget._ceiling != ceiling:
                return None
            if not low <= budget._used < high:
                names.append(name)
        if envelope.clock.now() >= self._until:
            names.append("seconds")
        return self._points.find_rules(names)

    def advance(self, progress: Progress) -> ThresholdWatch:
        """How it goes on when those have looked."""
        points, budgets, now = self._points, progress.envelope.budgets, progress.envelope.clock.now()
        spans: list[Span] = []
        for span in self._spans:
            used = budgets[span[0]]._used
            spans.append(span if span[1] <= used < span[2] else points.find_span(span[0], used))
        return ThresholdWatch(points, spans, self._until if now < self._until else points.find_next_moment(now))


def create_watch(points: ThresholdTable, progress: Progress) -> ThresholdWatch:
    """A watch for rules all of which have just looked."""
    return ThresholdWatch(points, points.find_spans(progress), points.find_next_moment(progress.envelope.clock.now()))


class StartCache:
    """What is known of runs that begin alike, from those that did before."""

    __slots__ = ("quiet_sizes", "watch")

    def __init__(self) -> None:
        self.watch: ThresholdWatch | None = None
        """How long rules that look at the start of a turn find nothing."""
        self.quiet_sizes: tuple[float, float] | None = None
        """The sizes of results in which rules find nothing."""


def _compute_counts(comparison: Comparison, envelope: TurnBudget) -> tuple[float, float]:
    """From what count on a field is the number or beyond it, and from which it is beyond."""
    budget, number = envelope.budgets[comparison.budget], comparison.number
    room = None if budget.ceiling is None else budget.ceiling - envelope.reserved(comparison.budget)
    if comparison.reading == "used":
        return _compute_bounds(comparison)
    if room is None:
        return math.inf, math.inf
    if comparison.reading == "remaining":
        return room - math.floor(number), math.inf if number <= 0 else room - math.ceil(number) + 1
    return _compute_ratio_counts(room, number)


def _compute_ratio_counts(room: int, number: float) -> tuple[float, float]:
    if room <= 0:
        return math.inf, math.inf
    least = max(0, math.floor(number * room) - 1)
    while least / room < number:
        least += 1
    more = least
    while more / room <= number:
        more += 1
    return least, more


def _compute_moments(comparison: Comparison, envelope: TurnBudget) -> list[float]:
    """When the time turns a field over, and a little sooner and later, as these are not exact."""
    if envelope.work_at == math.inf:
        return []
    whole = envelope.seconds + envelope.postponed_s - envelope.reserve_s
    at = envelope.work_at - (
        comparison.number if comparison.reading == "remaining" else whole * (1 - comparison.number)
    )
    return [at - _TOLERANCE_SECONDS, at, at + _TOLERANCE_SECONDS]


def _find_interval(value: float, points: Iterable[float]) -> tuple[float, float]:
    """The points before and behind a value."""
    low, high = -math.inf, math.inf
    for point in points:
        if low < point <= value:
            low = point
        elif value < point < high:
            high = point
    return low, high


def find_size_interval(comparisons: Mapping[str, Sequence[Comparison]], size: int) -> tuple[float, float] | None:
    """From and to which size of a result these rules find the same; None where they look at anything else."""
    if any(one.budget for row in comparisons.values() for one in row):
        return None
    points = [point for row in comparisons.values() for one in row for point in _compute_bounds(one)]
    return _find_interval(size, points)


def _compute_bounds(comparison: Comparison) -> tuple[float, float]:
    return math.ceil(comparison.number), math.floor(comparison.number) + 1
