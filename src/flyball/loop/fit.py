"""Fitting a conversation into so many tokens: the task, a line for each call, and the newest messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..message import Message, MessageType, Role
from ..outcome import Outcome
from ..pair import together
from ..request import tokens_of, tokens_of_message

_LONGEST_LINE = 160


def fit(
    history: Sequence[Message],
    outcomes: Sequence[Outcome],
    room: int,
    said: Callable[[str], Message],
    given: int,
) -> list[Message] | None:
    """The most useful messages that fit, oldest first; None where not even the task does.

    The task is among the first `given` messages. What is left out is told in a message that `said` makes: one line for
    each call.
    """
    if sum(map(tokens_of_message, history)) <= room:
        return list(history)
    place = _place_of_task(history, given)
    task = history[place : place + 1]
    room -= sum(map(tokens_of_message, task))
    if room < 0:
        return None
    lines = _lines(outcomes, room // 2)
    middle = [said(lines)] if lines else []
    room -= sum(map(tokens_of_message, middle))
    first = _newest(history, room)
    newest = _whole(history[first:])
    return [*middle, *newest] if first <= place else [*task, *middle, *newest]


def _place_of_task(history: Sequence[Message], given: int) -> int:
    """Where the newest of the user's messages is that the run was given; behind the end where there is none."""
    for place in reversed(range(given)):
        if history[place].role is Role.USER:
            return place
    return len(history)


def _lines(outcomes: Sequence[Outcome], room: int) -> str:
    """One line for each call, the newest that fit; empty where none does."""
    lines: list[str] = []
    left = room - tokens_of(_HEAD.format(0)) - 8
    for outcome in reversed(outcomes):
        line = line_of(outcome)
        left -= tokens_of(line) + 1
        if left < 0:
            break
        lines.append(line)
    if not lines:
        return ""
    return "\n".join([_HEAD.format(len(outcomes)), *reversed(lines)])


_HEAD = "(Earlier messages are left out. {} calls were made:)"


def line_of(outcome: Outcome) -> str:
    """A call in one line: the tool, its end, and the beginning of what it gave."""
    text = " ".join(outcome.text[: _LONGEST_LINE * 2].split())
    shown = text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"
    return f"- {outcome.tool}: {outcome.status.value.replace('_', ' ')}: {shown}"


def _newest(history: Sequence[Message], room: int) -> int:
    """Where the newest messages begin that fit; never in the middle of what came together."""
    first = len(history)
    while first > 0:
        tokens = tokens_of_message(history[first - 1])
        if tokens > room:
            break
        room -= tokens
        first -= 1
    while 0 < first < len(history) and together(history[first - 1], history[first]):
        first += 1
    return first


def _whole(messages: Sequence[Message]) -> list[Message]:
    """The messages without those results whose calls are left out."""
    called = set[object]()
    kept: list[Message] = []
    for message in messages:
        call_id = (message.payload or {}).get("call_id")
        if message.type is MessageType.TOOL_CALL:
            called.add(call_id)
        if message.type is not MessageType.TOOL_RESULT or call_id in called:
            kept.append(message)
    return kept
