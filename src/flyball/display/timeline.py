"""Timeline of a run: a row per request, call and notable event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from .._internal.json_reader import JsonReader
from .._internal.text import pluralize, to_one_line
from ..budget.forecast import Forecast
from ..errors import quote_value
from ..unit import Unit

_HEAD_ROWS, _TAIL_ROWS = 12, 24
DELEGATE = "delegate"
"""Name of the tool that starts child runs."""
_MAX_DETAILS = {DELEGATE: 72}
"""Maximum characters of a result, by tool. The tree of runs tells more about delegated tasks."""
_NO_REPLY, _NO_OUTCOME = "no reply recorded", "no outcome recorded"
_PURPOSES = {"grace": "reports", "reflection": "reflects", "side": "answers beside the turns"}
_FINISHES = {"stop": "", "length": ", cut off at its length limit", "cut": ", cut off by Flyball"}


class RowKind(StrEnum):
    """Kind of a row.

    It is also the first word of the row's line, except for model and call.
    """

    MODEL = "model"
    CALL = "call"
    RETRY = "retry"
    ASKED = "asked"
    ANSWERED = "answered"
    ELIDED = "elided"
    ENDED = "ended"
    EXTENDED = "extended"
    FALLBACK = "fallback"
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


class Severity(StrEnum):
    """Severity of a row, for colouring."""

    GOOD = ""
    INFO = "told"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """Row of a timeline: time, subject, outcome and usage."""

    kind: RowKind
    turn: int
    at: float
    """Seconds since the start of the run."""
    subject: str
    outcome: str = ""
    details: str = ""
    tokens: int | None = None
    """Tokens used. None if the row is not about a request."""
    seconds: float | None = None
    """Duration. None if the row is about a moment."""
    severity: Severity = Severity.GOOD

    @property
    def text(self) -> str:
        """Subject, outcome and details."""
        return ": ".join(part for part in (self.subject, self.outcome, self.details) if part)

    @property
    def line(self) -> str:
        """Text with the kind in front."""
        return self.text if self.kind in (RowKind.MODEL, RowKind.CALL) else f"{self.kind.value}: {self.text}"


class TimelineReader:
    """Converter of one run's events, in order, to rows.

    A request or a call becomes one row when it ends. `calls` has the arguments and `outcomes` the outcomes by call id,
    if known.
    """

    def __init__(
        self, calls: Mapping[str, object] | None = None, outcomes: Mapping[str, JsonReader] | None = None
    ) -> None:
        self._calls = dict(calls or {})
        self._outcomes = outcomes or {}
        self._requests: dict[tuple[int, str], JsonReader] = {}
        """Requests without a reply, by turn and purpose. Turns of a gateway run at the same time."""
        self._started_calls: dict[str, JsonReader] = {}

    def read(self, event: JsonReader) -> TimelineRow | None:
        """Return the row that this event completes, or None."""
        match event.text("event"):
            case "model_requested":
                self._requests[event.integer("turn"), event.text("purpose")] = event
            case "model_replied":
                return self._build_model_row(event)
            case "tool_started":
                self._started_calls[event.text("call_id")] = event
            case "tool_ended":
                return self._build_call_row(event)
            case kind if kind in _ROW_BUILDERS:
                row_kind, subject, severity = _ROW_BUILDERS[kind](event)
                return TimelineRow(row_kind, event.integer("turn"), event.number("at"), subject, severity=severity)
            case _:
                pass
        return None

    def iter_unfinished(self) -> Iterator[TimelineRow]:
        """Yield rows for requests and calls without an end.

        The run was killed while they were in progress.
        """
        for request in self._requests.values():
            model = request.text("model") or "the model"
            yield TimelineRow(
                RowKind.MODEL, request.integer("turn"), request.number("at"), model, _NO_REPLY, severity=Severity.WARN
            )
        for call in self._started_calls.values():
            subject = format_call(call.text("tool"), call.get("arguments"))
            yield TimelineRow(
                RowKind.CALL, call.integer("turn"), call.number("at"), subject, _NO_OUTCOME, severity=Severity.WARN
            )

    def _build_model_row(self, event: JsonReader) -> TimelineRow:
        key, error = (event.integer("turn"), event.text("purpose")), event.text("error")
        request = self._requests.pop(key, JsonReader({}))
        return TimelineRow(
            RowKind.MODEL,
            event.integer("turn"),
            request.number("at"),
            request.text("model") or "the model",
            "failed" if error else _describe_reply(event),
            to_one_line(error),
            event.integer("input_tokens") + event.integer("output_tokens"),
            max(0.0, event.number("at") - request.number("at")),
            Severity.BAD if error else Severity.GOOD,
        )

    def _build_call_row(self, event: JsonReader) -> TimelineRow:
        key, tool, status = event.text("call_id"), event.text("tool"), event.text("status")
        started = self._started_calls.pop(key, event)
        arguments = started.get("arguments") or self._calls.get(key)
        outcome = status.replace("_", " ") + (f" ({event.text('reason')})" if event.text("reason") else "")
        recorded = self._outcomes.get(key, JsonReader({}))
        return TimelineRow(
            RowKind.CALL,
            event.integer("turn"),
            started.number("at"),
            format_call(tool, arguments) if arguments is not None or started is not event else tool,
            outcome,
            to_one_line(recorded.text("message") or recorded.text("text"), _MAX_DETAILS.get(tool, 400)),
            seconds=event.number("seconds"),
            severity=Severity.GOOD if status == "done" else Severity.BAD,
        )


def build_rows(
    events: list[JsonReader], calls: Mapping[str, object], outcomes: Mapping[str, JsonReader]
) -> list[TimelineRow]:
    """Build the rows of all events, ordered by time."""
    reader = TimelineReader(calls, outcomes)
    rows = [row for event in events if (row := reader.read(event))]
    return sorted([*rows, *reader.iter_unfinished()], key=lambda row: row.at)


def shorten_rows(timeline: list[TimelineRow], hint: str = "--all shows them") -> list[TimelineRow]:
    """Replace the middle of a long timeline by a summary row, which ends with how to see all of it."""
    if len(timeline) <= _HEAD_ROWS + _TAIL_ROWS + 1:
        return timeline
    between = timeline[_HEAD_ROWS:-_TAIL_ROWS]
    failed = sum(row.severity is Severity.BAD for row in between)
    turns = f"turns {between[0].turn} to {between[-1].turn}, {failed:,} failed"
    summary = f"{len(between):,} lines, {turns}; {hint}"
    tokens, seconds = sum(row.tokens or 0 for row in between), between[-1].at - between[0].at
    first = between[0]
    summary_row = TimelineRow(
        RowKind.MORE, first.turn, first.at, summary, tokens=tokens, seconds=seconds, severity=Severity.WARN
    )
    return [*timeline[:_HEAD_ROWS], summary_row, *timeline[-_TAIL_ROWS:]]


def format_call(tool: str, arguments: object) -> str:
    """Format a call as Python would write it, shortened if long; a delegation by the names of its children."""
    named_arguments = cast("dict[str, Any]", arguments) if isinstance(arguments, Mapping) else {}
    if tool == DELEGATE and (children := _list_children(named_arguments)):
        return to_one_line(f"{tool}({', '.join(children)})")
    return to_one_line(
        f"{tool}({', '.join(f'{name}={quote_value(value)}' for name, value in named_arguments.items())})"
    )


def _list_children(arguments: Mapping[str, Any]) -> list[str]:
    """Return the children that tasks are given to, each once with its number of tasks."""
    names = [task.text("child") for task in JsonReader(dict(arguments)).nested_list("tasks")]
    if not all(names):
        return []
    return [name if count == 1 else f"{name} x {count}" for name, count in Counter(names).items()]


def _describe_reply(event: JsonReader) -> str:
    calls, finish = event.integer("calls"), event.text("finish")
    if calls:
        return f"wants {pluralize(calls, 'call')}"
    verb = _PURPOSES.get(event.text("purpose"), "answers")
    return f"{verb}{_FINISHES.get(finish, f', {finish}' if finish else '')}"


def _format_amount(event: JsonReader, key: str) -> str:
    return (Unit.USD if event.text("budget") in ("usd", "cost_usd") else Unit.COUNT).show(event.integer(key))


def _format_answer(event: JsonReader) -> str:
    approved = event.get("approved")
    verdict = "yes" if approved is True else "no" if approved is False else "not yet"
    return f"{verdict}, {to_one_line(event.text('text'))}" if event.text("text") else verdict


_RowBuilder = Callable[[JsonReader], tuple[RowKind, str, Severity]]
_ROW_BUILDERS: Mapping[str, _RowBuilder] = {
    "retried": lambda event: (RowKind.RETRY, f"after {event.number('wait_s'):.1f} s", Severity.WARN),
    "fell_back": lambda event: (
        RowKind.FALLBACK,
        f"from {event.text('model')} to {event.text('to')}: {to_one_line(event.text('error'))}",
        Severity.WARN,
    ),
    "asked_person": lambda event: (RowKind.ASKED, to_one_line(event.text("text")), Severity.INFO),
    "person_answered": lambda event: (RowKind.ANSWERED, _format_answer(event), Severity.INFO),
    "elided": lambda event: (
        RowKind.ELIDED, f"{event.integer('messages')} old messages, {event.integer('tokens'):,} tokens", Severity.WARN
    ),
    "extended": lambda event: (
        RowKind.EXTENDED,
        f"{event.text('budget')} by {_format_amount(event, 'amount')} ({event.text('by')})"
        + (f"; the maximum is {_format_amount(event, 'maximum')}" if event.get("maximum") is not None else ""),
        Severity.INFO,
    ),
    "postponed": lambda event: (
        RowKind.EXTENDED, f"seconds by {event.number('seconds'):g} ({event.text('reason')})", Severity.INFO
    ),
    "grace_started": lambda event: (
        RowKind.GRACE, "one last request, without tools, from the reserve", Severity.WARN
    ),
    "late_result_dropped": lambda event: (
        RowKind.LATE,
        f"{event.text('tool')} finished too late; its result was dropped",
        Severity.WARN,
    ),
    "notice_delivered": lambda event: (RowKind.NOTICE, to_one_line(event.text("text")), Severity.INFO),
    "nudged": lambda event: (RowKind.NUDGE, to_one_line(event.text("text")), Severity.INFO),
    "reflected": lambda event: (RowKind.REFLECTION, to_one_line(event.text("text")), Severity.INFO),
    "refunded": lambda event: (
        RowKind.REFUND,
        f"{_format_amount(event, 'amount')} of {event.text('budget')}: {event.text('reason')}",
        Severity.INFO,
    ),
    "budget_refused": lambda event: (RowKind.REFUSED, event.text("flag"), Severity.BAD),
    "budget_warned": lambda event: (
        RowKind.WARNED,
        f"{event.text('budget')}: {_format_amount(event, 'used')} of {_format_amount(event, 'ceiling')}"
        f"{_format_forecast(event)}",
        Severity.WARN,
    ),
    "repeated": lambda event: (
        RowKind.REPEATS, f"{event.text('tool')}, {event.integer('times')} times: {event.text('action')}", Severity.WARN
    ),
    "rule_failed": lambda event: (
        RowKind.RULE, f"{event.text('rule')} failed: {to_one_line(event.text('reason'))}", Severity.WARN
    ),
    "rule_emitted": lambda event: (
        RowKind.RULE, f"{event.text('rule')} emitted {_format_emitted(event)}", Severity.INFO
    ),
    "steered": lambda event: (RowKind.STEERED, to_one_line(event.text("text")), Severity.INFO),
}  # fmt: skip


def _format_forecast(event: JsonReader) -> str:
    if event.get("turns_left") is None or not event.text("forecast"):
        return ""
    return f"; {Forecast(event.text('forecast'), event.integer('turns_left'))}"


def _format_emitted(event: JsonReader) -> str:
    data = event.nested("data")
    text = data.text("message") or ", ".join(f"{name}={quote_value(data.get(name))}" for name in data)
    return f"{event.text('name')}: {to_one_line(text)}" if text else event.text("name")
