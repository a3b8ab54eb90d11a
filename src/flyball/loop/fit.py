"""Fitting a conversation into so many tokens: the task, a line for each call, and the newest messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..message import Message, MessageType, Role
from ..outcome import Outcome
from ..request import tokens_of, tokens_of_message

_LONGEST_LINE = 160


def fit(
    history: Sequence[Message],
    outcomes: Sequence[Outcome],
    room: int,
    said: Callable[[str], Message],
) -> list[Message] | None:
    """The most useful messages that fit, oldest first; None where not even the task does.

    What is left out is told in a message that `said` makes: one line for each call.
    """
    if sum(map(tokens_of_message, history)) <= room:
        return list(history)
    task = _task(history)
    room -= sum(map(tokens_of_message, task))
    if room < 0:
        return None
    lines = _lines(outcomes, room // 2)
    middle = [said(lines)] if lines else []
    room -= sum(map(tokens_of_message, middle))
    return [*task, *middle, *_newest(history, room, task)]


def _task(history: Sequence[Message]) -> list[Message]:
    """What the user asked for: the newest of those messages that came before the model said anything."""
    for message in history:
        if message.role is Role.USER:
            return [message]
    return []


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


def _newest(history: Sequence[Message], room: int, task: Sequence[Message]) -> list[Message]:
    """As many of the newest messages as fit. A result whose call is left out is left out too."""
    first = len(history)
    while first > 0:
        tokens = tokens_of_message(history[first - 1])
        if tokens > room:
            break
        room -= tokens
        first -= 1
    while first < len(history) and not _may_begin(history, first):
        first += 1
    return [message for message in history[first:] if not any(message is one for one in task)]


def _may_begin(history: Sequence[Message], index: int) -> bool:
    """Whether a conversation may begin here: not with a result, and not in the middle of what came together."""
    message = history[index]
    if message.type is MessageType.TOOL_RESULT:
        return False
    return message.group is None or message.group == message.n
