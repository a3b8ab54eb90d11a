"""Events of a run; `docs/events.md` draws the tree.

Every event has a sequence number, the seconds since the run started, the turn, and the header of its run (ids and the
caller's metadata), which all events of the run share.
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
"""Types that JSON takes as they are. A string may have lone surrogates, and a float may be NaN."""


@dataclass(slots=True, unsafe_hash=True)
class Header:
    """Fields that all events of a run share.

    Not frozen, for speed; treat it as a value.
    """

    run_id: str
    session_id: str | None = None
    started_at: float = 0.0
    """Seconds since the epoch."""
    metadata: Mapping[str, Any] | None = None
    """Metadata from the caller (job id, flow step, agent, mode), repeated on every event."""
    parent_run_id: str | None = None
    """Id of the run that delegated this one. None for a run without parent."""


@dataclass(slots=True)
class Event:
    """Base class of all events.

    Not frozen, for speed; sinks must not modify it.
    """

    kind: ClassVar[str]
    seq: int
    """Number among the recorded events of the run, from 0. Streamed events have a counter of their own: -1, -2, …"""
    at: float
    """Seconds since the run started."""
    turn: int
    header: Header

    def to_dict(self) -> dict[str, Any]:
        """Return the event in JSON types, as `event_schema()` describes it."""
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
    """The run started. Always the first event."""

    kind = "run_started"
    limits: Mapping[str, Any]
    agent: str | None
    """Name of the agent. None for a governed run."""


@dataclass(slots=True)
class RunEnded(Event):
    """The run ended. Always the last event, exactly once."""

    kind = "run_ended"
    stop: str
    stopped_by: str | None
    flags: tuple[str, ...]
    turns: int
    requests: int
    budgets: Mapping[str, Any]
    """Snapshot of each budget at the end, by name."""


@dataclass(slots=True)
class TurnStarted(Event):
    """A turn was claimed."""

    kind = "turn_started"


@dataclass(slots=True)
class TurnEnded(Event):
    """A turn ended, with all its calls."""

    kind = "turn_ended"


@dataclass(slots=True)
class ModelRequested(Event):
    """A request was sent to a model."""

    kind = "model_requested"
    purpose: str
    model: str | None
    provider: str | None
    messages: int
    estimated_tokens: int
    tools: tuple[str, ...]
    attempt: int
    size: int
    """Estimated bytes."""
    timeout_s: float | None
    """Seconds. None means no timeout."""
    server: str | None = None
    """Host and port of the server. None if the model is not asked over a network."""


@dataclass(slots=True)
class ModelReplied(Event):
    """A model request was answered, or failed."""

    kind = "model_replied"
    purpose: str
    finish: str | None
    input_tokens: int
    output_tokens: int
    calls: int
    error: str | None
    code: str | None
    """Stable code of the error. None if the model answered."""
    cached_tokens: int
    """Part of the input tokens."""
    reasoning_tokens: int
    """Part of the output tokens."""
    estimated: bool
    """True if the provider reported no usage, so that budgets were charged an estimate. The token fields hold reported
    usage only."""
    reply_model: str | None = None
    """Model that answered, as the provider names it. None if it named none."""
    reply_id: str | None = None
    """Id that the provider gave the reply. None if it gave none."""


@dataclass(slots=True)
class Settled(Event):
    """A request of a program under a gateway was settled: what budgets count for it."""

    kind = "settled"
    purpose: str
    conversation: str
    model: str | None
    tokens: int
    usd: float | None
    """Dollars. None if the price is not known."""
    estimated: bool
    """True if the provider reported no usage."""


@dataclass(slots=True)
class Delta(Event):
    """A piece of streamed text arrived. Sent to sinks, never kept."""

    kind = "delta"
    text: str


@dataclass(slots=True)
class Retried(Event):
    """A request failed and will be repeated after a wait."""

    kind = "retried"
    attempt: int
    wait_s: float
    """Seconds until the next attempt."""
    error: str


@dataclass(slots=True)
class FellBack(Event):
    """A model failed, and another one of the agent is asked from now on."""

    kind = "fell_back"
    model: str
    """Name of the model that failed."""
    to: str
    """Name of the model that is asked now."""
    code: str
    """Stable code of the error."""
    error: str
    wait_s: float
    """Seconds until the next attempt: 0 unless all models have failed in a row."""


@dataclass(slots=True)
class ToolStarted(Event):
    """A tool call started."""

    kind = "tool_started"
    call_id: str
    tool: str
    arguments: Mapping[str, Any] | None


@dataclass(slots=True)
class ToolReported(Event):
    """A tool reported progress. Sent to sinks, never kept."""

    kind = "tool_reported"
    call_id: str
    tool: str
    text: str


STREAMED: tuple[type[Event], ...] = (Delta, ToolReported)
"""Events for live sinks only. They are not kept, and counted apart, because a replayed run has none."""


@dataclass(slots=True)
class ToolEnded(Event):
    """A tool call has its outcome."""

    kind = "tool_ended"
    call_id: str
    tool: str
    status: str
    reason: str | None
    seconds: float


@dataclass(slots=True)
class LateResultDropped(Event):
    """A tool returned after its call had ended. Its result was dropped."""

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
    forecast: str | None = None
    """Limit that will be met first, by name. None if it is not known, or if the run has no sink."""
    turns_left: int | None = None
    """Turns until then, about. None if it is not known."""


@dataclass(slots=True)
class BudgetRefused(Event):
    """A budget, or the deadline, refused a claim for the first time."""

    kind = "budget_refused"
    budget: str
    flag: str
    remedy: str = ""
    """Options that raise the limit, such as `Limits(turns=16)`. Empty if unknown."""
    is_shared: bool = False
    """True if the limit is that of a shared budget or of the parent run, not the run's own."""


