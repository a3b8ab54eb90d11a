"""Skipping rules whose compared values have not crossed a threshold.

Most rules compare a growing number with a constant, as in `context.budget.turns.ratio > 0.7`. Until the number crosses
the constant, evaluating the rule again gives the same result. The count or the time at which that happens can be
computed in advance. So most turns cost a few comparisons of ints instead of the evaluation of every rule.
"""

# Private counters are read directly, because a ratio is compared with the limit itself.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import ast
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..budget.limits import ResolvedLimits
from ..budget.run_budget import TurnBudget
from ..progress import Progress
from .rule import Rule
from .vocabulary import BUDGETS

_TOLERANCE_SECONDS = 1e-6
"""Seconds before and after a moment in which the rules are evaluated anyway."""
_SIGNS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)
_MIRRORED = {ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}
"""Sign of a comparison whose sides are swapped."""
_CHANGES_AT_NUMBER, _CHANGES_ABOVE_NUMBER = (ast.GtE, ast.Lt), (ast.Gt, ast.LtE)
"""Signs whose result changes when a growing field reaches the number, or when it passes the number."""
_COUNTS = {
    "context.turn.iteration_count": ("turns", "used"),
    "context.turn.tokens": ("tokens", "used"),
    "context.turn.token_usage": ("tokens", "ratio"),
}
"""Budgets and readings of fields with a shorter name."""
_READINGS, _TIME_READINGS = frozenset({"used", "ratio", "remaining"}), frozenset({"ratio", "remaining"})


class Comparison(NamedTuple):
    """A field that a rule compares with a number.

    The field is given by its budget and reading, or by ("", "characters") for the size of a result.
    """

    budget: str
    reading: str
    number: float
    sign: type[ast.cmpop] = ast.Eq


def find_comparisons(rules: Iterable[Rule]) -> dict[str, Sequence[Comparison]] | None:
    """Return the comparisons of these rules by id.

    None if a rule does anything else.
    """
    comparisons: dict[str, Sequence[Comparison]] = {}
    for rule in rules:
        parts = None if rule.condition is None else _collect_comparisons(rule, rule.condition.source.parse())
        if parts is None:
            return None
        comparisons[rule.id] = parts
    return comparisons


def _collect_comparisons(rule: Rule, node: ast.expr) -> list[Comparison] | None:
    match node:
        case ast.BoolOp(values=values):
            parts = [_collect_comparisons(rule, value) for value in values]
            return None if None in parts else [comparison for part in parts for comparison in part or ()]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _collect_comparisons(rule, operand)
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if isinstance(sign, _SIGNS):
            kind = type(sign)
            comparison = _parse_comparison(rule, left, kind, right) or _parse_comparison(
                rule, right, _MIRRORED[kind], left
            )
            return None if comparison is None else [comparison]
        case _:
            return None


def _parse_comparison(rule: Rule, field: ast.expr, sign: type[ast.cmpop], number: ast.expr) -> Comparison | None:
    name, value = ast.unparse(field), _parse_number(rule, number)
    if value is None:
        return None
    if name == "context.result.characters":
        return Comparison("", "characters", value, sign)
    budget, reading = _COUNTS.get(name) or _parse_field(name)
    exact = reading == "ratio" or budget != "usd"  # dollars are floats, and counts are ints
    known = budget in BUDGETS and reading in (_TIME_READINGS if budget == "seconds" else _READINGS)
    return Comparison(budget, reading, value, sign) if known and exact else None


def _parse_field(name: str) -> tuple[str, str]:
    match name.split("."):
        case ["context", "budget", budget, reading]:
            return budget, reading
        case _:
            return "", ""


def _parse_number(rule: Rule, node: ast.expr) -> float | None:
    value: object = None
    match node:
        case ast.Constant(value=constant):
            value = constant
        case ast.Attribute(value=ast.Name(id="params"), attr=name):
            value = rule.params.get(name)
        case _:
            pass
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return value


Span = tuple[str, float, float, float]
"""`(budget, low, high, limit)`: no comparison changes while low <= used < high and the limit stays the same."""


