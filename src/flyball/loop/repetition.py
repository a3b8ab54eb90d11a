"""Repetition: calls that come again, and calls that go round in a circle.

A duplicate is a call that an earlier one has answered: the same tool and arguments, a success, and since then neither a
word of the user's nor a call that has written. A loop is a call whose tool, arguments and result were the same several
times in a row, or which closes a circle of calls anew. Whatever changes is progress.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain, repeat
from typing import cast

from ..outcome import Failure, Outcome, Success
from ..request import Call
from ..steadiness import RING, Thresholds

_ALIKE = 8_000
"""Characters of an excerpt that are compared; behind them it names its artifact, which is another for each call."""
_decoded = json.JSONDecoder().raw_decode  # takes a third of the time of json.loads

Key = tuple[str, str]
"""A tool, and its arguments in one canonical form."""
Made = tuple[Key, Outcome | None]
"""A call, and what it came to; None of a poll, which is never the same."""


def key_of(call: Call) -> Key:
    """The same for calls that differ in the order of keys only; 1 and 1.0 are not the same.

    >>> key_of(Call("1", "add", '{"b": 1.0, "a": 1}'))
    ('add', "{'a':1,'b':1.0}")
    """
    arguments = call.arguments
    try:
        return call.name, _canonical(_read(arguments) if isinstance(arguments, str) else dict(arguments))
    except (TypeError, ValueError, RecursionError):  # what cannot be read is equal to itself only
        return call.name, repr(arguments)


def _read(text: str) -> object:
    value, end = _decoded(text.lstrip())
    return value if end == len(text) else json.loads(text)


def _canonical(value: object) -> str:
    pieces: list[str] = []
    _write(value, pieces)
    return "".join(pieces)


def _write(value: object, pieces: list[str]) -> None:
    """Write into one list of pieces: joining on each level would copy a long text once per level."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        for sign, key in zip(chain("{", repeat(",")), sorted(table), strict=False):
            pieces.append(f"{sign}{key!r}:")
            _write(table[key], pieces)
        pieces.append("}" if table else "{}")
    elif isinstance(value, list):
        items = cast("list[object]", value)
        for sign, item in zip(chain("[", repeat(",")), items, strict=False):
            pieces.append(sign)
            _write(item, pieces)
        pieces.append("]" if items else "[]")
    else:
        pieces.append(repr(value))


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that was found: the tools in it, in order, and how often it was gone through."""

    tools: tuple[str, ...]
    times: int


class Repetition:
    """The calls of one run, as far as it matters that they come again."""

    __slots__ = (
        "_answered", "_circle", "_denied_in", "_failed", "_ring", "_seen", "_thresholds", "_told_in", "_writing",
        "stalled",
    )  # fmt: skip

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._answered: dict[Key, Success] = {}
        self._writing: set[Key] = set()
        """Those of them that wrote."""
        self._failed: dict[tuple[Key, str], int] = {}
        self._seen: set[Key] = set()
        self._ring: list[Made] = []
        """The newest calls."""
        self._circle: frozenset[Key] = frozenset()
        """The calls of the loop that the model was told of."""
        self._told_in = 0
        """The turn at whose end it was told."""
        self._denied_in: int | None = None
        """The turn in which it was first denied."""
        self.stalled = False
        """Whether the model went on though it was told and denied."""

    def answered(self, key: Key) -> Success | None:
        """The success that an equal call had, where nothing has changed since."""
        return self._answered.get(key)

    def changed(self) -> None:
        """Something is other than it was: no earlier result holds any more."""
        self._answered.clear()
        self._writing.clear()

    def doubted(self) -> None:
        """Something may be other than it was: what was read must be read again, but nothing written twice for that."""
        self._answered = {key: self._answered[key] for key in self._writing}

    def told_anew(self) -> None:
        """The user has said something: what was done before may be wanted again."""
        self.changed()
        self._ring.clear()
        self._progressed()

    def goes_round(self, key: Key, turn: int) -> bool:
        """Whether a call goes on with the loop that the model was told of; it cannot know that in the same turn."""
        return key in self._circle and turn > self._told_in

    def deny(self, turn: int) -> None:
        """Such a call is denied; one in a later turn, when the model has seen that, means that it is stuck."""
        self.stalled = self._denied_in is not None and turn > self._denied_in
        if self._denied_in is None:
            self._denied_in = turn

    def learn(self, key: Key, outcome: Outcome, turn: int, writes: bool = False, polls: bool = False) -> Loop | None:
        """Learn what a call came to; the loop that it closes, if it does, for the model to be told of."""
        if type(outcome) is Success:
            if writes:
                self.changed()
                self._writing.add(key)
            self._answered[key] = outcome
        elif writes:
            self.doubted()
        if self._circle and key not in self._circle:
            self._progressed()
        ring = self._ring
        ring.append((key, None if polls else outcome))
        if len(ring) > 2 * RING:
            del ring[:-RING]
        if key in self._seen:
            return None if self._circle else self._closed(turn)
        self._seen.add(key)
        return None

    def failed_again(self, key: Key, outcome: Failure) -> bool:
        """Whether a call has failed in the same way so often that a hint may help; told once."""
        times = self._failed[key, outcome.kind] = self._failed.get((key, outcome.kind), 0) + 1
        return times == self._thresholds.failures

    def _progressed(self) -> None:
        self._circle, self._denied_in, self.stalled = frozenset(), None, False

    def _closed(self, turn: int) -> Loop | None:
        """The shortest loop that the newest call closes."""
        same, rounds, longest = self._thresholds.same, self._thresholds.rounds, self._thresholds.longest
        for period in range(1, longest + 1):
            times = same if period == 1 else rounds
            if times is None or not self._repeats(period, times):
                continue
            newest = self._ring[-period:]
            if period == 1 or not all(_alike(one, newest[0]) for one in newest):
                self._circle, self._told_in = frozenset(key for key, _ in newest), turn
                return Loop(tuple(tool for (tool, _), _ in newest), times)
        return None

    def _repeats(self, period: int, times: int) -> bool:
        """Whether each of the newest calls is what it was a period before."""
        ring, length = self._ring, period * times
        if len(ring) < length:
            return False
        return all(_alike(ring[-place], ring[-place - period]) for place in range(1, length - period + 1))


def _alike(one: Made, other: Made) -> bool:
    """Whether it is the same call with the same result; looked at only where a key comes again."""
    if one[0] != other[0] or one[1] is None or other[1] is None:
        return False
    return one[1] is other[1] or _result(one[1]) == _result(other[1])


def _result(outcome: Outcome) -> object:
    if outcome.artifact is None:
        return outcome.status, outcome.words
    return outcome.status, outcome.words[:_ALIKE], outcome.artifact.size
