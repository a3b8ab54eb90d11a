"""Result of a run, with the one reason why it ended."""

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
    """Reason why a run ended.

    If several hold, the first in this list wins.
    """

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


@dataclass(slots=True, kw_only=True)
class Result:
    """Full result of a run.

    Not frozen, for speed; treat it as a value.
    """

    stop: Stop
    text: str = ""
    """Answer of the model, or the report of a run that was stopped."""
    output: object = None
    """Typed answer. None if the caller asked for none, or the run has none."""
    stopped_by: str | None = None
    """Origin of a halt: a rule, a callback, `single_turn`, or the caller. None for other ends."""
    flags: tuple[str, ...] = ()
    """One flag per budget that refused a claim, in the order of the first refusals."""
    warning: str | None = None
    """Sentence about the limit that ended the run, or None."""
    turns: int = 0
    requests: int = 0
    """Number of model requests. Refunds do not lower it."""
    messages: Sequence[Message] = ()
    tool_results: Sequence[Outcome] = ()
    last_calls: Sequence[Call] = ()
    """Calls of the model's last turn."""
    usage: Usage = field(default_factory=Usage)
    cost: Mapping[str, int] = field(default_factory=dict[str, int])
    """Billionths of a dollar, by model. Models without a known price are missing."""
    unpriced: tuple[str, ...] = ()
    """Models without a known price that were used. Their cost is not counted, and no money limit applied to it."""
    estimated_requests: int = 0
    """Number of requests without reported usage. Budgets were charged an estimate; `usage` excludes them."""
    budgets: Mapping[str, BudgetSnapshot] = field(default_factory=dict[str, BudgetSnapshot])
    events: Sequence[Event] = ()
    events_dropped: int = 0
    """Number of oldest events that are not kept here."""
    sink_errors: int = 0
    finish: str | None = None
    """Why the model's last reply ended: `stop`, `length` (incomplete), `content_filter`, or `cut` (by Flyball)."""
    hung: int = 0
    """Number of abandoned tool threads that were still running when the run ended."""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values that tools have set."""
    sensitive: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Parameters, by tool, whose values `to_dict` hides."""
    completion: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reflections: Sequence[str] = ()
    faults: Sequence[Mapping[str, str]] = ()
    """Faults of rules: `rule`, `trigger` and `reason`."""
    children: Sequence[Result] = ()
    questions: Sequence[Question] = ()
    """Open questions of a paused run."""
    pause: object = field(default=None, repr=False, compare=False)
    """State that `agent.resume` continues from. Kept in memory only."""
    error: Mapping[str, Any] | None = None
    """Error of a failed run: `code`, `kind` and `message`. None if there was none."""
    run_id: str = ""
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0
    """Seconds that the run took."""

    @property
    def completed(self) -> bool:
        """True if the run ended with an answer to the whole task."""
        return self.stop is Stop.COMPLETED

    @property
    def usage_with_children(self) -> Usage:
        """Return the token usage of this run and all runs below it."""
        return sum((child.usage_with_children for child in self.children), self.usage)

    @property
    def cost_with_children(self) -> dict[str, int]:
        """Return the cost of this run and all runs below it, by model."""
        total = dict(self.cost)
        for child in self.children:
            for model, cost in child.cost_with_children.items():
                total[model] = total.get(model, 0) + cost
        return total

    def raise_for_stop(self) -> None:
        """Raise RunStopped, with this result on it, unless the run completed."""
        if not self.completed:
            raise RunStopped(self.stop.value, self.explain(), self)

    def explain(self) -> str:
        """Explain in plain sentences why the run ended and what would continue it.

        The text includes what the run used of each budget.
        """
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
        money = self.budgets.get("usd")
        if not self.unpriced or money is None or money.ceiling is None:
            return ""
        return f"The money limit did not apply to {', '.join(self.unpriced)}, because the price is not known."

    def to_dict(self) -> dict[str, Any]:
        """Return the Data Machine record with Flyball's own fields, in JSON types."""
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
        secret = self.sensitive.get(tool or "")
        if not secret:
            return arguments
        try:
            values = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
            redacted = {name: "***" if name in secret else value for name, value in values.items()}
        except (AttributeError, TypeError, ValueError):
            return "***"  # unreadable arguments may contain a secret
        return json.dumps(redacted) if isinstance(arguments, str) else redacted

    def _build_completion_record(self) -> dict[str, Any]:
        completion, error = {**_NO_COMPLETION, **self.completion}, self.error or {}
        keys = ("required", "missing", "satisfied", "complete")
        record = {f"completion_assertions_{key}": completion[key] for key in keys}
        record |= {"completion_nudge_count": completion["nudge_count"], "completion_nudge": completion["nudge"]}
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
    Stop.DEADLINE: "It ran out of time",
    Stop.BUDGET: "It reached a limit",
    Stop.HALTED: "It was halted",
    Stop.STALLED: "It stopped making progress",
    Stop.PAUSED: "It waits for a person",
    Stop.UNFINISHED: "The model stopped, but the task is not complete",
    Stop.COMPLETED: "It completed",
}


_NEXT_STEPS = {
    Stop.CONTENDED: "Run it again when the other run has ended.",
    Stop.CANCELLED: "The work done so far is kept.",
    Stop.FAILED: "The work done so far is kept; see the error.",
    Stop.DEADLINE: "More time would let it continue.",
    Stop.BUDGET: "A higher limit would let it continue.",
    Stop.HALTED: "A new run can continue its work.",
    Stop.STALLED: "Another tool, or another task, would help more than a higher limit.",
    Stop.PAUSED: "It continues when its questions are answered.",
    Stop.UNFINISHED: "More nudges, or a clearer task, may help.",
    Stop.COMPLETED: "",
}


_NO_COMPLETION: Mapping[str, Any] = {
    "required": {},
    "missing": (),
    "satisfied": (),
    "complete": None,
    "nudge_count": 0,
    "nudge": None,
}
"""Completion fields of a run that had nothing to prove."""


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
    try:
        return message.to_dict()
    except (MessageError, TypeError):
        # A message whose payload is not JSON must not lose the whole record.
        return {"id": message.id, **to_jsonable(message)}


def _has_refused_turns(result: Result) -> bool:
    turns = result.budgets.get("turns")
    return turns is not None and f"max_{turns.name}_reached" in result.flags
