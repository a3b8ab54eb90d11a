"""What happened in a run, event by event; `docs/events.md` draws the tree.

Every event has its sequence number, the seconds since the run began, the turn, and the run's own header (ids and the
caller's metadata), which all of its events share.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar

from ._internal.jsonable import to_jsonable

_UNCHANGED_TYPES = frozenset({int, bool, type(None)})
"""What is written as it is; a text may have halves of characters, and a float be none."""


@dataclass(slots=True, unsafe_hash=True)
class Header:
    """What all events of a run share. Not frozen, for speed; treat it as a value."""

    run_id: str
    session_id: str | None = None
    started_at: float = 0.0
    """Seconds since the epoch."""
    metadata: Mapping[str, Any] | None = None
    """What the caller gave (job id, flow step, agent, mode): it comes back on every event."""
    parent_run_id: str | None = None
    """The run that has delegated this one."""


@dataclass(slots=True)
class Event:
    """One thing that happened. Not frozen, for speed: nobody but its maker may write to it."""

    kind: ClassVar[str]
    seq: int
    at: float
    turn: int
    header: Header

    def to_dict(self) -> dict[str, Any]:
        """The same in JSON types, as `schema.event_schema()` describes it."""
        header = self.header
        row = {
            "event": self.kind,
            "seq": self.seq,
            "time": datetime.fromtimestamp(header.started_at + self.at, UTC).isoformat(),
            "at": self.at,
            "turn": self.turn,
            "run_id": header.run_id,
            "parent_run_id": header.parent_run_id,
            "session_id": header.session_id,
            "metadata": to_jsonable(header.metadata) if header.metadata else header.metadata,
        }
        for name in _own_field_names(type(self)):
            value = getattr(self, name)
            row[name] = value if type(value) in _UNCHANGED_TYPES else to_jsonable(value)
        return row


@dataclass(slots=True)
class RunStarted(Event):
    """The run began; the first event."""

    kind = "run_started"
    limits: Mapping[str, Any]
    agent: str | None
    """Its name; a governed run has none."""


@dataclass(slots=True)
class RunEnded(Event):
    """The run ended; the last event, exactly one."""

    kind = "run_ended"
    stop: str
    stopped_by: str | None
    flags: tuple[str, ...]
    turns: int
    requests: int
    budgets: Mapping[str, Any]
    """What each budget is at the end, by name."""


@dataclass(slots=True)
class TurnStarted(Event):
    """A turn was claimed."""

    kind = "turn_started"


@dataclass(slots=True)
class TurnEnded(Event):
    """The turn is over, with all its calls."""

    kind = "turn_ended"


@dataclass(slots=True)
class ModelRequested(Event):
    """A model is asked."""

    kind = "model_requested"
    purpose: str
    model: str | None
    provider: str | None
    messages: int
    estimated_tokens: int
    tools: tuple[str, ...]
    attempt: int
    size: int
    """An estimate of its bytes."""
    timeout_s: float | None


@dataclass(slots=True)
class ModelReplied(Event):
    """The model answered, or failed to."""

    kind = "model_replied"
    purpose: str
    finish: str | None
    input_tokens: int
    output_tokens: int
    calls: int
    error: str | None
    code: str | None
    """The code of the error: a few words that do not change, for counting."""
    cached_tokens: int
    """Part of the input."""
    reasoning_tokens: int
    """Part of the output."""
    estimated: bool
    """Whether nobody told what it used, so that an estimate is booked; the tokens here are only what was told."""


@dataclass(slots=True)
class Delta(Event):
    """A piece of text as it streams in; passed on, never kept."""

    kind = "delta"
    text: str


@dataclass(slots=True)
class Retried(Event):
    """A request failed and will be asked again after a wait."""

    kind = "retried"
    attempt: int
    wait_s: float
    error: str


@dataclass(slots=True)
class ToolStarted(Event):
    """A call began."""

    kind = "tool_started"
    call_id: str
    tool: str
    arguments: Mapping[str, Any] | None


@dataclass(slots=True)
class ToolReported(Event):
    """A tool told how far it is; passed on, never kept."""

    kind = "tool_reported"
    call_id: str
    tool: str
    text: str


@dataclass(slots=True)
class ToolEnded(Event):
    """A call has its outcome."""

    kind = "tool_ended"
    call_id: str
    tool: str
    status: str
    reason: str | None
    seconds: float


@dataclass(slots=True)
class LateResultDropped(Event):
    """A call ended after it had been declared dead; its result changes nothing."""

    kind = "late_result_dropped"
    call_id: str
    tool: str


@dataclass(slots=True)
class BudgetWarned(Event):
    """A budget is nearly used up."""

    kind = "budget_warned"
    budget: str
    used: int
    ceiling: int


@dataclass(slots=True)
class BudgetRefused(Event):
    """A budget, or the time, refused a claim for the first time."""

    kind = "budget_refused"
    budget: str
    flag: str


@dataclass(slots=True)
class Refunded(Event):
    """A budget got something back."""

    kind = "refunded"
    budget: str
    amount: int
    reason: str


@dataclass(slots=True)
class Extended(Event):
    """A ceiling was raised."""

    kind = "extended"
    budget: str
    amount: int
    by: str


@dataclass(slots=True)
class Postponed(Event):
    """The deadline was moved."""

    kind = "postponed"
    seconds: float
    reason: str


@dataclass(slots=True)
class NoticeDelivered(Event):
    """A rule's notice was shown to the model."""

    kind = "notice_delivered"
    rule: str
    text: str
    category: str
    priority: str