class ThresholdTable:
    """Thresholds of some rules in a run with these ceilings.

    Runs with the same ceilings can share it.
    """

    __slots__ = ("_counts", "_moments", "_rules", "_spans", "comparisons", "moves", "rules")

    def __init__(
        self, rules: Sequence[Rule], comparisons: Mapping[str, Sequence[Comparison]], envelope: TurnBudget
    ) -> None:
        self.rules = rules
        self.comparisons = comparisons
        self.moves = envelope.moves
        self._rules: dict[tuple[str, ...], Sequence[Rule]] = {}
        moments: list[float] = []
        counts: dict[str, set[float]] = {}
        for comparison in {comparison for row in comparisons.values() for comparison in row}:
            if comparison.budget == "seconds":
                moments += _compute_moments(comparison, envelope)
            elif comparison.budget:
                counts.setdefault(comparison.budget, set()).update(_compute_counts(comparison, envelope))
        self._moments = sorted(moments)
        """Times of the run's clock at which a comparison changes, in order."""
        self._counts = {name: sorted(points) for name, points in counts.items()}
        """Counts at which a comparison changes, by budget and in order."""
        self._spans = {
            name: [(name, low, high, envelope.budgets[name]._limit) for low, high in _pair_points(points)]
            for name, points in self._counts.items()
        }
        """Spans between these counts."""

    def find_spans(self, progress: Progress) -> list[Span]:
        """Return the current span of each budget."""
        spans = [self.find_span(name, progress.envelope.budgets[name].used) for name in self._counts]
        return [span for span in spans if span[1] != -math.inf or span[2] != math.inf or span[3] != math.inf]

    def find_span(self, name: str, used: int) -> Span:
        """Return the span of a budget around a count."""
        return self._spans[name][bisect_right(self._counts[name], used)]

    def find_next_moment(self, now: float) -> float:
        """Return the next time at which a comparison changes."""
        place = bisect_right(self._moments, now)
        return self._moments[place] if place < len(self._moments) else math.inf

    def find_rules(self, names: Iterable[str]) -> Sequence[Rule]:
        """Return the rules that compare any of these budgets, in order."""
        budgets = tuple(names)
        rules = self._rules.get(budgets)
        if rules is None:
            ids = {
                id for id, row in self.comparisons.items() if any(comparison.budget in budgets for comparison in row)
            }
            rules = self._rules[budgets] = [rule for rule in self.rules if rule.id in ids]
        return rules


class ThresholdWatch:
    """Watch over the turn-start rules of one run: which of them need evaluation."""

    __slots__ = ("_points", "_spans", "until")

    def __init__(self, points: ThresholdTable, spans: Sequence[Span], until: float) -> None:
        self._points = points
        self._spans = spans
        self.until = until
        """Time of the run's clock at which a comparison changes."""

    @property
    def marks(self) -> dict[str, float]:
        """Counts at which a comparison changes, by budget."""
        return {name: high for name, _, high, _ in self._spans}

    def set_marks(self, envelope: TurnBudget) -> None:
        """Have the budgets report when a comparison changes. Until then nothing is to be evaluated."""
        for name, _, high, _ in self._spans:
            budget = envelope.budgets[name]
            budget.mark = min(budget.mark, high)
        envelope.look_at = min(envelope.look_at, self.until)
        if envelope.changes is not None:
            envelope.changes.is_due = False

    def advance(self, progress: Progress) -> tuple[Sequence[Rule], ThresholdWatch] | None:
        """Return the rules with a changed comparison, and the watch to use after they were evaluated.

        None if a limit changed, so that all need evaluation.
        """
        envelope, points, until, names = progress.envelope, self._points, self.until, list[str]()
        if envelope.moves != points.moves:
            return None
        budgets, spans, now = envelope.budgets, list(self._spans), envelope.clock.now()
        for place, (name, low, high, limit) in enumerate(spans):
            budget = budgets[name]
            if budget._limit != limit:
                return None
            if not low <= budget._used < high:
                names.append(name)
                spans[place] = points.find_span(name, budget._used)
        if now >= until:
            names.append("seconds")
            until = points.find_next_moment(now)
        return points.find_rules(names), ThresholdWatch(points, spans, until)


