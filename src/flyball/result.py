"""The result of a run: what it gave, what it used, and the one reason why it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ._internal.jsonable import to_jsonable
from .budget.snapshot import BudgetSnapshot
from .budget.usage import Usage
from .errors import MessageError, RunStopped
from .event import Event, ModelRequested
from .message import Message
from .outcome import Outcome
from .person import Question
from .request import Call
from .unit import Unit


class Stop(StrEnum):
    """Why a run ended. Where several reasons hold, the first in this list is the one."""

    CONTENDED = "contended"
    CANCELLED = "cancelled"
    FAILED = "failed"
    DEADLINE = "deadline"
    BUDGET = "budget"
    HALTED = "halted"
    STALLED = "stalled"
    PAUSED = "paused"
    UNFINISHED = "unfinished"
    COMPLETED = "completed"


_STATUS = {
    Stop.CONTENDED: "transcript_lock_contention",
    Stop.CANCELLED: "interrupted",
    Stop.FAILED: "error",
    Stop.DEADLINE: "budget_exceeded",
    Stop.BUDGET: "budget_exceeded",
    Stop.HALTED: "incomplete",
    Stop.STALLED: "stalled",
    Stop.PAUSED: "approval_required",
    Stop.UNFINISHED: "incomplete",
    Stop.COMPLETED: "completed",
}

_REASONS = {
    Stop.CONTENDED: "Another run holds the session",
    Stop.CANCELLED: "It was cancelled",
    Stop.FAILED: "It failed",
    Stop.DEADLINE: "Its time was over",
    Stop.BUDGET: "It met a limit",
    Stop.HALTED: "It was halted",
    Stop.STALLED: "It made no progress any more",
    Stop.PAUSED: "It waits for a person",
    Stop.UNFINISHED: "The model ended, but the task is not complete",
    Stop.COMPLETED: "It completed",
}

_NO_COMPLETION: Mapping[str, Any] = {
    "required": {},
    "missing": (),
    "satisfied": (),
    "complete": None,
    "nudge_count": 0,
    "nudge": None,
}
"""What the record says about completion where nothing had to be proved."""

_NEXT_STEPS = {
    Stop.CONTENDED: "Run it again when the other run has ended.",
    Stop.CANCELLED: "What was done so far is kept.",
    Stop.FAILED: "What was done so far is kept; see the error.",
    Stop.DEADLINE: "More time would let it go on.",
    Stop.BUDGET: "A higher limit would let it go on.",
    Stop.HALTED: "Whoever halted it can let it go on.",
    Stop.STALLED: "Another tool, or another task, would help more than a higher limit.",
    Stop.PAUSED: "An answer lets it go on.",
    Stop.UNFINISHED: "More nudges, or a clearer task, may help.",
    Stop.COMPLETED: "",
}


@dataclass(slots=True, kw_only=True)
class Result:
    """All there is to know about a run that has ended. Not frozen, for speed; treat it as a value."""

    stop: Stop
    text: str = ""
    """The answer, or the report of a run that was stopped."""
    output: object = None
    """The typed answer, where one was asked for."""
    stopped_by: str | None = None
    """Who halted it: a rule, a callback, `single_turn`, or the caller."""
    flags: tuple[str, ...] = ()
    """A flag for every budget that refused a claim, in the order of first refusal."""
    warning: str | None = None
    """The sentence about the limit that ended it."""
    turns: int = 0
    requests: int = 0
    """How often a model was asked: a fact that no refund lowers."""
    messages: Sequence[Message] = ()
    tool_results: Sequence[Outcome] = ()
    last_calls: Sequence[Call] = ()
    """What the model asked for in its last turn."""
    usage: Usage = field(default_factory=Usage)
    cost: Mapping[str, int] = field(default_factory=dict[str, int])
    """Billionths of a dollar, by model; of those that have a price."""
    unpriced: tuple[str, ...] = ()
    """The models that were asked though nobody knows their price: what they cost is in no count, and met no limit."""
    estimated_requests: int = 0
    """Of how many requests nobody told what they used: an estimate is booked for them, and `usage` is without them."""
    budgets: Mapping[str, BudgetSnapshot] = field(default_factory=dict[str, BudgetSnapshot])
    events: Sequence[Event] = ()
    events_dropped: int = 0
    """How many of the oldest events are not kept here."""
    sink_errors: int = 0
    finish: str | None = None
    """Why the model's last reply ended: `stop`, `length` (it is not whole), `content_filter`, `cut` (by us)."""
    hung: int = 0
    """How many tools were given up in a thread and had not come back when the run ended."""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What tools have set."""
    sensitive: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The parameters, by tool, whose values `to_dict` does not show."""
    completion: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reflections: Sequence[str] = ()
    faults: Sequence[Mapping[str, str]] = ()
    """What went wrong in rules: `rule`, `trigger` and `reason`."""
    children: Sequence[Result] = ()
    questions: Sequence[Question] = ()
    """What a paused run waits for."""
    pause: object = field(default=None, repr=False, compare=False)
    """What `agent.resume` goes on from; kept in memory only."""
    error: Mapping[str, Any] | None = None
    """What failed: `code`, `kind` and `message`."""
    run_id: str = ""
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0

    @property
    def completed(self) -> bool:
        """Whether it ended with an answer to the whole task."""
        return self.stop is Stop.COMPLETED

    @property
    def usage_with_children(self) -> Usage:
        """The tokens of this run and of all runs below it."""
        return sum((child.usage_with_children for child in self.children), self.usage)

    @property
    def cost_with_children(self) -> dict[str, int]:
        """The same for what they cost, by model."""
        total = dict(self.cost)
        for child in self.children:
            for model, cost in child.cost_with_children.items():
                total[model] = total.get(model, 0) + cost
        return total

    def raise_for_stop(self) -> None:
        """Do nothing for a completed run, else raise RunStopped with this result on it."""
        if not self.completed:
            raise RunStopped(self.stop.value, self.explain(), self)

    def explain(self) -> str:
        """Why it ended, what was used of what, and what would let it go on; in plain sentences."""
        why = _REASONS[self.stop]
        if self.stop is Stop.HALTED and self.stopped_by:
            why = f"{why} by {self.stopped_by}"
        if self.stop in (Stop.CONTENDED, Stop.BUDGET, Stop.DEADLINE, Stop.STALLED) and self.warning:
            why = f"{why}: {self.warning.removesuffix('.')}"
        if self.error:
            why = f"{why} ({self.error.get('message')})"
        used = [
            _format_used(name, snapshot) for name, snapshot in self.budgets.items() if snapshot.used and name != "depth"
        ]
        spent = f"It used {', '.join(used)} in {Unit.SECONDS.show(round(self.seconds, 1))}." if used else ""
        return " ".join(part for part in (f"{why}.", spent, self._explain_unpriced(), _NEXT_STEPS[self.stop]) if part)

    def _explain_unpriced(self) -> str:
        """That a money limit did not hold, where that is so."""
        money = self.budgets.get("usd")
        if not self.unpriced or money is None or money.ceiling is None:
            return ""
        return f"The money limit did not hold for {', '.join(self.unpriced)}: nobody knows the price."

    def to_dict(self) -> dict[str, Any]:
        """Return the Data Machine record and our own fields, as JSON types."""
        return to_jsonable({**self._build_data_machine_record(), **self._build_own_record()})

    def _build_data_machine_record(self) -> dict[str, Any]:
        return {
            "messages": [self._redact_message(_message_to_dict(message)) for message in self.messages],
            "final_content": self.text,
            "turn_count": self.turns,
            "completed": self.completed,
            "status": _STATUS[self.stop],
            "last_tool_calls": [
                {"id": call.id, "name": call.name, "arguments": self._redact_arguments(call.name, call.arguments)}
                for call in self.last_calls
            ],
            "tool_execution_results": [outcome.to_dict() for outcome in self.tool_results],
            "usage": self.usage,
            "request_metadata": [
                _describe_request(event) for event in self.events if isinstance(event, ModelRequested)
            ],
            "max_turns_reached": _has_refused_turns(self),
            "warning": self.warning,
            "error": self.error,
            "error_code": None if self.error is None else self.error.get("code"),
            **self._build_completion_record(),
        }

    def _redact_message(self, message: dict[str, Any]) -> dict[str, Any]:
        payload: dict[str, Any] = message.get("payload") or {}
        if self.sensitive and "arguments" in payload:
            payload["arguments"] = self._redact_arguments(payload.get("name"), payload["arguments"])
        return message

    def _redact_arguments(self, tool: str | None, arguments: Any) -> Any:
        """The arguments as they may be shown; what cannot be read of a tool with secrets is not shown at all."""
        secret = self.sensitive.get(tool or "")
        if not secret:
            return arguments
        try:
            given = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
            shown = {name: "***" if name in secret else value for name, value in given.items()}
        except (AttributeError, TypeError, ValueError):
            return "***"
        return json.dumps(shown) if isinstance(arguments, str) else shown

    def _build_completion_record(self) -> dict[str, Any]:
        """The completion_* fields, and those of a run whose tools could not prove what they must."""
        found, error = {**_NO_COMPLETION, **self.completion}, self.error or {}
        keys = ("required", "missing", "satisfied", "complete")
        record = {f"completion_assertions_{key}": found[key] for key in keys}
        record |= {"completion_nudge_count": found["nudge_count"], "completion_nudge": found["nudge"]}
        names = ("completion_assertions_required", "unavailable_required_tool_names", "available_tool_names")
        return record | {name: error[name] for name in names if name in error}

    def _build_own_record(self) -> dict[str, Any]:
        return {
            "stop": self.stop.value,
            "stopped_by": self.stopped_by,
            "flags": list(self.flags),
            "text": self.text,
            "output": self.output,
            "turns": self.turns,
            "requests": self.requests,
            "seconds": self.seconds,
            "cost_usd": {model: Unit.USD.outer(cost) for model, cost in self.cost.items()},
            "unpriced": list(self.unpriced),
            "estimated_requests": self.estimated_requests,
            "budgets": {name: snapshot.to_dict() for name, snapshot in self.budgets.items()},
            "completion": self.completion,
            "reflections": self.reflections,
            "faults": self.faults,
            "children": [child.to_dict() for child in self.children],
            "usage_with_children": self.usage_with_children,
            "cost_usd_with_children": {name: Unit.USD.outer(cost) for name, cost in self.cost_with_children.items()},
            "questions": self.questions,
            "events": [event.to_dict() for event in self.events],
            "events_dropped": self.events_dropped,
            "sink_errors": self.sink_errors,
            "finish": self.finish,
            "hung": self.hung,
            "state": self.state,
            "run_id": self.run_id,
            "session_id": self.session_id,
            "metadata": self.metadata,
            "explanation": self.explain(),
        }


def _describe_request(event: ModelRequested) -> dict[str, Any]:
    mode = (event.header.metadata or {}).get("mode")
    return {
        "provider": event.provider,
        "model": event.model,
        "mode": mode,
        "purpose": event.purpose,
        "turn": event.turn,
        "bytes": event.size,
        "message_count": event.messages,
        "tool_count": len(event.tools),
        "estimated_tokens": event.estimated_tokens,
        "timeout_s": event.timeout_s,
        "attempt": event.attempt,
    }


def _format_used(name: str, snapshot: BudgetSnapshot) -> str:
    show = snapshot.unit.show
    amount = show(snapshot.used) if snapshot.ceiling is None else f"{show(snapshot.used)} of {show(snapshot.ceiling)}"
    return amount if snapshot.unit is Unit.USD else f"{amount} {name.replace('_', ' ')}"


def _message_to_dict(message: Message) -> dict[str, Any]:
    """A message that somebody filled with what is no JSON must not lose the whole record."""
    try:
        return message.to_dict()
    except (MessageError, TypeError):
        return {"id": message.id, **to_jsonable(message)}


def _has_refused_turns(result: Result) -> bool:
    turns = result.budgets.get("turns")
    return turns is not None and f"max_{turns.name}_reached" in result.flags
