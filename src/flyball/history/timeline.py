"""What happened in a run, line by line: from its record afterwards, or from its events as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from ..errors import shown
from ..unit import Unit
from .record import JsonReader

_LONGEST = 400
_FIRST, _LAST = 12, 24
_NO_END = "no answer is known"
_PURPOSES = {"grace": "reports", "reflection": "looks back"}
_FINISHES = {"stop": "", "length": ", cut off by its limit", "cut": ", cut off by us"}


class RowKind(StrEnum):
    """What a line is about; for all but the first two it is also the line's first word."""

    MODEL = "model"
    CALL = "call"
    AGAIN = "again"
    ASKED = "asked"
    ANSWERED = "answered"
    ELIDED = "elided"
    ENDED = "ended"
    EXTENDED = "extended"
    GRACE = "grace"
    LATE = "late"
    MORE = "more"
    NOTICE = "notice"
    NUDGE = "nudge"
    REFLECTION = "reflection"
    REFUND = "refund"
    REFUSED = "refused"
    REPEATS = "repeats"
    RULE = "rule"
    STARTED = "started"
    STEERED = "steered"
    WARNED = "warned"


class Mark(StrEnum):
    """How bad it is, for who shows it in colour."""

    GOOD = ""
    TOLD = "told"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One line: when, what, what became of it, and what it took."""

    kind: RowKind
    turn: int
    at: float
    what: str
    outcome: str = ""
    words: str = ""
    """More of what became of it."""
    tokens: int | None = None
    seconds: float | None = None
    mark: Mark = Mark.GOOD

    @property
    def text(self) -> str:
        """What, and what became of it."""
        return ": ".join(part for part in (self.what, self.outcome, self.words) if part)

    @property
    def line(self) -> str:
        """The same, with what it is about."""
        return self.text if self.kind in (RowKind.MODEL, RowKind.CALL) else f"{self.kind.value}: {self.text}"


class TimelineReader:
    """Takes the events of one run in their order; a request and a call become one line, when they end.

    `calls` and `outcomes` tell what was called with what, and what it came to, by the calls' ids, where that is known.
    """

    def __init__(
        self, calls: Mapping[str, object] | None = None, outcomes: Mapping[str, JsonReader] | None = None
    ) -> None:
        self._calls = dict(calls or {})
        self._outcomes = outcomes or {}
        self._asked = JsonReader({})
        self._started: dict[str, JsonReader] = {}

    def read(self, event: JsonReader) -> TimelineRow | None:
        """The line that an event completes; None where it tells nothing of its own."""
        match event.text("event"):
            case "model_requested":
                self._asked = event
            case "model_replied":
                return self._replied(event)
            case "tool_started":
                self._started[event.text("call_id")] = event
            case "tool_ended":
                return self._ended(event)
            case kind if kind in _SIMPLE:
                about, what, mark = _SIMPLE[kind](event)
                return TimelineRow(about, event.whole("turn"), event.number("at"), what, mark=mark)
            case _:
                pass
        return None

    def left(self) -> Iterator[TimelineRow]:
        """The lines of what was begun, and has no end among the events: the run was stopped meanwhile."""
        if self._asked.text("event"):
            asked = self._asked
            model = asked.text("model") or "the model"
            yield TimelineRow(RowKind.MODEL, asked.whole("turn"), asked.number("at"), model, _NO_END, mark=Mark.WARN)
        for call in self._started.values():
            what = call_text(call.text("tool"), call.get("arguments"))
            yield TimelineRow(RowKind.CALL, call.whole("turn"), call.number("at"), what, _NO_END, mark=Mark.WARN)

    def _replied(self, event: JsonReader) -> TimelineRow:
        asked, error = self._asked, event.text("error")
        self._asked = JsonReader({})
        return TimelineRow(
            RowKind.MODEL,
            event.whole("turn"),
            asked.number("at"),
            asked.text("model") or "the model",
            "failed" if error else _said(event),
            one_line(error),
            event.whole("input_tokens") + event.whole("output_tokens"),
            max(0.0, event.number("at") - asked.number("at")),
            Mark.BAD if error else Mark.GOOD,
        )

    def _ended(self, event: JsonReader) -> TimelineRow:
        key, tool, status = event.text("call_id"), event.text("tool"), event.text("status")
        started = self._started.pop(key, event)
        arguments = started.get("arguments") or self._calls.get(key)
        outcome = status.replace("_", " ") + (f" ({event.text('reason')})" if event.text("reason") else "")
        told = self._outcomes.get(key, JsonReader({}))
        return TimelineRow(
            RowKind.CALL,
            event.whole("turn"),
            started.number("at"),
            call_text(tool, arguments) if arguments is not None or started is not event else tool,
            outcome,
            one_line(told.text("message") or told.text("text")),
            seconds=event.number("seconds"),
            mark=Mark.GOOD if status == "done" else Mark.BAD,
        )


def rows(
    events: list[JsonReader], calls: Mapping[str, object], outcomes: Mapping[str, JsonReader]
) -> list[TimelineRow]:
    """The lines of all events, in the order of time."""
    reader = TimelineReader(calls, outcomes)
    read = [row for event in events if (row := reader.read(event))]
    return sorted([*read, *reader.left()], key=lambda row: row.at)


def shortened(lines: list[TimelineRow]) -> list[TimelineRow]:
    """The lines as one screen has place for them: of a long run the first and the last, and what is between in one."""
    if len(lines) <= _FIRST + _LAST + 1:
        return lines
    between = lines[_FIRST:-_LAST]
    failed = sum(row.mark is Mark.BAD for row in between)
    turns = f"turns {between[0].turn} to {between[-1].turn}, of which {failed:,} failed"
    what = f"{len(between):,} lines, {turns}; --all shows them"
    tokens, seconds = sum(row.tokens or 0 for row in between), between[-1].at - between[0].at
    first = between[0]
    more = TimelineRow(RowKind.MORE, first.turn, first.at, what, tokens=tokens, seconds=seconds, mark=Mark.WARN)
    return [*lines[:_FIRST], more, *lines[-_LAST:]]


def call_text(tool: str, arguments: object) -> str:
    """A call as one would write it in Python, cut where it is long."""
    given = cast("dict[str, Any]", arguments) if isinstance(arguments, Mapping) else {}
    return one_line(f"{tool}({', '.join(f'{name}={shown(value)}' for name, value in given.items())})")


def one_line(text: str) -> str:
    """The text without line breaks, cut where it is long."""
    line = " ".join(text[: 2 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _said(event: JsonReader) -> str:
    calls, finish = event.whole("calls"), event.text("finish")
    if calls:
        return f"wants {calls} call{'s' if calls != 1 else ''}"
    said = _PURPOSES.get(event.text("purpose"), "answers")
    return f"{said}{_FINISHES.get(finish, f', {finish}' if finish else '')}"


def _amount(event: JsonReader, key: str) -> str:
    """So much of a budget, as a person would write it."""
    return (Unit.USD if event.text("budget") in ("usd", "cost_usd") else Unit.COUNT).show(event.whole(key))


def _answer(event: JsonReader) -> str:
    approved = event.get("approved")
    said = "yes" if approved is True else "no" if approved is False else "not yet"
    return f"{said}, {one_line(event.text('text'))}" if event.text("text") else said


_Simple = Callable[[JsonReader], tuple[RowKind, str, Mark]]
_SIMPLE: Mapping[str, _Simple] = {
    "retried": lambda event: (RowKind.AGAIN, f"after {event.number('wait_s'):.1f} s", Mark.WARN),
    "asked_person": lambda event: (RowKind.ASKED, one_line(event.text("text")), Mark.TOLD),
    "person_answered": lambda event: (RowKind.ANSWERED, _answer(event), Mark.TOLD),
    "elided": lambda event: (
        RowKind.ELIDED, f"{event.whole('messages')} old messages, {event.whole('tokens'):,} tokens", Mark.WARN
    ),
    "extended": lambda event: (
        RowKind.EXTENDED, f"{event.text('budget')} by {_amount(event, 'amount')} ({event.text('by')})", Mark.TOLD
    ),
    "postponed": lambda event: (
        RowKind.EXTENDED, f"seconds by {event.number('seconds'):g} ({event.text('reason')})", Mark.TOLD
    ),
    "grace_started": lambda event: (
        RowKind.GRACE, "one last request, without tools, from what was set aside", Mark.WARN
    ),
    "late_result_dropped": lambda event: (RowKind.LATE, f"{event.text('tool')} came back, and was dropped", Mark.WARN),
    "notice_delivered": lambda event: (RowKind.NOTICE, one_line(event.text("text")), Mark.TOLD),
    "nudged": lambda event: (RowKind.NUDGE, one_line(event.text("text")), Mark.TOLD),
    "reflected": lambda event: (RowKind.REFLECTION, one_line(event.text("text")), Mark.TOLD),
    "refunded": lambda event: (
        RowKind.REFUND, f"{_amount(event, 'amount')} of {event.text('budget')}: {event.text('reason')}", Mark.TOLD
    ),
    "budget_refused": lambda event: (RowKind.REFUSED, event.text("flag"), Mark.BAD),
    "budget_warned": lambda event: (
        RowKind.WARNED, f"{event.text('budget')}: {_amount(event, 'used')} of {_amount(event, 'ceiling')}", Mark.WARN
    ),
    "repeated": lambda event: (
        RowKind.REPEATS, f"{event.text('tool')}, {event.whole('times')} times: {event.text('action')}", Mark.WARN
    ),
    "rule_failed": lambda event: (
        RowKind.RULE, f"{event.text('rule')} failed: {one_line(event.text('reason'))}", Mark.WARN
    ),
    "rule_emitted": lambda event: (RowKind.RULE, f"{event.text('rule')} tells {_emitted(event)}", Mark.TOLD),
    "steered": lambda event: (RowKind.STEERED, one_line(event.text("text")), Mark.TOLD),
}  # fmt: skip


def _emitted(event: JsonReader) -> str:
    data = event.inner("data")
    said = data.text("message") or ", ".join(f"{name}={shown(data.get(name))}" for name in data)
    return f"{event.text('name')}: {one_line(said)}" if said else event.text("name")
