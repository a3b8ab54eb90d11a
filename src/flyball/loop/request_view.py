"""The part of a conversation that requests show: everything, until it is too long. The history stays whole.

First the oldest results are shortened to one line each. If that is not enough, the oldest turns are replaced by one
message that says so. Messages of the user and the system, and the newest turn, always stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..errors import truncate
from ..message import Message, MessageType, Role, belong_together
from ..outcome import Outcome
from ..request import estimate_message_tokens, estimate_tokens

_KEPT_TURNS = 2
"""Newest turns that stay whole as long as possible."""
_ELIDED = "elided"
"""Metadata key of results that are shortened already."""
_ELIDABLE_ROLES = (Role.ASSISTANT, Role.TOOL)


class RequestView:
    """Messages that requests show of a growing history."""

    __slots__ = ("_calls", "_count", "_placeholder", "_summary", "messages")

    def __init__(self, history: list[Message]) -> None:
        self.messages = history
        """Shown messages: the history itself until something is elided."""
        self._placeholder: Message | None = None
        self._count = 0
        self._calls: Counter[str] | None = None
        self._summary = ""

    def shorten(self, max_tokens: int) -> None:
        """Show less, so that it fits into `max_tokens` if possible.

        It shortens much at a time, down to half, because each change invalidates the provider's prompt cache.
        """
        self._elide(max_tokens // 2, _KEPT_TURNS)
        if self.tokens > max_tokens * 3 // 4:
            self._drop_turns(max_tokens // 2, _KEPT_TURNS)
        if self.tokens > max_tokens:
            self._elide(max_tokens // 2, 1)
            self._drop_turns(max_tokens // 2, 1)
        if self.tokens > max_tokens and self._summary:
            self._summary = ""
            self._drop_turns(max_tokens // 2, 1)

    @property
    def tokens(self) -> int:
        """Upper estimate of the tokens of the shown messages."""
        return sum(map(estimate_message_tokens, self.messages))

    @property
    def old_messages(self) -> list[Message]:
        """Messages that can be left out, for a summary."""
        return [self.messages[place] for place in self._find_elidable(_KEPT_TURNS)]

    def summarize(self, summary: str) -> bool:
        """Replace old messages by a summary. Return True if that is shorter."""
        return self._replace_with_placeholder(self._find_elidable(_KEPT_TURNS), summary)

    def _elide(self, target_tokens: int, kept_turns: int) -> None:
        """Shorten old results to one line each, oldest first, until the target is reached."""
        left, shown, changed = self.tokens, list(self.messages), False
        for place in self._find_elidable(kept_turns):
            if left <= target_tokens:
                break
            message = shown[place]
            short = elide(message) if message.type is MessageType.TOOL_RESULT and not _is_elided(message) else message
            saved = estimate_message_tokens(message) - estimate_message_tokens(short)
            if saved > 0:
                shown[place] = short
                left, changed = left - saved, True
        if changed:
            self.messages = shown

    def _drop_turns(self, target_tokens: int, kept_turns: int) -> None:
        """Replace the oldest turns by a message that says so, until the target is reached."""
        left, places = self.tokens, list[int]()
        starts = set(_find_turn_starts(self.messages))
        for place in self._find_elidable(kept_turns):
            if left <= target_tokens and place in starts:
                break
            places.append(place)
            left -= estimate_message_tokens(self.messages[place])
        self._replace_with_placeholder(_drop_split_pairs(self.messages, places), self._summary)

    def _replace_with_placeholder(self, positions: Sequence[int], summary: str) -> bool:
        """Replace messages by a placeholder, unless that is longer. Return True if they were replaced."""
        gone = [self.messages[place] for place in positions]
        count = self._count + sum(message is not self._placeholder for message in gone)
        calls = Counter(_get_tool_name(message) for message in gone if message.type is MessageType.TOOL_CALL)
        calls = calls if self._calls is None else self._calls + calls
        if not gone:
            return False
        stand_in = _build_placeholder(gone[0], _format_placeholder(count, calls, summary))
        if estimate_message_tokens(stand_in) >= sum(map(estimate_message_tokens, gone)):
            return False
        replaced = set(positions)
        shown = [message for place, message in enumerate(self.messages) if place not in replaced]
        shown.insert(positions[0], stand_in)
        self.messages, self._placeholder = shown, stand_in
        self._count, self._calls, self._summary = count, calls, summary
        return True

    def _find_elidable(self, kept_turns: int) -> list[int]:
        """Return the positions of messages of the model and of tools before the newest turns."""
        starts = _find_turn_starts(self.messages)
        end = starts[-kept_turns] if len(starts) > kept_turns else (starts[0] if starts else 0)
        touched = [
            place
            for place, message in enumerate(self.messages[:end])
            if message.role in _ELIDABLE_ROLES or message is self._placeholder
        ]
        return _drop_split_pairs(self.messages, touched)


def elide(result: Message) -> Message:
    """Return a result shortened to one line."""
    payload = {key: value for key, value in (result.payload or {}).items() if key in ("call_id", "name", "is_error")}
    line = f"{_get_tool_name(result)}: {len(result.content):,} characters, elided"
    return replace(result, content=line, payload=payload, metadata={**(result.metadata or {}), _ELIDED: True})


def _is_elided(message: Message) -> bool:
    return bool(message.metadata and message.metadata.get(_ELIDED))


def _get_tool_name(message: Message) -> str:
    return str((message.payload or {}).get("name") or "tool")


def _build_placeholder(first: Message, text: str) -> Message:
    """Build the message that replaces others."""
    return Message(first.run, first.n, first.created_at, MessageType.TEXT, Role.USER, text)


def _format_placeholder(count: int, calls: Counter[str], summary: str) -> str:
    made = ", ".join(f"{tool} ({times})" for tool, times in sorted(calls.items()))
    told = f"({count} earlier messages are left out here.{f' Calls that were made: {made}.' if made else ''})"
    return f"{told}\nSummary: {summary}" if summary else told


def _find_turn_starts(messages: Sequence[Message]) -> list[int]:
    """Return the positions where turns start: at the first message of the model."""
    return [
        place
        for place, message in enumerate(messages)
        if message.role is Role.ASSISTANT and (place == 0 or messages[place - 1].role is not Role.ASSISTANT)
    ]


def _drop_split_pairs(messages: Sequence[Message], positions: Sequence[int]) -> list[int]:
    """Return the positions without calls and results whose counterpart is not among them."""
    inside, torn = set(positions), set[int]()
    for call, result in _find_pairs(messages):
        if (call in inside) is not (result in inside):
            torn |= {call, result}
    return [place for place in positions if place not in torn]


def _find_pairs(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Yield the positions of each call and its result. An id may be used again for a new call."""
    waiting: dict[object, list[int]] = {}
    for place, message in enumerate(messages):
        call_id = (message.payload or {}).get("call_id")
        if message.type is MessageType.TOOL_CALL:
            waiting.setdefault(call_id, []).append(place)
        elif message.type is MessageType.TOOL_RESULT and waiting.get(call_id):
            yield waiting[call_id].pop(), place


