"""Repetition: calls that come again, and calls that go round in a circle.

A duplicate is a call that an earlier one has answered: the same tool and arguments, a success, and since then neither a
word of the user's nor a call that has written. A loop is a call whose tool, arguments and result were the same several
times in a row, or which closes a circle of calls anew. Whatever changes is progress.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..outcome import Failure, Outcome, Success
from ..request import Call
from ..steadiness import WINDOW_SIZE, Thresholds

_COMPARED_CHARACTERS = 8_000
"""Characters of an excerpt that are compared; behind them it names its artifact, which is another for each call."""
_decode_json = json.JSONDecoder().raw_decode  # takes a third of the time of json.loads

_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})

Key = tuple[str, str]
"""A tool, and its arguments in one canonical form."""
_NONE: frozenset[Key] = frozenset()
RecordedCall = tuple[Key, Outcome | None]
"""A call, and what it came to; None of a poll, which is never the same."""


def build_call_key(call: Call, values: Mapping[str, object] | None = None) -> Key:
    """The same for calls that differ in the order of keys only; 1 and 1.0 are not the same.

    Where the arguments were read already, and are plain, those `values` are in one order, and nothing is read again.

    >>> build_call_key(Call("1", "add", '{"b": 1.0, "a": 1}'))
    ('add', "(('a', 1), ('b', 1.0))")
    """
    if values is not None and _PLAIN_TYPES.issuperset(map(type, values.values())):
        return call.name, repr(values)
    arguments = call.arguments
    try:
        if isinstance(arguments, str) and arguments.find("{", 1) < 0:  # nothing in it has keys to be sorted
            table = _parse_json(arguments)
            return call.name, repr(tuple(sorted(table.items())) if isinstance(table, dict) else table)
        return call.name, _canonical(_parse_json(arguments) if isinstance(arguments, str) else dict(arguments))
    except (TypeError, ValueError, RecursionError):  # what cannot be read is equal to itself only
        return call.name, repr(arguments)


def _parse_json(text: str) -> dict[str, Any] | list[Any] | str | float | bool | None:
    value, end = _decode_json(text.lstrip())
    return value if end == len(text) else json.loads(text)


def _canonical(value: object) -> str:
    return repr(_sort_keys(value))


def _sort_keys(value: object) -> object:
    """A table as its sorted rows, in a tuple, which no list is."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return tuple([(key, _sort_keys(table[key])) for key in sorted(table)])
    return list(map(_sort_keys, cast("list[object]", value))) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that was found: the tools in it, in order, and how often it was gone through."""

    tools: tuple[str, ...]
    times: int


class Repetition:
    """The calls of one run, as far as it matters that they come again."""

    __slots__ = (
        "_failure_counts",
        "_first_denied_turn",
        "_loop_keys",
        "_notice_turn",
        "_recent",
        "_seen_keys",
        "_successes",
        "_thresholds",
        "_write_keys",
        "stalled",
    )  # fmt: skip

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._successes: dict[Key, Success] = {}
        self._write_keys: tuple[Key, ...] = ()
        """Those of them that wrote."""
        self._failure_counts: dict[tuple[Key, str], int] = {}
        self._seen_keys: set[Key] = set()
        self._recent: list[RecordedCall] = []
        """The newest calls."""
        self._loop_keys = _NONE
        """The calls of the loop that the model was told of."""
        self._notice_turn = 0
        """The turn at whose end it was told."""
        self._first_denied_turn: int | None = None
        """The turn in which it was first denied."""
        self.stalled = False
        """Whether the model went on though it was told and denied."""

    def find_success(self, key: Key) -> Success | None:
        """The success that an equal call had, where nothing has changed since."""
        return self._successes.get(key)

    def forget_results(self) -> None:
        """Something is other than it was: no earlier result holds any more."""
        self._successes.clear()
        self._write_keys = ()

    def forget_reads(self) -> None:
        """Something may be other than it was: what was read must be read again, but nothing written twice for that."""
        self._successes = {key: self._successes[key] for key in self._write_keys}

    def reset(self) -> None:
        """The user has said something: what was done before may be wanted again."""
        self.forget_results()
        self._recent.clear()
        self._clear_loop()

    def is_looping(self, key: Key, turn: int) -> bool:
        """Whether a call goes on with the loop that the model was told of; it cannot know that in the same turn."""
        return key in self._loop_keys and turn > self._notice_turn

    def record_denial(self, turn: int) -> None:
        """Such a call is denied; one in a later turn, when the model has seen that, means that it is stuck."""
        self.stalled = self._first_denied_turn is not None and turn > self._first_denied_turn
        if self._first_denied_turn is None:
            self._first_denied_turn = turn

    def record(self, key: Key, outcome: Outcome, turn: int, writes: bool = False, polls: bool = False) -> Loop | None:
        """Learn what a call came to; the loop that it closes, if it does, for the model to be told of."""
        if type(outcome) is Success:
            if writes:
                self.forget_results()
                self._write_keys = (key,)
            self._successes[key] = outcome
        elif writes:
            self.forget_reads()
        if self._loop_keys and key not in self._loop_keys:
            self._clear_loop()
        ring = self._recent
        ring.append((key, None if polls else outcome))
        if len(ring) > 2 * WINDOW_SIZE:
            del ring[:-WINDOW_SIZE]
        if key in self._seen_keys:
            return None if self._loop_keys else self._find_loop(turn)
        self._seen_keys.add(key)
        return None

    def record_failure(self, key: Key, outcome: Failure) -> bool:
        """Whether a call has failed in the same way so often that a hint may help; told once."""
        times = self._failure_counts[key, outcome.kind] = self._failure_counts.get((key, outcome.kind), 0) + 1
        return times == self._thresholds.failures

    def _clear_loop(self) -> None:
        self._loop_keys, self._first_denied_turn, self.stalled = _NONE, None, False

    def _find_loop(self, turn: int) -> Loop | None:
        """The shortest loop that the newest call closes."""
        same, rounds, longest = self._thresholds.same, self._thresholds.rounds, self._thresholds.longest
        for period in range(1, longest + 1):
            times = same if period == 1 else rounds
            if times is None or not self._repeats(period, times):
                continue
            newest = self._recent[-period:]
            if period == 1 or not all(_is_same_call(one, newest[0]) for one in newest):
                self._loop_keys, self._notice_turn = frozenset(key for key, _ in newest), turn
                return Loop(tuple(tool for (tool, _), _ in newest), times)
        return None

    def _repeats(self, period: int, times: int) -> bool:
        """Whether each of the newest calls is what it was a period before."""
        ring, length = self._recent, period * times
        if len(ring) < length:
            return False
        return all(_is_same_call(ring[-place], ring[-place - period]) for place in range(1, length - period + 1))


def _is_same_call(left: RecordedCall, right: RecordedCall) -> bool:
    """Whether it is the same call with the same result; looked at only where a key comes again."""
    if left[0] != right[0] or left[1] is None or right[1] is None:
        return False
    return left[1] is right[1] or _get_comparable_result(left[1]) == _get_comparable_result(right[1])


def _get_comparable_result(outcome: Outcome) -> object:
    if outcome.artifact is None:
        return outcome.status, outcome.text_without_note
    return outcome.status, outcome.text_without_note[:_COMPARED_CHARACTERS], outcome.artifact.size
