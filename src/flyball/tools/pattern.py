"""Regular expressions of foreign schemas, matched in time that grows with the text and never with its square.

Python's `re` backtracks. For some expressions that takes longer than any deadline, and no other thread runs meanwhile.
Here an expression becomes a list of states, and all states that a text can reach are followed at once. The steps are
counted, so that a match which would take too long is refused. The result is that of `re.search`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

_MOST_CHARACTERS = 10_000
"""Of an expression."""
_MOST_STATES = 20_000
_PLAIN_FLAGS = 32
"""`re.UNICODE`, which every expression for texts has."""

Test = Callable[[str], bool]
Spend = Callable[[int], None]
"""Takes the number of states that were visited. It may raise, which ends the match."""


class PatternError(ValueError):
    """An expression cannot be used; the message says why."""


class _Look(NamedTuple):
    """A look ahead, or a look behind by a fixed width."""

    start: int
    behind: int | None
    wanted: bool


class _State(NamedTuple):
    """One state: it reads a character, or holds at a place, or only leads on."""

    test: Test | None = None
    holds: str | _Look | None = None
    to: tuple[int, ...] = ()


_MATCH: Final = 0


class Pattern:
    """A compiled expression.

    >>> Pattern(r"^(a+)+$").found_in("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", lambda states: None)
    False
    """

    def __init__(self, expression: str) -> None:
        if len(expression) > _MOST_CHARACTERS:
            raise PatternError(f"it has {len(expression):,} characters; at most {_MOST_CHARACTERS:,} can be used")
        parser: Any = importlib.import_module("re._parser")
        try:
            parsed = parser.parse(expression)
            if parsed.state.flags != _PLAIN_FLAGS:
                raise PatternError("it has flags, which cannot be used")
            self._states = [_State()]
            self._start = self._sequence(parsed, _MATCH)
        except PatternError:
            raise
        except (re.error, OverflowError, RecursionError, Warning) as error:
            raise PatternError(f"it cannot be read: {error}") from None

    def found_in(self, text: str, spend: Spend) -> bool:
        """Whether the expression matches anywhere in a text."""
        return self._run(self._start, text, 0, len(text), spend, anywhere=True, whole=False)

    def _run(self, start: int, text: str, at: int, end: int, spend: Spend, *, anywhere: bool, whole: bool) -> bool:
        """Follow all states from one place. `whole`: a match must end at `end`."""
        current: set[int] = set()
        while True:
            if anywhere or not current:
                current.add(start)
            reached = self._closure(current, text, at, spend)
            if _MATCH in reached and (not whole or at == end):
                return True
            if at >= end:
                return False
            character = text[at]
            current = {
                state.to[0] for number in reached if (state := self._states[number]).test and state.test(character)
            }
            at += 1
            if not current and not anywhere:
                return False

    def _closure(self, states: Iterable[int], text: str, at: int, spend: Spend) -> set[int]:
        """All states that are reached without reading a character."""
        waiting, reached = list(states), set[int]()
        while waiting:
            number = waiting.pop()
            if number in reached:
                continue
            reached.add(number)
            state = self._states[number]
            if state.test is None and (state.holds is None or self._holds(state.holds, text, at, spend)):
                waiting += state.to
        spend(len(reached))
        return reached

    def _holds(self, what: str | _Look, text: str, at: int, spend: Spend) -> bool:
        if isinstance(what, str):
            return _PLACES[what](text, at)
        if what.behind is None:
            found = self._run(what.start, text, at, len(text), spend, anywhere=False, whole=False)
        else:
            begin = at - what.behind
            found = begin >= 0 and self._run(what.start, text, begin, at, spend, anywhere=False, whole=True)
        return found is what.wanted

    def _add(self, state: _State) -> int:
        if len(self._states) >= _MOST_STATES:
            raise PatternError("it repeats too much")
        self._states.append(state)
        return len(self._states) - 1

    def _sequence(self, nodes: Any, to: int) -> int:
        """Build from the end; the number of the first state."""
        for operation, argument in reversed(list(nodes)):
            to = self._node(str(operation), argument, to)
        return to

    def _node(self, operation: str, argument: Any, to: int) -> int:
        match operation:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._add(_State(test=_test(operation, argument), to=(to,)))
            case "AT" if str(argument) in _PLACES:
                return self._add(_State(holds=str(argument), to=(to,)))
            case "BRANCH":
                return self._add(_State(to=tuple(self._sequence(one, to) for one in argument[1])))
            case "SUBPATTERN" if not argument[1] and not argument[2]:
                return self._sequence(argument[3], to)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, body = argument
                return self._repeat(least, most, body, to)
            case "ASSERT" | "ASSERT_NOT":
                direction, body = argument
                return self._look(direction, body, operation == "ASSERT", to)
            case _:
                raise PatternError(f"it has {operation.lower().replace('_', ' ')}, which cannot be used")

    def _repeat(self, least: int, most: Any, body: Any, to: int) -> int:
        if str(most) == "MAXREPEAT":
            again = self._add(_State())
            self._states[again] = _State(to=(self._sequence(body, again), to))
            to = again
        else:
            for _ in range(int(most) - least):
                to = self._add(_State(to=(self._sequence(body, to), to)))
        for _ in range(least):
            before, to = to, self._sequence(body, to)
            if to == before:  # an empty body
                break
        return to

    def _look(self, direction: int, body: Any, wanted: bool, to: int) -> int:
        """A match of the body ends in the one state that means a match."""
        behind = None if direction > 0 else int(body.getwidth()[0])
        if behind is not None and int(body.getwidth()[1]) != behind:
            raise PatternError("it looks behind by more than one width")
        return self._add(_State(holds=_Look(self._sequence(body, _MATCH), behind, wanted), to=(to,)))


@lru_cache(maxsize=256)
def compiled(expression: str) -> Pattern:
    """Return the pattern of an expression; PatternError says why it cannot be used."""
    return Pattern(expression)


def _test(operation: str, argument: Any) -> Test:
    """Return the test for one character."""
    match operation:
        case "ANY":
            return lambda character: character != "\n"
        case "LITERAL":
            return chr(argument).__eq__
        case "NOT_LITERAL":
            return chr(argument).__ne__
        case "RANGE":
            first, last = map(chr, argument)
            return lambda character: first <= character <= last
        case "CATEGORY" if str(argument) in _CATEGORIES:
            return _CATEGORIES[str(argument)]
        case "IN":
            negated = str(argument[0][0]) == "NEGATE"
            tests = [_test(str(kind), value) for kind, value in argument[negated:]]
            return lambda character: any(test(character) for test in tests) is not negated
        case _:
            raise PatternError(f"it has {operation.lower()} {argument}, which cannot be used")


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_boundary(text: str, at: int) -> bool:
    before = at > 0 and _is_word(text[at - 1])
    return before is not (at < len(text) and _is_word(text[at]))


_CATEGORIES: dict[str, Test] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_NOT_DIGIT": lambda character: not character.isdecimal(),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda character: not character.isspace(),
    "CATEGORY_WORD": _is_word,
    "CATEGORY_NOT_WORD": lambda character: not _is_word(character),
}
_PLACES: dict[str, Callable[[str, int], bool]] = {
    "AT_BEGINNING": lambda text, at: at == 0,
    "AT_BEGINNING_STRING": lambda text, at: at == 0,
    "AT_END": lambda text, at: at == len(text) or (at == len(text) - 1 and text[at] == "\n"),
    "AT_END_STRING": lambda text, at: at == len(text),
    "AT_BOUNDARY": _is_boundary,
    "AT_NON_BOUNDARY": lambda text, at: not _is_boundary(text, at),
}