_MAX_LINE_CHARACTERS = 160


def fit_messages(
    history: Sequence[Message],
    outcomes: Sequence[Outcome],
    max_tokens: int,
    make_message: Callable[[str], Message],
    initial_count: int,
) -> list[Message] | None:
    """Return the most useful messages that fit, oldest first; None if not even the task does.

    The task is among the first `initial_count` messages. `make_message` builds the message that lists the calls that
    are left out, one line for each.
    """
    if sum(map(estimate_message_tokens, history)) <= max_tokens:
        return list(history)
    place = _find_task(history, initial_count)
    task = history[place : place + 1]
    max_tokens -= sum(map(estimate_message_tokens, task))
    if max_tokens < 0:
        return None
    lines = _format_calls(outcomes, history, max_tokens // 2)
    middle = [make_message(lines)] if lines else []
    max_tokens -= sum(map(estimate_message_tokens, middle))
    first = _find_newest_start(history, max_tokens)
    newest = _drop_orphan_results(history[first:])
    return [*middle, *newest] if first <= place else [*task, *middle, *newest]


def _find_task(history: Sequence[Message], initial_count: int) -> int:
    """Return the position of the user's last message before the run; the length if there is none."""
    for place in reversed(range(initial_count)):
        if history[place].role is Role.USER:
            return place
    return len(history)


def _format_calls(outcomes: Sequence[Outcome], history: Sequence[Message], max_tokens: int) -> str:
    """Return one line for each of the newest calls that fit, as the model read them; empty if none does."""
    lines, shown = list[str](), read_result_texts(history)
    left = max_tokens - estimate_tokens(_CALLS_HEADER.format(0)) - 8
    for outcome in reversed(outcomes):
        line = format_outcome(outcome, shown.get(outcome.call_id))
        left -= estimate_tokens(line) + 1
        if left < 0:
            break
        lines.append(line)
    if not lines:
        return ""
    return "\n".join([_CALLS_HEADER.format(len(outcomes)), *reversed(lines)])


def read_result_texts(history: Sequence[Message]) -> dict[object, str]:
    """Return the results as the model reads them, by call id. A hook may have replaced some."""
    results = (message for message in history if message.type is MessageType.TOOL_RESULT)
    return {(message.payload or {}).get("call_id"): message.content for message in results}


_CALLS_HEADER = "(Earlier messages are left out. {} calls were made:)"


def format_outcome(outcome: Outcome, text: str | None = None) -> str:
    """Return a call in one line: the tool, its outcome, and the start of its result, or of `text` in its place."""
    text = " ".join((outcome.text if text is None else text)[: _MAX_LINE_CHARACTERS * 2].split())
    shown = truncate(text, _MAX_LINE_CHARACTERS)
    return f"- {outcome.tool}: {outcome.status.value.replace('_', ' ')}: {shown}"


def _find_newest_start(history: Sequence[Message], max_tokens: int) -> int:
    """Return the position of the oldest message that fits, without splitting a group."""
    first = len(history)
    while first > 0:
        tokens = estimate_message_tokens(history[first - 1])
        if tokens > max_tokens:
            break
        max_tokens -= tokens
        first -= 1
    while 0 < first < len(history) and belong_together(history[first - 1], history[first]):
        first += 1
    return first


def _drop_orphan_results(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without results whose calls are left out."""
    called = set[object]()
    kept: list[Message] = []
    for message in messages:
        call_id = (message.payload or {}).get("call_id")
        if message.type is MessageType.TOOL_CALL:
            called.add(call_id)
        if message.type is not MessageType.TOOL_RESULT or call_id in called:
            kept.append(message)
    return kept