@dataclass(slots=True)
class RuleEmitted(Event):
    """A rule told an event of its own, or wrote to the log (`log.info` and so on)."""

    kind = "rule_emitted"
    rule: str
    name: str
    data: Mapping[str, Any]


@dataclass(slots=True)
class RuleFailed(Event):
    """A rule could not do what it says; the run goes on."""

    kind = "rule_failed"
    rule: str
    trigger: str
    reason: str


@dataclass(slots=True)
class Nudged(Event):
    """The model was told that the task is not complete."""

    kind = "nudged"
    text: str
    missing: tuple[str, ...]
    satisfied: tuple[str, ...]
    count: int


@dataclass(slots=True)
class CompletionChecked(Event):
    """The completion policy was asked."""

    kind = "completion_checked"
    complete: bool
    missing: tuple[str, ...]
    satisfied: tuple[str, ...]


@dataclass(slots=True)
class Repeated(Event):
    """The same call came again, or a loop of calls did."""

    kind = "repeated"
    tool: str
    period: int
    times: int
    action: str


@dataclass(slots=True)
class Reflected(Event):
    """A reflection was made."""

    kind = "reflected"
    text: str


@dataclass(slots=True)
class Elided(Event):
    """Old messages were left out of the requests to come."""

    kind = "elided"
    messages: int
    tokens: int


@dataclass(slots=True)
class Steered(Event):
    """Somebody put a message in while the run was going on."""

    kind = "steered"
    text: str


@dataclass(slots=True)
class GraceStarted(Event):
    """A limit is reached: the last turn, without tools, begins."""

    kind = "grace_started"
    reason: str


@dataclass(slots=True)
class GraceEnded(Event):
    """The last turn is over."""

    kind = "grace_ended"
    reported: bool


@dataclass(slots=True)
class ChildStarted(Event):
    """A child run began."""

    kind = "child_started"
    child_id: str
    agent: str


@dataclass(slots=True)
class ChildEnded(Event):
    """A child run ended."""

    kind = "child_ended"
    child_id: str
    agent: str
    stop: str


@dataclass(slots=True)
class AskedPerson(Event):
    """The run waits for a person."""

    kind = "asked_person"
    question_id: str
    text: str


@dataclass(slots=True)
class PersonAnswered(Event):
    """A person answered."""

    kind = "person_answered"
    question_id: str
    approved: bool | None
    """None where nobody has answered: the run pauses."""
    text: str


def event_types() -> dict[str, type[Event]]:
    """Every kind of event, by name."""
    return {kind.kind: kind for kind in Event.__subclasses__()}


@cache
def _own_field_names(kind: type[Event]) -> tuple[str, ...]:
    return tuple([field.name for field in own_fields(kind)])


def own_fields(kind: type[Event]) -> Iterator[Any]:
    """The fields that only this kind of event has."""
    shared = {field.name for field in fields(Event)}
    return (field for field in fields(kind) if field.name not in shared)


_HEADER_SCHEMA: dict[str, Any] = {
    "seq": {"type": "integer", "minimum": 0},
    "time": {"type": "string", "format": "date-time"},
    "at": {"type": "number", "minimum": 0},
    "turn": {"type": "integer", "minimum": 0},
    "run_id": {"type": "string"},
    "parent_run_id": {"type": ["string", "null"]},
    "session_id": {"type": ["string", "null"]},
    "metadata": {"type": ["object", "null"]},
}
_JSON_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def event_schema() -> dict[str, Any]:
    """One shape for each kind of event."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Flyball event",
        "oneOf": [_build_event_schema(kind) for _, kind in sorted(event_types().items())],
    }


def _build_event_schema(kind: type[Event]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    own = {field.name: _build_type_schema(hints[field.name]) for field in own_fields(kind)}
    properties = {"event": {"const": kind.kind}, **_HEADER_SCHEMA, **own}
    return {
        "title": kind.kind,
        "description": (kind.__doc__ or "").strip(),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _build_type_schema(hint: Any) -> dict[str, Any]:
    if hint in _JSON_TYPES:
        return {"type": _JSON_TYPES[hint]}
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _build_type_schema(arguments[0])}
    if type(None) in arguments:
        inner = [_build_type_schema(argument)["type"] for argument in arguments]
        return {"type": inner}
    return {"type": "object"}


if __name__ == "__main__":
    print(json.dumps(event_schema(), indent=2))  # noqa: T201
