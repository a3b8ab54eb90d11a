"""Detection of repeated calls and of loops.

A call is a duplicate if an equal call (same tool and arguments) succeeded, and since then neither the user spoke nor a
call wrote anything. A loop is a call, or a cycle of calls, that was repeated several times with equal results. Any
change counts as progress.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from ..outcome import Failure, Outcome, Success
from ..request import Call
from ..steadiness import WINDOW_SIZE, Thresholds

_COMPARED_CHARACTERS = 8_000
"""Characters of an excerpt that are compared; the rest names its artifact, which differs in each call."""
_decode_json = json.JSONDecoder().raw_decode  # takes a third of the time of json.loads

_MAX_RECENT = 2 * WINDOW_SIZE

Key = tuple[str, str | bytes]
"""Name of a tool, and its arguments in canonical form."""
_NONE: frozenset[Key] = frozenset()
RecordedCall = tuple[Key, Outcome | None]
"""Key of a call, and its outcome. None for a poll, which is never the same."""


def build_call_key(call: Call) -> Key:
    """Return a key that is equal for calls that differ only in the order of keys; 1 and 1.0 differ.

    >>> build_call_key(Call("1", "add", '{"b": 1.0, "a": 1}'))
    ('add', "(('a', 1), ('b', 1.0))")
    """
    arguments = call.arguments
    try:
        if isinstance(arguments, str) and arguments.find("{", 1) < 0:  # it contains no nested table to sort
            table = _parse_json(arguments)
            return call.name, repr(tuple(sorted(table.items())) if isinstance(table, dict) else table)
        return call.name, _canonical(_parse_json(arguments) if isinstance(arguments, str) else dict(arguments))
    except (TypeError, ValueError, RecursionError):  # what cannot be parsed equals only itself
        return call.name, repr(arguments)


def _parse_json(text: str) -> dict[str, Any] | list[Any] | str | float | bool | None:
    value, end = _decode_json(text.lstrip())
    return value if end == len(text) else json.loads(text)


def _canonical(value: object) -> str:
    return repr(_sort_keys(value))


def _sort_keys(value: object) -> object:
    """Return a table as a tuple of sorted rows; JSON lists stay lists."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return tuple([(key, _sort_keys(table[key])) for key in sorted(table)])
    return list(map(_sort_keys, cast("list[object]", value))) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Loop:
    """A detected loop: its tools in order, and how often it was repeated."""

    tools: tuple[str, ...]
    times: int


class Repetition:
    """Calls of one run, compared with each other."""

    __slots__ = (
        "_failure_counts",
        "_first_denied_turn",
        "_notice_turn",
        "_recent",
        "_seen_keys",
        "_successes",
        "_thresholds",
        "_write_keys",
        "call_keys",
        "keeps_results",
        "loop_keys",
        "stalled",
    )  # fmt: skip

    def __init__(self, thresholds: Thresholds, keeps_results: bool = True) -> None:
        self._thresholds = thresholds
        self.keeps_results = keeps_results
        """True if equal calls may be skipped, so that results are kept."""
        self._successes: dict[Key, Success] = {}
        self._write_keys: tuple[Key, ...] = ()
        """Keys of successful calls that wrote."""
        self._failure_counts: dict[tuple[Key, str], int] = {}
        self._seen_keys: set[Key] = set()
        self._recent: list[RecordedCall] = []
        """The newest calls, oldest first."""
        self.loop_keys = _NONE
        """Calls of the loop that the model has a notice of."""
        self._notice_turn = 0
        """Turn in which that notice was added."""
        self._first_denied_turn: int | None = None
        """Turn in which a call of it was first denied."""
        self.stalled = False
        """True if the model repeats itself after a notice and a denial."""
        self.call_keys: dict[str, Key] = {}
        """Keys of the calls in progress, by call id."""

    def find_success(self, key: Key) -> Success | None:
        """Return the success of an equal call, if nothing has changed since."""
        return self._successes.get(key)

    def forget_results(self) -> None:
        """Forget all results: something has changed."""
        self._successes.clear()
        self._write_keys = ()

    def forget_reads(self) -> None:
        """Forget the results of reads: something may have changed. Writes are not repeated for that."""
        self._successes = {key: self._successes[key] for key in self._write_keys}

    def reset(self) -> None:
        """Forget everything: the user has spoken and may want calls repeated."""
        self.forget_results()
        self._recent.clear()
        self._clear_loop()

    def is_looping(self, key: Key, turn: int) -> bool:
        """Return True if a call continues a loop in a turn after the model's notice of it."""
        return key in self.loop_keys and turn > self._notice_turn

    def record_denial(self, turn: int) -> None:
        """Record that a call of the loop is denied. A second denial in a later turn means that the model is stalled."""
        self.stalled = self._first_denied_turn is not None and turn > self._first_denied_turn
        if self._first_denied_turn is None:
            self._first_denied_turn = turn

    def record(self, key: Key, outcome: Outcome | None, turn: int) -> Loop | None:
        """Record a call and its outcome, None for a poll, which is never the same.

        Return the loop that it completes, if the model has no notice of it yet.
        """
        if self.loop_keys and key not in self.loop_keys:
            self._clear_loop()
        ring = self._recent
        ring.append((key, outcome))
        if len(ring) > _MAX_RECENT:
            del ring[:-WINDOW_SIZE]
        if key in self._seen_keys:
            return None if self.loop_keys else self._find_loop(turn)
        self._seen_keys.add(key)
        return None

    def keep_result(self, key: Key, outcome: Outcome, writes: bool) -> None:
        """Keep a result for equal calls. A call that writes outdates earlier results."""
        if type(outcome) is Success:
            if writes:
                self.forget_results()
                self._write_keys = (key,)
            self._successes[key] = outcome
        elif writes:
            self.forget_reads()

    def record_failure(self, key: Key, outcome: Failure) -> bool:
        """Record a failure. Return True once, when it has happened so often that a hint may help."""
        times = self._failure_counts[key, outcome.kind] = self._failure_counts.get((key, outcome.kind), 0) + 1
        return times == self._thresholds.failures

    def _clear_loop(self) -> None:
        self.loop_keys, self._first_denied_turn, self.stalled = _NONE, None, False

    def _find_loop(self, turn: int) -> Loop | None:
        """Return the shortest loop that the newest call completes."""
        same, rounds, longest = self._thresholds.same, self._thresholds.rounds, self._thresholds.longest
        for period in range(1, longest + 1):
            times = same if period == 1 else rounds
            if times is None or not self._repeats(period, times):
                continue
            newest = self._recent[-period:]
            if period == 1 or not all(_is_same_call(one, newest[0]) for one in newest):
                self.loop_keys, self._notice_turn = frozenset(key for key, _ in newest), turn
                return Loop(tuple(tool for (tool, _), _ in newest), times)
        return None

    def _repeats(self, period: int, times: int) -> bool:
        """Return True if the newest calls repeat with this period."""
        ring, length = self._recent, period * times
        if len(ring) < length:
            return False
        return all(_is_same_call(ring[-place], ring[-place - period]) for place in range(1, length - period + 1))


def _is_same_call(left: RecordedCall, right: RecordedCall) -> bool:
    """Return True for equal calls with equal results."""
    if left[0] != right[0] or left[1] is None or right[1] is None:
        return False
    return left[1] is right[1] or _get_comparable_result(left[1]) == _get_comparable_result(right[1])


def _get_comparable_result(outcome: Outcome) -> object:
    if outcome.artifact is None:
        return outcome.status, outcome.text_without_note
    return outcome.status, outcome.text_without_note[:_COMPARED_CHARACTERS], outcome.artifact.size
