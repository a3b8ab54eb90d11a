"""Forecast: the limit that a run will meet first at its present pace, and after about how many turns."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from .._internal.text import pluralize

if TYPE_CHECKING:
    from .run_budget import TurnBudget

MIN_TURNS = 3
"""Turns before a forecast. With fewer, one unusual turn would decide it."""
_KEPT_TURNS = 32
"""Newest turns that count. A run changes, and the slopes between all pairs are computed."""
_MIN_TURNS_FOR_MEDIAN = 5
"""Turns from which one unusual turn cannot move the median of the slopes."""
_FAR, _NEAR = 5, 0.5
"""A turn is unusual if it is further from the median than so many spreads, and than this share of the median."""
_CLEAR_RISE = 3
"""Spreads that a trend must rise in all."""
_MAX_TURNS_LEFT = 10**9
_ROUNDING = 1e-9
LIMITS = ("turns", "tool_calls", "tokens", "usd", "seconds")
"""Limits that end a run."""


class TurnSpend(NamedTuple):
    """Units that one turn used."""

    turns: int = 1
    """0 if the turn was refunded."""
    tool_calls: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """The limit that a run will meet first.

    >>> print(Forecast("tokens", 4))
    tokens will end after about 4 more turns
    """

    limit: str
    """Name of its budget, or `seconds`."""
    turns_left: int
    """Turns after the current one that fit into the limit."""

    def __str__(self) -> str:
        name = _NAMES.get(self.limit, self.limit)
        if self.turns_left == 0:
            return f"{name} will end with this turn"
        return f"{name} will end after about {pluralize(self.turns_left, 'more turn')}"


_NAMES = {"tool_calls": "tool calls", "usd": "money", "seconds": "time"}


def describe_forecast(forecast: Forecast | None) -> tuple[str | None, int | None]:
    """Return the fields of an event about a forecast."""
    return (None, None) if forecast is None else (forecast.limit, forecast.turns_left)


class Pace:
    """Spend of each of the last turns of a run, read from its events."""

    __slots__ = ("_current", "_ended_at", "_last_at", "has_ended", "is_in_turn", "turns")

    def __init__(self) -> None:
        self.turns: deque[TurnSpend] = deque(maxlen=_KEPT_TURNS)
        """The last turns that have ended, oldest first."""
        self.is_in_turn = False
        """True while a turn is in progress."""
        self.has_ended = False
        """True after the grace turn has begun, until another turn begins."""
        self._current = TurnSpend()
        self._ended_at = self._last_at = 0.0

    @property
    def current(self) -> TurnSpend:
        """Spend since the last turn ended."""
        return self._current._replace(seconds=self._last_at - self._ended_at)

    def note(self, kind: str, at: float, amount: int = 0) -> None:
        """Note an event: its kind, its seconds, and the tokens of a reply or the refunded turns."""
        self._last_at = at
        match kind:
            case "turn_started":
                self.is_in_turn, self.has_ended = True, False
            case "grace_started":
                self.has_ended = True
            case "model_replied":
                self._current = self._current._replace(tokens=self._current.tokens + amount)
            case "tool_started":
                self._current = self._current._replace(tool_calls=self._current.tool_calls + 1)
            case "refunded":
                self._current = self._current._replace(turns=max(0, self._current.turns - amount))
            case "turn_ended":
                self.add(self.current)
            case _:
                pass

    def add(self, spend: TurnSpend) -> None:
        """Add a turn that has ended."""
        self.turns.append(spend)
        self.is_in_turn, self._current, self._ended_at = False, TurnSpend(), self._last_at


class Room(NamedTuple):
    """Units of a limit that are left for work, and those that were used."""

    left: float
    used: float


def find_rooms(envelope: TurnBudget) -> dict[str, Room]:
    """Return the room of each limit that ends a run. The reserve for the report is not part of it."""
    rooms: dict[str, Room] = {}
    for name in LIMITS[:-1]:
        budget = envelope.budgets.get(name)
        if budget is not None and budget.ceiling is not None:
            rooms[name] = Room(max(0, budget.ceiling - envelope.reserved(name) - budget.used), budget.used)
    remaining_s = envelope.remaining_s()
    if remaining_s != math.inf:
        rooms["seconds"] = Room(remaining_s, max(0.0, envelope.work_seconds - remaining_s))
    return rooms


def find_forecast(rooms: Mapping[str, Room], pace: Pace, tokens_used: float = 0) -> Forecast | None:
    """Return the limit that is met first. None if it is not known yet, or if no limit will be met.

    `tokens_used` is the use of tokens, from which the price of a token follows.
    """
    if pace.has_ended or len(pace.turns) < MIN_TURNS:
        return None
    found: list[Forecast] = []
    for name, room in rooms.items():
        samples, current = _list_samples(name, room, pace, tokens_used)
        turns = count_turns(room.left + current, samples)
        if turns < _MAX_TURNS_LEFT:
            found.append(Forecast(name, max(0, turns - pace.is_in_turn)))
    return min(found, key=lambda forecast: forecast.turns_left, default=None)


def _list_samples(name: str, room: Room, pace: Pace, tokens_used: float) -> tuple[Sequence[float], float]:
    """Return the spend of the last turns and of the current one, in the unit of a limit."""
    if name == "turns":  # the current turn is claimed already
        mean = sum(spend.turns for spend in pace.turns) / len(pace.turns)
        return [mean] * len(pace.turns), mean if pace.is_in_turn else 0.0
    key, factor = name, 1.0
    if name == "usd":
        key, factor = "tokens", room.used / tokens_used if tokens_used else 0.0
    samples = [getattr(spend, key) * factor for spend in pace.turns]
    current = getattr(pace.current, key) * factor
    if room.used and not any(samples):  # turns that report nothing are charged an estimate
        return [room.used / len(pace.turns)] * len(pace.turns), 0.0
    return samples, current


def count_turns(room: float, samples: Sequence[float]) -> int:
    """Return how many turns like these fit into a room.

    One unusual turn does not count. Several do, because there will be more of them. A conversation that grows costs
    more with each turn, so the samples may have a trend.

    >>> count_turns(1_000, [100, 100, 5_000, 100, 100]), count_turns(1_000, [100, 200, 300, 400, 500])
    (10, 1)
    """
    slope = _find_slope(samples)
    levels = [sample - slope * n for n, sample in enumerate(samples)] if slope else samples
    usual = _drop_outlier(levels)
    next_one = sum(usual) / len(usual) + slope * len(samples)
    if next_one <= 0:
        return _MAX_TURNS_LEFT
    if not slope:
        return min(_MAX_TURNS_LEFT, int(room / next_one + _ROUNDING))
    # n turns cost n * next_one + slope * n * (n - 1) / 2
    half = next_one / slope - 0.5
    return min(_MAX_TURNS_LEFT, int(math.sqrt(half * half + 2 * room / slope) - half + _ROUNDING))


def _find_slope(samples: Sequence[float]) -> float:
    """Return the median slope of all pairs (Theil-Sen), or the lowest of a few samples; 0 if there is no clear rise."""
    if min(samples) == max(samples):
        return 0.0
    slopes = [(b - a) / (m - n) for (n, a), (m, b) in combinations(enumerate(samples), 2)]
    slope = _find_median(slopes) if len(samples) >= _MIN_TURNS_FOR_MEDIAN else min(slopes)
    spread = _find_spread([sample - slope * n for n, sample in enumerate(samples)])
    return slope if slope > 0 and slope * (len(samples) - 1) > _CLEAR_RISE * spread else 0.0


def _drop_outlier(samples: Sequence[float]) -> Sequence[float]:
    """Return the samples without the one that is far from all others, if there is exactly one."""
    middle, spread = _find_median(samples), _find_spread(samples)
    usual = [sample for sample in samples if abs(sample - middle) <= max(_FAR * spread, _NEAR * abs(middle))]
    return usual if len(usual) == len(samples) - 1 else samples


def _find_spread(samples: Sequence[float]) -> float:
    """Return the median distance from the median."""
    middle = _find_median(samples)
    return _find_median([abs(sample - middle) for sample in samples])


def _find_median(values: Sequence[float]) -> float:
    # The module statistics takes longer to import than the rest of a run.
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2
