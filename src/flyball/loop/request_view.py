"""The context: what requests show of a conversation. All of it, until that is too long; the history itself stays whole.

First the oldest results become one line each. Where that is not enough, the oldest turns are left out, and one message
says so in their place. What the user and the system said, and the newest turn, is never touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..message import Message, MessageType, Role, belong_together
from ..outcome import Outcome
from ..request import estimate_message_tokens, estimate_tokens

_KEPT_TURNS = 2
"""The turns that stay whole as long as that is possible."""
_ELIDED = "elided"
"""The key that marks a result which is a line already."""
_ELIDABLE_ROLES = (Role.ASSISTANT, Role.TOOL)


class RequestView:
    """What requests show of a history that grows."""

    __slots__ = ("_calls", "_count", "_placeholder", "_summary", "messages")

    def __init__(self, history: list[Message]) -> None:
        self.messages = history
        """What is shown: the history itself, as long as nothing is elided."""
        self._placeholder: Message | None = None
        self._count = 0
        self._calls: Counter[str] | None = None
        self._summary = ""

    def shorten(self, max_tokens: int) -> None:
        """Show less, so that it fits into so many tokens, as far as that is possible.

        Much at a time, down to a half, because whatever is changed here must be read anew by the provider.
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
        """An upper estimate of what is shown."""
        return sum(map(estimate_message_tokens, self.messages))

    @property
    def old_messages(self) -> list[Message]:
        """What would be left out, if all of it were: for a summary."""
        return [self.messages[place] for place in self._find_elidable(_KEPT_TURNS)]

    def summarize(self, summary: str) -> bool:
        """Show a summary in place of all that is old; whether that is shorter."""
        return self._replace_with_placeholder(self._find_elidable(_KEPT_TURNS), summary)

    def _elide(self, target_tokens: int, kept_turns: int) -> None:
        """Show old results as one line each, oldest first, until the aim is reached."""
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
        """Leave out the oldest turns, until the aim is reached; a message says so."""
        left, places = self.tokens, list[int]()
        starts = set(_find_turn_starts(self.messages))
        for place in self._find_elidable(kept_turns):
            if left <= target_tokens and place in starts:
                break
            places.append(place)
            left -= estimate_message_tokens(self.messages[place])
        self._replace_with_placeholder(_drop_split_pairs(self.messages, places), self._summary)

    def _replace_with_placeholder(self, positions: Sequence[int], summary: str) -> bool:
        """Show one message in place of others, and of the one that stood for others before; unless it is longer."""
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
        """Where what may be touched stands: what the model and tools said before the newest turns."""
        starts = _find_turn_starts(self.messages)
        end = starts[-kept_turns] if len(starts) > kept_turns else (starts[0] if starts else 0)
        touched = [
            place
            for place, message in enumerate(self.messages[:end])
            if message.role in _ELIDABLE_ROLES or message is self._placeholder
        ]
        return _drop_split_pairs(self.messages, touched)


def elide(result: Message) -> Message:
    """A result in one line."""
    payload = {key: value for key, value in (result.payload or {}).items() if key in ("call_id", "name", "is_error")}
    line = f"{_get_tool_name(result)}: {len(result.content):,} characters, elided"
    return replace(result, content=line, payload=payload, metadata={**(result.metadata or {}), _ELIDED: True})


def _is_elided(message: Message) -> bool:
    return bool(message.metadata and message.metadata.get(_ELIDED))


def _get_tool_name(message: Message) -> str:
    return str((message.payload or {}).get("name") or "tool")


def _build_placeholder(first: Message, text: str) -> Message:
    """A message that stands in the place of others."""
    return Message(first.run, first.n, first.created_at, MessageType.TEXT, Role.USER, text)


def _format_placeholder(count: int, calls: Counter[str], summary: str) -> str:
    made = ", ".join(f"{tool} ({times})" for tool, times in sorted(calls.items()))
    told = f"({count} earlier messages are left out here.{f' Calls that were made: {made}.' if made else ''})"
    return f"{told}\nSummary: {summary}" if summary else told


def _find_turn_starts(messages: Sequence[Message]) -> list[int]:
    """Where each turn begins: with the first thing that the model says."""
    return [
        place
        for place, message in enumerate(messages)
        if message.role is Role.ASSISTANT and (place == 0 or messages[place - 1].role is not Role.ASSISTANT)
    ]


def _drop_split_pairs(messages: Sequence[Message], positions: Sequence[int]) -> list[int]:
    """The places without those whose call or result stands elsewhere."""
    inside, torn = set(positions), set[int]()
    for call, result in _find_pairs(messages):
        if (call in inside) is not (result in inside):
            torn |= {call, result}
    return [place for place in positions if place not in torn]


def _find_pairs(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Where each call and its result stand; an id may be used again for a new call."""
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
    """The most useful messages that fit, oldest first; None where not even the task does.

    The task is among the first `given` messages. What is left out is told in a message that `said` makes: one line for
    each call.
    """
    if sum(map(estimate_message_tokens, history)) <= max_tokens:
        return list(history)
    place = _find_task(history, initial_count)
    task = history[place : place + 1]
    max_tokens -= sum(map(estimate_message_tokens, task))
    if max_tokens < 0:
        return None
    lines = _format_calls(outcomes, max_tokens // 2)
    middle = [make_message(lines)] if lines else []
    max_tokens -= sum(map(estimate_message_tokens, middle))
    first = _find_newest_start(history, max_tokens)
    newest = _drop_orphan_results(history[first:])
    return [*middle, *newest] if first <= place else [*task, *middle, *newest]


def _find_task(history: Sequence[Message], initial_count: int) -> int:
    """Where the newest of the user's messages is that the run was given; behind the end where there is none."""
    for place in reversed(range(initial_count)):
        if history[place].role is Role.USER:
            return place
    return len(history)


def _format_calls(outcomes: Sequence[Outcome], max_tokens: int) -> str:
    """One line for each call, the newest that fit; empty where none does."""
    lines: list[str] = []
    left = max_tokens - estimate_tokens(_CALLS_HEADER.format(0)) - 8
    for outcome in reversed(outcomes):
        line = format_outcome(outcome)
        left -= estimate_tokens(line) + 1
        if left < 0:
            break
        lines.append(line)
    if not lines:
        return ""
    return "\n".join([_CALLS_HEADER.format(len(outcomes)), *reversed(lines)])


_CALLS_HEADER = "(Earlier messages are left out. {} calls were made:)"


def format_outcome(outcome: Outcome) -> str:
    """A call in one line: the tool, its end, and the beginning of what it gave."""
    text = " ".join(outcome.text[: _MAX_LINE_CHARACTERS * 2].split())
    shown = text if len(text) <= _MAX_LINE_CHARACTERS else f"{text[:_MAX_LINE_CHARACTERS]}…"
    return f"- {outcome.tool}: {outcome.status.value.replace('_', ' ')}: {shown}"


def _find_newest_start(history: Sequence[Message], max_tokens: int) -> int:
    """Where the newest messages begin that fit; never in the middle of what came together."""
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
