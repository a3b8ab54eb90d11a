"""The context: what requests show of a conversation. All of it, until that is too long; the history itself stays whole.

First the oldest results become one line each. Where that is not enough, the oldest turns are left out, and one message
says so in their place. What the user and the system said, and the newest turn, is never touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..message import Message, MessageType, Role, together
from ..outcome import Outcome
from ..request import tokens_of, tokens_of_message

_SPARED = 2
"""The turns that stay whole as long as that is possible."""
_ELIDED = "elided"
"""The key that marks a result which is a line already."""
_TOUCHED = (Role.ASSISTANT, Role.TOOL)


class RequestContext:
    """What requests show of a history that grows."""

    __slots__ = ("_calls", "_count", "_stand_in", "_summary", "messages")

    def __init__(self, history: list[Message]) -> None:
        self.messages = history
        """What is shown: the history itself, as long as nothing is elided."""
        self._stand_in: Message | None = None
        self._count = 0
        self._calls: Counter[str] | None = None
        self._summary = ""

    def shorten(self, room: int) -> None:
        """Show less, so that it fits into so many tokens, as far as that is possible.

        Much at a time, down to a half, because whatever is changed here must be read anew by the provider.
        """
        self._elide(room // 2, _SPARED)
        if self.tokens > room * 3 // 4:
            self._leave_out(room // 2, _SPARED)
        if self.tokens > room:
            self._elide(room // 2, 1)
            self._leave_out(room // 2, 1)
        if self.tokens > room and self._summary:
            self._summary = ""
            self._leave_out(room // 2, 1)

    @property
    def tokens(self) -> int:
        """An upper estimate of what is shown."""
        return sum(map(tokens_of_message, self.messages))

    @property
    def old(self) -> list[Message]:
        """What would be left out, if all of it were: for a summary."""
        return [self.messages[place] for place in self._places(_SPARED)]

    def sum_up(self, summary: str) -> bool:
        """Show a summary in place of all that is old; whether that is shorter."""
        return self._stand_in_for(self._places(_SPARED), summary)

    def _elide(self, aim: int, spared: int) -> None:
        """Show old results as one line each, oldest first, until the aim is reached."""
        left, shown, changed = self.tokens, list(self.messages), False
        for place in self._places(spared):
            if left <= aim:
                break
            message = shown[place]
            short = elided(message) if message.type is MessageType.TOOL_RESULT and not _is_elided(message) else message
            saved = tokens_of_message(message) - tokens_of_message(short)
            if saved > 0:
                shown[place] = short
                left, changed = left - saved, True
        if changed:
            self.messages = shown

    def _leave_out(self, aim: int, spared: int) -> None:
        """Leave out the oldest turns, until the aim is reached; a message says so."""
        left, places = self.tokens, list[int]()
        starts = set(_starts(self.messages))
        for place in self._places(spared):
            if left <= aim and place in starts:
                break
            places.append(place)
            left -= tokens_of_message(self.messages[place])
        self._stand_in_for(_with_whole_pairs(self.messages, places), self._summary)

    def _stand_in_for(self, places: Sequence[int], summary: str) -> bool:
        """Show one message in place of others, and of the one that stood for others before; unless it is longer."""
        gone = [self.messages[place] for place in places]
        count = self._count + sum(message is not self._stand_in for message in gone)
        calls = Counter(_tool(message) for message in gone if message.type is MessageType.TOOL_CALL)
        calls = calls if self._calls is None else self._calls + calls
        if not gone:
            return False
        stand_in = _said(gone[0], _told(count, calls, summary))
        if tokens_of_message(stand_in) >= sum(map(tokens_of_message, gone)):
            return False
        replaced = set(places)
        shown = [message for place, message in enumerate(self.messages) if place not in replaced]
        shown.insert(places[0], stand_in)
        self.messages, self._stand_in = shown, stand_in
        self._count, self._calls, self._summary = count, calls, summary
        return True

    def _places(self, spared: int) -> list[int]:
        """Where what may be touched stands: what the model and tools said before the newest turns."""
        starts = _starts(self.messages)
        end = starts[-spared] if len(starts) > spared else (starts[0] if starts else 0)
        touched = [
            place
            for place, message in enumerate(self.messages[:end])
            if message.role in _TOUCHED or message is self._stand_in
        ]
        return _with_whole_pairs(self.messages, touched)


def elided(result: Message) -> Message:
    """A result in one line."""
    payload = {key: value for key, value in (result.payload or {}).items() if key in ("call_id", "name", "is_error")}
    line = f"{_tool(result)}: {len(result.content):,} characters, elided"
    return replace(result, content=line, payload=payload, metadata={**(result.metadata or {}), _ELIDED: True})


def _is_elided(message: Message) -> bool:
    return bool(message.metadata and message.metadata.get(_ELIDED))


def _tool(message: Message) -> str:
    return str((message.payload or {}).get("name") or "tool")


def _said(place: Message, text: str) -> Message:
    """A message that stands in the place of others."""
    return Message(place.run, place.n, place.created_at, MessageType.TEXT, Role.USER, text)


def _told(count: int, calls: Counter[str], summary: str) -> str:
    made = ", ".join(f"{tool} ({times})" for tool, times in sorted(calls.items()))
    told = f"({count} earlier messages are left out here.{f' Calls that were made: {made}.' if made else ''})"
    return f"{told}\nSummary: {summary}" if summary else told


def _starts(messages: Sequence[Message]) -> list[int]:
    """Where each turn begins: with the first thing that the model says."""
    return [
        place
        for place, message in enumerate(messages)
        if message.role is Role.ASSISTANT and (place == 0 or messages[place - 1].role is not Role.ASSISTANT)
    ]


def _with_whole_pairs(messages: Sequence[Message], places: Sequence[int]) -> list[int]:
    """The places without those whose call or result stands elsewhere."""
    inside, torn = set(places), set[int]()
    for call, result in _pairs(messages):
        if (call in inside) is not (result in inside):
            torn |= {call, result}
    return [place for place in places if place not in torn]


def _pairs(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Where each call and its result stand; an id may be used again for a new call."""
    waiting: dict[object, list[int]] = {}
    for place, message in enumerate(messages):
        call_id = (message.payload or {}).get("call_id")
        if message.type is MessageType.TOOL_CALL:
            waiting.setdefault(call_id, []).append(place)
        elif message.type is MessageType.TOOL_RESULT and waiting.get(call_id):
            yield waiting[call_id].pop(), place


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
