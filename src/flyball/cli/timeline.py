"""What happened in a run, line by line, from its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from ..errors import shown
from .record import Record

_LONGEST = 96


@dataclass(frozen=True, slots=True)
class Row:
    """One line: when, what, what became of it, and what it took."""

    turn: int
    at: float
    what: str
    outcome: str = ""
    tokens: int | None = None
    seconds: float | None = None
    mark: str = ""
    """`bad`, `warn` or empty, for who shows it in colour."""


def rows(record: Record) -> list[Row]:
    """The lines of a record in the order of time; events that tell nothing of their own are left out."""
    return sorted(_Reader(record).rows(), key=lambda row: row.at)


def task_of(record: Record) -> str:
    """What the run was about: the last thing that a user said before it began."""
    said = [one.get("content") or "" for one in record["messages"] if _is(one, "user")]
    first = [one.get("content") or "" for one in _until_assistant(record["messages"])]
    return (first or said or [""])[-1]


def _until_assistant(messages: list[Any]) -> Iterator[Record]:
    for one in messages:
        if _is(one, "assistant"):
            return
        if _is(one, "user"):
            yield one


def _is(message: Any, role: str) -> bool:
    return isinstance(message, dict) and cast("Record", message).get("role") == role


class _Reader:
    """Goes through the events once; a request and a call become one line, at their end."""

    def __init__(self, record: Record) -> None:
        events = cast("list[object]", record["events"])
        self._events = [cast("Record", one) for one in events if isinstance(one, dict) and "event" in one]
        self._asked: Record = {}
        self._called: dict[str, Record] = {}

    def rows(self) -> Iterator[Row]:
        for event in self._events:
            read = getattr(self, f"_{event['event']}", None)
            row = None if read is None else read(event)
            if row is not None:
                yield row

    def _row(self, event: Record, what: str, outcome: str = "", **rest: Any) -> Row:
        return Row(int(event.get("turn") or 0), float(event.get("at") or 0.0), what, outcome, **rest)

    def _model_requested(self, event: Record) -> None:
        self._asked = event

    def _model_replied(self, event: Record) -> Row:
        asked, error = self._asked, event.get("error")
        purpose = event.get("purpose")
        name = asked.get("model") or "the model"
        what = {"grace": f"{name} is asked for its report", "reflection": f"{name} looks back"}.get(
            str(purpose), f"{name} is asked"
        )
        tokens = int(event.get("input_tokens") or 0) + int(event.get("output_tokens") or 0)
        took = float(event.get("at") or 0.0) - float(asked.get("at") or 0.0)
        outcome = _cut(str(error)) if error else _said(event)
        return self._row(asked or event, what, outcome, tokens=tokens, seconds=took, mark="bad" if error else "")

    def _tool_started(self, event: Record) -> None:
        self._called[str(event.get("call_id"))] = event

    def _tool_ended(self, event: Record) -> Row:
        started = self._called.pop(str(event.get("call_id")), {})
        status, reason = str(event.get("status")).replace("_", " "), event.get("reason")
        outcome = f"{status} ({reason})" if reason else status
        what = f"  {call_text(str(event.get('tool')), started.get('arguments'))}"
        bad = "" if status == "done" else "bad"
        return self._row(started or event, what, outcome, seconds=float(event.get("seconds") or 0.0), mark=bad)

    def _retried(self, event: Record) -> Row:
        return self._row(event, f"  asked again after {float(event.get('wait_s') or 0):.1f} s", mark="warn")

    def _budget_warned(self, event: Record) -> Row:
        used = f"{event.get('used')} of {event.get('ceiling')}"
        return self._row(event, f"warned: {event.get('budget')}", used, mark="warn")

    def _budget_refused(self, event: Record) -> Row:
        return self._row(event, f"refused: {event.get('budget')}", str(event.get("flag")), mark="bad")

    def _refunded(self, event: Record) -> Row:
        return self._row(event, f"given back: {event.get('amount')} {event.get('budget')}", str(event.get("reason")))

    def _extended(self, event: Record) -> Row:
        return self._row(event, f"extended: {event.get('amount')} {event.get('budget')}", f"by {event.get('by')}")

    def _notice_delivered(self, event: Record) -> Row:
        return self._row(event, f"told by {event.get('rule')}", _cut(str(event.get("text"))), mark="warn")

    def _nudged(self, event: Record) -> Row:
        return self._row(event, "told that it is not done", _cut(str(event.get("text"))), mark="warn")

    def _repeated(self, event: Record) -> Row:
        what = f"repeats {event.get('tool')}, {event.get('times')} times"
        return self._row(event, what, str(event.get("action")), mark="warn")

    def _elided(self, event: Record) -> Row:
        return self._row(event, f"left out {event.get('messages')} old messages", f"{event.get('tokens')} tokens")

    def _asked_person(self, event: Record) -> Row:
        return self._row(event, "asks a person", _cut(str(event.get("text"))), mark="warn")

    def _person_answered(self, event: Record) -> Row:
        approved = event.get("approved")
        return self._row(event, "is answered", "not yet" if approved is None else "yes" if approved else "no")

    def _steered(self, event: Record) -> Row:
        return self._row(event, "is told by its caller", _cut(str(event.get("text"))))

    def _late_result_dropped(self, event: Record) -> Row:
        return self._row(event, f"  {event.get('tool')} came back too late", "dropped", mark="warn")

    def _grace_started(self, event: Record) -> Row:
        return self._row(event, "grace: one last request, without tools", str(event.get("reason")), mark="warn")


def call_text(tool: str, arguments: Any) -> str:
    """A call as one would write it in Python, cut where it is long."""
    given = cast("Record", arguments) if isinstance(arguments, dict) else {}
    text = ", ".join(f"{name}={shown(value)}" for name, value in given.items())
    return _cut(f"{tool}({text})")


def _said(event: Record) -> str:
    calls, finish = event.get("calls"), event.get("finish")
    if calls:
        return f"wants {calls} call{'s' if calls != 1 else ''}"
    return {"stop": "answers", "length": "answers, cut off by its limit", "cut": "cut by us"}.get(
        str(finish), str(finish)
    )


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
