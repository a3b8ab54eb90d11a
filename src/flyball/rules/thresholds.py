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

_NEAR = 1e-6
"""Seconds around a moment in which it is better to look."""
_SIGNS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)
_COUNTS = {"context.turn.iteration_count": ("turns", "used"), "context.turn.token_usage": ("tokens", "used")}
_READINGS, _OF_TIME = frozenset({"used", "ratio", "remaining"}), frozenset({"ratio", "remaining"})


class Compared(NamedTuple):
    """A field that a rule compares with a number; the field by its budget and reading, or ("", "characters")."""

    budget: str
    reading: str
    number: float


def compared(rules: Iterable[Rule]) -> dict[str, Sequence[Compared]] | None:
    """All that these rules compare, by their ids; None where one of them does anything else."""
    found: dict[str, Sequence[Compared]] = {}
    for rule in rules:
        parts = None if rule.condition is None else _parts(rule, rule.condition.source.tree())
        if parts is None:
            return None
        found[rule.id] = parts
    return found


def _parts(rule: Rule, node: ast.expr) -> list[Compared] | None:
    match node:
        case ast.BoolOp(values=values):
            parts = [_parts(rule, value) for value in values]
            return None if None in parts else [one for part in parts for one in part or ()]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _parts(rule, operand)
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if isinstance(sign, _SIGNS):
            one = _one(rule, left, right) or _one(rule, right, left)
            return None if one is None else [one]
        case _:
            return None


def _one(rule: Rule, field: ast.expr, number: ast.expr) -> Compared | None:
    name, value = ast.unparse(field), _number(rule, number)
    if value is None:
        return None
    if name == "context.result.characters":
        return Compared("", "characters", value)
    budget, reading = _COUNTS.get(name) or _reading(name)
    exact = reading == "ratio" or budget != "usd"  # dollars are fractions
    known = budget in BUDGETS and reading in (_OF_TIME if budget == "seconds" else _READINGS)
    return Compared(budget, reading, value) if known and exact else None


def _reading(name: str) -> tuple[str, str]:
    match name.split("."):
        case ["context", "budget", budget, reading]:
            return budget, reading
        case _:
            return "", ""


def _number(rule: Rule, node: ast.expr) -> float | None:
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


class Points:
    """Where what some rules compare turns over, in a run with these ceilings. Any number of runs may share it."""

    __slots__ = ("_rules", "ceilings", "compared", "counts", "moments", "moves", "rules")

    def __init__(self, rules: Sequence[Rule], compared: Mapping[str, Sequence[Compared]], envelope: TurnBudget) -> None:
        self.rules = rules
        self.compared = compared
        self.moves = envelope.moves
        self.counts: dict[str, list[float]] = {}
        self.ceilings: dict[str, int | None] = {}
        self.moments: list[float] = []
        self._rules: dict[tuple[str, ...], list[Rule]] = {}
        for one in {one for row in compared.values() for one in row}:
            if one.budget == "seconds":
                self.moments += _moments(one, envelope)
            elif one.budget:
                self.counts.setdefault(one.budget, []).extend(_counts(one, envelope))
                self.ceilings[one.budget] = envelope.budgets[one.budget].ceiling
        self.moments.sort()

    def around(self, progress: Progress) -> list[Span]:
        """Between which counts the run is now."""
        spans = [self.span(name, progress.envelope.budgets[name].used) for name in self.counts]
        return [span for span in spans if span[1] != -math.inf or span[2] != math.inf or span[3] is not None]

    def span(self, name: str, used: int) -> Span:
        """Between which counts a budget is."""
        return name, *_around(used, self.counts[name]), self.ceilings[name]

    def next_moment(self, now: float) -> float:
        """When the time turns something over."""
        return next((moment for moment in self.moments if moment > now), math.inf)

    def about(self, names: Iterable[str]) -> Sequence[Rule]:
        """The rules that compare any of these, in their order."""
        wanted = tuple(names)
        found = self._rules.get(wanted)
        if found is None:
            ids = {id for id, row in self.compared.items() if any(one.budget in wanted for one in row)}
            found = self._rules[wanted] = [rule for rule in self.rules if rule.id in ids]
        return found


class Watch:
    """The rules of one moment, in one run: which of them have to look."""

    __slots__ = ("_moves", "_points", "_spans", "_until")

    def __init__(self, points: Points, spans: Sequence[Span], until: float) -> None:
        self._points = points
        self._spans = spans
        self._until = until
        self._moves = points.moves

    def lasts(self, progress: Progress) -> bool:
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

    def turned(self, progress: Progress) -> Sequence[Rule] | None:
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
        return self._points.about(names)

    def looked(self, progress: Progress) -> Watch:
        """How it goes on when those have looked."""
        points, budgets, now = self._points, progress.envelope.budgets, progress.envelope.clock.now()
        spans: list[Span] = []
        for span in self._spans:
            used = budgets[span[0]]._used
            spans.append(span if span[1] <= used < span[2] else points.span(span[0], used))
        return Watch(points, spans, self._until if now < self._until else points.next_moment(now))


def watch_of(points: Points, progress: Progress) -> Watch:
    """A watch for rules all of which have just looked."""
    return Watch(points, points.around(progress), points.next_moment(progress.envelope.clock.now()))


class Beginning:
    """What is known of runs that begin alike, from those that did before."""

    __slots__ = ("small", "watch")

    def __init__(self) -> None:
        self.watch: Watch | None = None
        """How long rules that look at the start of a turn find nothing."""
        self.small: tuple[float, float] | None = None
        """The sizes of results in which rules find nothing."""


def _counts(one: Compared, envelope: TurnBudget) -> tuple[float, float]:
    """From what count on a field is the number or beyond it, and from which it is beyond."""
    budget, number = envelope.budgets[one.budget], one.number
    room = None if budget.ceiling is None else budget.ceiling - envelope.reserved(one.budget)
    if one.reading == "used":
        return _beyond(one)
    if room is None:
        return math.inf, math.inf
    if one.reading == "remaining":
        return room - math.floor(number), math.inf if number <= 0 else room - math.ceil(number) + 1
    return _share(room, number)


def _share(room: int, number: float) -> tuple[float, float]:
    if room <= 0:
        return math.inf, math.inf
    least = max(0, math.floor(number * room) - 1)
    while least / room < number:
        least += 1
    more = least
    while more / room <= number:
        more += 1
    return least, more


def _moments(one: Compared, envelope: TurnBudget) -> list[float]:
    """When the time turns a field over, and a little sooner and later, as these are not exact."""
    if envelope.work_at == math.inf:
        return []
    whole = envelope.seconds + envelope.postponed_s - envelope.reserve_s
    at = envelope.work_at - (one.number if one.reading == "remaining" else whole * (1 - one.number))
    return [at - _NEAR, at, at + _NEAR]


def _around(value: float, points: Iterable[float]) -> tuple[float, float]:
    """The points before and behind a value."""
    low, high = -math.inf, math.inf
    for point in points:
        if low < point <= value:
            low = point
        elif value < point < high:
            high = point
    return low, high


def sizes(compared: Mapping[str, Sequence[Compared]], size: int) -> tuple[float, float] | None:
    """From and to which size of a result these rules find the same; None where they look at anything else."""
    if any(one.budget for row in compared.values() for one in row):
        return None
    points = [point for row in compared.values() for one in row for point in _beyond(one)]
    return _around(size, points)


def _beyond(one: Compared) -> tuple[float, float]:
    return math.ceil(one.number), math.floor(one.number) + 1
