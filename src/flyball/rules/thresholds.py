"""Skipping rules whose compared values have not crossed a threshold.

Most rules compare a growing number with a constant, as in `context.budget.turns.ratio > 0.7`. Until the number crosses
the constant, evaluating the rule again gives the same result. The count or the time at which that happens can be
computed in advance. So most turns cost a few comparisons of ints instead of the evaluation of every rule.
"""

# Private counters are read directly, because they are needed in every turn.
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
"""Seconds before and after a moment in which the rules are evaluated anyway."""
_SIGNS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)
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
            comparison = _parse_comparison(rule, left, right) or _parse_comparison(rule, right, left)
            return None if comparison is None else [comparison]
        case _:
            return None


def _parse_comparison(rule: Rule, field: ast.expr, number: ast.expr) -> Comparison | None:
    name, value = ast.unparse(field), _parse_number(rule, number)
    if value is None:
        return None
    if name == "context.result.characters":
        return Comparison("", "characters", value)
    budget, reading = _COUNTS.get(name) or _parse_field(name)
    exact = reading == "ratio" or budget != "usd"  # dollars are floats, and counts are ints
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
        case ast.Constant(value=constant):
            value = constant
        case ast.Attribute(value=ast.Name(id="params"), attr=name):
            value = rule.params.get(name)
        case _:
            pass
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return value


Span = tuple[str, float, float, int | None]
"""`(budget, low, high, ceiling)`: no comparison changes while low <= used < high and the ceiling stays the same."""


class ThresholdTable:
    """Thresholds of some rules in a run with these ceilings.

    Runs with the same ceilings can share it.
    """

    __slots__ = ("_rules", "ceilings", "comparisons", "counts", "moments", "moves", "rules")

    def __init__(
        self, rules: Sequence[Rule], comparisons: Mapping[str, Sequence[Comparison]], envelope: TurnBudget
    ) -> None:
        self.rules = rules
        self.comparisons = comparisons
        self.moves = envelope.moves
        self.counts: dict[str, list[float]] = {}
        """Counts at which a comparison changes, by budget."""
        self.ceilings: dict[str, int | None] = {}
        self.moments: list[float] = []
        """Times of the run's clock at which a comparison changes, in order."""
        self._rules: dict[tuple[str, ...], list[Rule]] = {}
        for comparison in {comparison for row in comparisons.values() for comparison in row}:
            if comparison.budget == "seconds":
                self.moments += _compute_moments(comparison, envelope)
            elif comparison.budget:
                self.counts.setdefault(comparison.budget, []).extend(_compute_counts(comparison, envelope))
                self.ceilings[comparison.budget] = envelope.budgets[comparison.budget].ceiling
        self.moments.sort()

    def find_spans(self, progress: Progress) -> list[Span]:
        """Return the current span of each budget."""
        spans = [self.find_span(name, progress.envelope.budgets[name].used) for name in self.counts]
        return [span for span in spans if span[1] != -math.inf or span[2] != math.inf or span[3] is not None]

    def find_span(self, name: str, used: int) -> Span:
        """Return the span of a budget around a count."""
        return name, *_find_interval(used, self.counts[name]), self.ceilings[name]

    def find_next_moment(self, now: float) -> float:
        """Return the next time at which a comparison changes."""
        return next((moment for moment in self.moments if moment > now), math.inf)

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

    __slots__ = ("_moves", "_points", "_spans", "_until")

    def __init__(self, points: ThresholdTable, spans: Sequence[Span], until: float) -> None:
        self._points = points
        self._spans = spans
        self._until = until
        self._moves = points.moves

    def is_unchanged(self, progress: Progress) -> bool:
        """Check whether no comparison has changed since the last evaluation."""
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
        """Return the rules with a changed comparison.

        None if a limit changed, so that all need evaluation.
        """
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
        """Return the watch after the changed rules were evaluated."""
        points, budgets, now = self._points, progress.envelope.budgets, progress.envelope.clock.now()
        spans: list[Span] = []
        for span in self._spans:
            used = budgets[span[0]]._used
            spans.append(span if span[1] <= used < span[2] else points.find_span(span[0], used))
        return ThresholdWatch(points, spans, self._until if now < self._until else points.find_next_moment(now))


def create_watch(points: ThresholdTable, progress: Progress) -> ThresholdWatch:
    """Return a watch for rules that were all just evaluated."""
    return ThresholdWatch(points, points.find_spans(progress), points.find_next_moment(progress.envelope.clock.now()))


class StartCache:
    """Thresholds found by earlier runs of the agent with the same limits."""

    __slots__ = ("quiet_sizes", "watch")

    def __init__(self) -> None:
        self.watch: ThresholdWatch | None = None
        """Watch at the start of a run. None if it is not known yet."""
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


def _compute_counts(comparison: Comparison, envelope: TurnBudget) -> tuple[float, float]:
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
    low, high = -math.inf, math.inf
    for point in points:
        if low < point <= value:
            low = point
        elif value < point < high:
            high = point
    return low, high


def _compute_bounds(comparison: Comparison) -> tuple[float, float]:
    return math.ceil(comparison.number), math.floor(comparison.number) + 1