@dataclass(slots=True)
class Refunded(Event):
    """An amount was refunded to a budget."""

    kind = "refunded"
    budget: str
    amount: int
    reason: str


@dataclass(slots=True)
class Extended(Event):
    """The ceiling of a budget was raised."""

    kind = "extended"
    budget: str
    amount: int
    by: str
    maximum: int | None = None
    """Highest ceiling allowed, if it allowed less than was asked for. None otherwise."""


@dataclass(slots=True)
class CountSet(Event):
    """The count of a budget was set to another value."""

    kind = "count_set"
    budget: str
    amount: int
    """Difference to the earlier count."""
    used: int


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
    """A rule emitted its own event, or wrote to the log."""

    kind = "rule_emitted"
    rule: str
    name: str
    data: Mapping[str, Any]


@dataclass(slots=True)
class RuleFailed(Event):
    """A rule failed. The run continued."""

    kind = "rule_failed"
    rule: str
    trigger: str
    reason: str


@dataclass(slots=True)
class Nudged(Event):
    """The model was asked to continue because the task is not complete."""

    kind = "nudged"
    text: str
    missing: tuple[str, ...]
    satisfied: tuple[str, ...]
    count: int


@dataclass(slots=True)
class CompletionChecked(Event):
    """The completion policy was evaluated."""

    kind = "completion_checked"
    complete: bool
    missing: tuple[str, ...]
    satisfied: tuple[str, ...]


@dataclass(slots=True)
class ResultReplaced(Event):
    """A hook showed the model another text as the result of a call."""

    kind = "result_replaced"
    call_id: str
    tool: str
    by: str


@dataclass(slots=True)
class RequiredToolsUnavailable(Event):
    """The run ends before any request, because it cannot complete without tools that it does not have."""

    kind = "required_tools_unavailable"
    tools: tuple[str, ...]
    offered: tuple[str, ...]


@dataclass(slots=True)
class Repeated(Event):
    """A call, or a cycle of calls, was repeated."""

    kind = "repeated"
    tool: str
    period: int
    times: int
    action: str


@dataclass(slots=True)
class Reflected(Event):
    """The model wrote a reflection."""

    kind = "reflected"
    text: str


@dataclass(slots=True)
class Elided(Event):
    """Old messages were dropped from later requests."""

    kind = "elided"
    messages: int
    tokens: int


@dataclass(slots=True)
class Steered(Event):
    """A message was added to the running run."""

    kind = "steered"
    text: str


@dataclass(slots=True)
class GraceStarted(Event):
    """A limit was reached and the grace turn, without tools, started."""

    kind = "grace_started"
    reason: str


@dataclass(slots=True)
class GraceEnded(Event):
    """The grace turn ended."""

    kind = "grace_ended"
    reported: bool
    unsupported: tuple[str, ...] = ()
    """Claims of the report that no outcome supports."""


@dataclass(slots=True)
class ChildStarted(Event):
    """A child run started."""

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
class ChildrenPaused(Event):
    """No more child runs start until they are resumed."""

    kind = "children_paused"
    by: str


@dataclass(slots=True)
class ChildrenResumed(Event):
    """Child runs may start again."""

    kind = "children_resumed"
    by: str


@dataclass(slots=True)
class AskedPerson(Event):
    """The run asked a person and waits for the answer."""

    kind = "asked_person"
    question_id: str
    text: str


@dataclass(slots=True)
class PersonAnswered(Event):
    """A person answered."""

    kind = "person_answered"
    question_id: str
    approved: bool | None
    """None means that there is no answer yet, and the run pauses."""
    text: str


def event_types() -> dict[str, type[Event]]:
    """Return every event class by its kind."""
    return {kind.kind: kind for kind in Event.__subclasses__()}


@cache
def _own_field_names(kind: type[Event]) -> tuple[str, ...]:
    return tuple([field.name for field in own_fields(kind)])


def own_fields(kind: type[Event]) -> Iterator[Any]:
    """Return the fields that an event class adds to those of `Event`."""
    shared = {field.name for field in fields(Event)}
    return (field for field in fields(kind) if field.name not in shared)


_HEADER_SCHEMA: dict[str, Any] = {
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
    """Return the JSON schema of all events, one shape per kind."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Flyball event",
        "oneOf": [_build_event_schema(kind) for _, kind in sorted(event_types().items())],
    }


def _build_event_schema(kind: type[Event]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    own = {field.name: _build_type_schema(hints[field.name]) for field in own_fields(kind)}
    seq = {"type": "integer", "maximum": -1} if kind in STREAMED else {"type": "integer", "minimum": 0}
    properties = {"event": {"const": kind.kind}, "seq": seq, **_HEADER_SCHEMA, **own}
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
