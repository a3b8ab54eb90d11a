"""Linear-time matching of regular expressions from foreign schemas.

Python's `re` backtracks. For some expressions that takes longer than any deadline, and no other thread runs meanwhile.
Here an expression becomes a nondeterministic automaton, and all states that a text can reach are followed at once. The
steps are counted, so that a match that would take too long is refused. The result equals that of `re.search`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

_MAX_CHARACTERS = 10_000
"""Maximum length of an expression."""
_MAX_STATES = 20_000
_PLAIN_FLAGS = 32
"""`re.UNICODE`, which is set for every `str` pattern."""

_MATCH: Final = 0

Test = Callable[[str], bool]
Spend = Callable[[int], None]
"""Callback that gets the number of visited states. It may raise to end the match."""


class PatternError(ValueError):
    """Raised if an expression cannot be used; the message says why."""


@lru_cache(maxsize=256)
def compiled(expression: str) -> Pattern:
    """Return the cached pattern of an expression.

    Raises:
        PatternError: the expression cannot be used.
    """
    return Pattern(expression)


class _Look(NamedTuple):
    """Lookahead, or lookbehind of a fixed width."""

    start: int
    behind: int | None
    wanted: bool


class _State(NamedTuple):
    """State that reads a character, checks an assertion, or only branches."""

    test: Test | None = None
    assertion: str | _Look | None = None
    to: tuple[int, ...] = ()


class Pattern:
    """A compiled regular expression.

    >>> Pattern(r"^(a+)+$").found_in("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", lambda states: None)
    False
    """

    def __init__(self, expression: str) -> None:
        if len(expression) > _MAX_CHARACTERS:
            raise PatternError(f"it has {len(expression):,} characters; the maximum is {_MAX_CHARACTERS:,}")
        parser: Any = importlib.import_module("re._parser")
        try:
            parsed = parser.parse(expression)
            if parsed.state.flags != _PLAIN_FLAGS:
                raise PatternError("it has flags, which are not supported")
            self._states = [_State()]
            self._start = self._add_sequence(parsed, _MATCH)
        except PatternError:
            raise
        except (re.error, OverflowError, RecursionError, Warning) as error:
            raise PatternError(f"it is not valid: {error}") from None

    def found_in(self, text: str, spend: Spend) -> bool:
        """Check whether the expression matches anywhere in a text."""
        return self._run(self._start, text, 0, len(text), spend, anywhere=True, whole=False)

    def _run(self, start: int, text: str, at: int, end: int, spend: Spend, *, anywhere: bool, whole: bool) -> bool:
        """Follow all states from one position.

        With `whole` a match must end at `end`.
        """
        current: set[int] = set()
        while True:
            if anywhere or not current:
                current.add(start)
            reached = self._follow_empty_moves(current, text, at, spend)
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

    def _follow_empty_moves(self, states: Iterable[int], text: str, at: int, spend: Spend) -> set[int]:
        """Return all states that are reached without reading a character."""
        pending, reached = list(states), set[int]()
        while pending:
            number = pending.pop()
            if number in reached:
                continue
            reached.add(number)
            state = self._states[number]
            if state.test is None and (
                state.assertion is None or self._check_assertion(state.assertion, text, at, spend)
            ):
                pending += state.to
        spend(len(reached))
        return reached

    def _check_assertion(self, assertion: str | _Look, text: str, at: int, spend: Spend) -> bool:
        if isinstance(assertion, str):
            return _ASSERTIONS[assertion](text, at)
        if assertion.behind is None:
            matches = self._run(assertion.start, text, at, len(text), spend, anywhere=False, whole=False)
        else:
            start = at - assertion.behind
            matches = start >= 0 and self._run(assertion.start, text, start, at, spend, anywhere=False, whole=True)
        return matches is assertion.wanted

    def _add_state(self, state: _State) -> int:
        if len(self._states) >= _MAX_STATES:
            raise PatternError("its repetitions are too large")
        self._states.append(state)
        return len(self._states) - 1

    def _add_sequence(self, nodes: Any, to: int) -> int:
        """Add the states of a sequence, from its end; return the first."""
        for operation, argument in reversed(list(nodes)):
            to = self._add_node(str(operation), argument, to)
        return to

    def _add_node(self, operation: str, argument: Any, to: int) -> int:
        match operation:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._add_state(_State(test=_build_test(operation, argument), to=(to,)))
            case "AT" if str(argument) in _ASSERTIONS:
                return self._add_state(_State(assertion=str(argument), to=(to,)))
            case "BRANCH":
                return self._add_state(_State(to=tuple(self._add_sequence(branch, to) for branch in argument[1])))
            case "SUBPATTERN" if not argument[1] and not argument[2]:
                return self._add_sequence(argument[3], to)
            case "MAX_REPEAT" | "MIN_REPEAT":
                min_count, max_count, body = argument
                return self._add_repeat(min_count, max_count, body, to)
            case "ASSERT" | "ASSERT_NOT":
                direction, body = argument
                return self._add_look(direction, body, operation == "ASSERT", to)
            case _:
                raise PatternError(f"it has {operation.lower().replace('_', ' ')}, which is not supported")

    def _add_repeat(self, min_count: int, max_count: Any, body: Any, to: int) -> int:
        if str(max_count) == "MAXREPEAT":
            loop = self._add_state(_State())
            self._states[loop] = _State(to=(self._add_sequence(body, loop), to))
            to = loop
        else:
            for _ in range(int(max_count) - min_count):
                to = self._add_state(_State(to=(self._add_sequence(body, to), to)))
        for _ in range(min_count):
            before, to = to, self._add_sequence(body, to)
            if to == before:  # an empty body
                break
        return to

    def _add_look(self, direction: int, body: Any, wanted: bool, to: int) -> int:
        # The body leads to the shared match state: `_run` is called for it separately.
        behind = None if direction > 0 else int(body.getwidth()[0])
        if behind is not None and int(body.getwidth()[1]) != behind:
            raise PatternError("its lookbehind does not have a fixed width")
        return self._add_state(_State(assertion=_Look(self._add_sequence(body, _MATCH), behind, wanted), to=(to,)))


def _build_test(operation: str, argument: Any) -> Test:
    """Return the predicate for one character."""
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
            tests = [_build_test(str(kind), value) for kind, value in argument[negated:]]
            return lambda character: any(test(character) for test in tests) is not negated
        case _:
            raise PatternError(f"it has {operation.lower()} {argument}, which is not supported")


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
_ASSERTIONS: dict[str, Callable[[str, int], bool]] = {
    "AT_BEGINNING": lambda text, at: at == 0,
    "AT_BEGINNING_STRING": lambda text, at: at == 0,
    "AT_END": lambda text, at: at == len(text) or (at == len(text) - 1 and text[at] == "\n"),
    "AT_END_STRING": lambda text, at: at == len(text),
    "AT_BOUNDARY": _is_boundary,
    "AT_NON_BOUNDARY": lambda text, at: not _is_boundary(text, at),
}