def create_watch(points: ThresholdTable, progress: Progress) -> ThresholdWatch:
    """Return a watch for rules that were all just evaluated."""
    return ThresholdWatch(points, points.find_spans(progress), points.find_next_moment(progress.envelope.clock.now()))


class StartCache:
    """Thresholds found by earlier runs of the agent with the same limits."""

    __slots__ = ("limits", "quiet_sizes", "watch")

    def __init__(self, limits: ResolvedLimits, watch: ThresholdWatch | None) -> None:
        self.limits = limits
        """Limits whose budgets report when the rules must be evaluated."""
        self.watch = watch
        """Watch at the start of a run. None if a rule fires there."""
        self.quiet_sizes: tuple[float, float] | None = None
        """Range of result sizes in characters that fires no rule. None if it is not known yet."""


def find_size_interval(comparisons: Mapping[str, Sequence[Comparison]], size: int) -> tuple[float, float] | None:
    """Return the range of result sizes around `size` in which no comparison changes.

    None if a rule compares anything else.
    """
    if any(comparison.budget for row in comparisons.values() for comparison in row):
        return None
    points = [point for row in comparisons.values() for comparison in row for point in _compute_bounds(comparison)]
    return _find_interval(size, points)


def _compute_counts(comparison: Comparison, envelope: TurnBudget) -> Sequence[float]:
    """Return the counts at which a comparison changes."""
    first, second = _compute_both_counts(comparison, envelope)
    shrinks = comparison.reading == "remaining"
    if comparison.sign in _CHANGES_AT_NUMBER:
        return (second,) if shrinks else (first,)
    if comparison.sign in _CHANGES_ABOVE_NUMBER:
        return (first,) if shrinks else (second,)
    return first, second


def _compute_both_counts(comparison: Comparison, envelope: TurnBudget) -> tuple[float, float]:
    """Return the counts at which the field reaches and passes the number."""
    budget, number = envelope.budgets[comparison.budget], comparison.number
    ceiling = None if budget.ceiling is None else budget.ceiling - envelope.reserved(comparison.budget)
    if comparison.reading == "used":
        return _compute_bounds(comparison)
    if ceiling is None:
        return math.inf, math.inf
    if comparison.reading == "remaining":
        return ceiling - math.floor(number), math.inf if number <= 0 else ceiling - math.ceil(number) + 1
    return _compute_ratio_counts(ceiling, number)


def _compute_ratio_counts(ceiling: int, number: float) -> tuple[float, float]:
    if ceiling <= 0:
        return math.inf, math.inf
    # The loops use the same float division as the rule, so rounding cannot make them disagree.
    reached = max(0, math.floor(number * ceiling) - 1)
    while reached / ceiling < number:
        reached += 1
    passed = reached
    while passed / ceiling <= number:
        passed += 1
    return reached, passed


def _compute_moments(comparison: Comparison, envelope: TurnBudget) -> list[float]:
    """Return the time at which a comparison changes, with a tolerance for rounding."""
    if envelope.work_at == math.inf:
        return []
    total = envelope.seconds + envelope.postponed_s - envelope.reserve_s
    moment = envelope.work_at - (
        comparison.number if comparison.reading == "remaining" else total * (1 - comparison.number)
    )
    return [moment - _TOLERANCE_SECONDS, moment, moment + _TOLERANCE_SECONDS]


def _find_interval(value: float, points: Iterable[float]) -> tuple[float, float]:
    """Return the nearest points at or below a value, and above it."""
    ordered = sorted(points)
    return _pair_points(ordered)[bisect_right(ordered, value)]


def _pair_points(points: Sequence[float]) -> list[tuple[float, float]]:
    """Return the intervals between points in order, with those below the first and above the last."""
    return list(pairwise([-math.inf, *points, math.inf]))


def _compute_bounds(comparison: Comparison) -> tuple[float, float]:
    return math.ceil(comparison.number), math.floor(comparison.number) + 1
