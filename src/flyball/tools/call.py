"""One call of a tool that was admitted: what is called, with what, and the gate that has its outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .._internal.workers import Worker
from ..budget.deadline import DeadlineToken
from ..budget.run_budget import TurnBudget
from ..outcome import Cancelled, Denied, Failure, Outcome, Reason, Success, Timeout
from ..request import Call
from .context import OutcomeSlot, ToolState
from .excerpt import MAX_CHARACTERS, make_excerpt, serialize_content
from .tool import Tool

_ONE_CALL: Mapping[str, int] = {"tool_calls": 1}


class ToolCallRun:
    """A call that was read, allowed and counted. Whoever makes it closes its gate with exactly one outcome."""

    __slots__ = (
        "answer",
        "call",
        "cap_s",
        "children",
        "deadline",
        "envelope",
        "gate",
        "started_at",
        "state",
        "token",
        "tool",
        "values",
        "worker",
    )  # fmt: skip

    counts: Mapping[str, int] = _ONE_CALL
    """What it takes of budgets that others share."""
    tasks: Sequence[Any] = ()
    """What it hands to children."""

    def __init__(
        self,
        call: Call,
        tool: Tool,
        values: dict[str, Any],
        cap_s: float = math.inf,
        envelope: TurnBudget | None = None,
    ) -> None:
        self.call = call
        self.tool = tool
        self.values = values
        self.cap_s = cap_s
        self.envelope = envelope
        self.answer = ""
        """What a person said to it, who was asked."""
        self.children: tuple[Any, ...] = ()
        """The results of runs that the tool has delegated itself."""
        self.gate = OutcomeSlot(not tool.is_async)
        self.started_at = 0.0
        self.deadline = math.inf
        self.token: DeadlineToken | None = None
        self.state: ToolState | None = None
        self.worker: Worker | None = None

    @property
    def outcome(self) -> Outcome | None:
        """What it came to, or None while it is under way."""
        return self.gate.outcome

    @property
    def ordered_arguments(self) -> dict[str, Any] | None:
        """The arguments in the order of the function's parameters; None where others have described it."""
        return self.values if self.tool.is_ordered else None

    @property
    def redacted_arguments(self) -> dict[str, Any]:
        """The arguments as events, logs and exports may show them."""
        if not self.tool.sensitive:
            return self.values
        return {name: "***" if name in self.tool.sensitive else value for name, value in self.values.items()}

    def start(self, now: float, deadline: float) -> None:
        """It starts now, and has its own seconds, or until the deadline."""
        self.started_at = now
        self.deadline = min(deadline, now + self.cap_s)

    def succeed(self, value: Any, now: float, run_id: str) -> bool:
        """Close it with its value. This and the other ends tell whether they came first; raises what `value` raises."""
        content = serialize_content(value)
        changes = {} if self.state is None else self.state.changes
        call_id, tool, seconds = self.call.id, self.tool.name, now - self.started_at
        outcome = Success.create(call_id, tool, seconds, content, value, changes, self.children)
        if len(content) > MAX_CHARACTERS:
            outcome.content, outcome.artifact = make_excerpt(content, self.idempotency_key(run_id))
        return self.gate.close(outcome)

    def fail(self, error: BaseException, now: float) -> bool:
        """Close it with what it raised."""
        try:
            words = str(error)
        except (Exception, SystemExit):
            words = "an error that cannot be shown"
        return self.gate.close(Failure(kind=type(error).__name__, error=words, **self._outcome_fields(now)))

    def time_out(self, now: float) -> bool:
        """Close it because its time is over."""
        cap_s = round(self.deadline - self.started_at, 3)
        return self.gate.close(Timeout(cap_s=cap_s, hung=self.worker is not None, **self._outcome_fields(now)))

    def cancel(self, now: float) -> bool:
        """Close it because nobody wants it any more."""
        return self.gate.close(Cancelled(hung=self.worker is not None, **self._outcome_fields(now)))

    def deny(self, reason: Reason, message: str, now: float) -> bool:
        """Close it without having made it."""
        return self.gate.close(Denied(reason=reason, message=message, **self._outcome_fields(now)))

    def idempotency_key(self, run_id: str) -> str:
        """The same when this call is made again after a crash, and in no other call."""
        return f"{run_id}:{self.call.id}"

    def _outcome_fields(self, now: float) -> dict[str, Any]:
        header = {"call_id": self.call.id, "tool": self.tool.name, "seconds": now - self.started_at}
        return {**header, "children": self.children} if self.children else header
