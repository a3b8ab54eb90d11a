"""State of one admitted tool call: its arguments, deadline and outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from pydantic_core import to_json

from .._internal.jsonable import copy_arguments
from .._internal.text import redact_arguments
from .._internal.workers import Worker
from ..budget.deadline import DeadlineToken
from ..budget.run_budget import TurnBudget
from ..chain.caller import Position
from ..outcome import Artifact, Cancelled, Denied, Failure, Reason, Success, Timeout
from ..request import Call
from .context import OutcomeSlot, ToolState
from .definition import Tool
from .excerpt import make_excerpt, serialize_content
from .returned import PLAIN_RESULTS, FinalResult, reports_failure
from .signature import PLAIN_TYPES

_ONE_CALL: Mapping[str, int] = {"tool_calls": 1}
_MAX_KIND = 200
"""Maximum length of the name of an exception class."""


class ToolCallRun(OutcomeSlot):
    """Tool call that was parsed, allowed and counted.

    The runner closes it with exactly one outcome. The closing methods (`succeed`, `fail`, `time_out`, `cancel`, `deny`)
    return True if theirs was the first.
    """

    # No slots: most calls need few of these, and a default of the class costs nothing.
    counts: Mapping[str, int] = _ONE_CALL
    """Units that the call claims from shared budgets, by budget name."""
    tasks: Sequence[Any] = ()
    """Tasks that the call delegates to child runs."""
    in_background: bool = False
    """True if the call is done when its child runs have started."""
    answer = ""
    """Answer of the person who was asked about the call."""
    children: tuple[Any, ...] = ()
    """Results of child runs that the tool started itself."""
    started_at = 0.0
    deadline = math.inf
    token: DeadlineToken | None = None
    state: ToolState | None = None
    worker: Worker | None = None
    run_position: Position
    """Position of the run that makes the call. Set by its runner."""

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
        self.outcome = None
        self._lock = None if tool.is_async else Lock()
        self._has_plain_values = tool.has_plain_values or PLAIN_TYPES.issuperset(map(type, values.values()))

    @property
    def position(self) -> Position:
        """Place of the call in a chain of services."""
        here = self.run_position
        return Position(here.caller, here.chain, here.run_id, self.envelope, self.deadline, here.clock)

    @property
    def canonical_arguments(self) -> bytes | None:
        """Return a text that is equal for equal arguments.

        None if the arguments have no fixed order: they are nested, or described by a foreign schema.
        """
        if not self.tool.is_ordered or not self._has_plain_values:
            return None
        try:
            return to_json(self.values)
        except ValueError:  # a lone surrogate
            return None

    @property
    def redacted_arguments(self) -> dict[str, Any]:
        """Return a copy of the arguments with sensitive values replaced by `***`.

        The tool may change a list or a table that it receives. Events keep what was asked.
        """
        sensitive, values = self.tool.sensitive, self.values
        if self._has_plain_values and not sensitive:  # nothing to copy, and nothing to hide
            return values
        return copy_arguments(redact_arguments(values, sensitive) if sensitive else values)

    def start(self, now: float, deadline: float) -> None:
        """Set the start time and the deadline.

        The tool's own timeout may shorten the deadline.
        """
        self.started_at = now
        own = now + self.cap_s
        self.deadline = own if own < deadline else deadline

    def succeed(self, value: Any, now: float, run_id: str) -> bool:
        """Close the call with its value, or as failed if the value says so.

        Raises:
            TypeError: the value cannot be serialized.
        """
        tool, ends_run = self.tool, self.tool.ends_run
        if type(value) not in PLAIN_RESULTS:
            if type(value) is FinalResult:
                ends_run, value = True, value.value
            if not tool.result_is_data and reports_failure(value):
                return self._close_failed("UnsuccessfulResult", serialize_content(value), now, run_id)
        content = serialize_content(value)
        outcome = Success.create(self.call.id, tool.name, now - self.started_at, content, value, ends_run)
        if self.state is not None:
            outcome.changes = self.state.changes
        if self.children:
            outcome.children = self.children
        if len(content) > tool.max_result_characters:
            outcome.content, outcome.artifact = self._make_excerpt(content, run_id)
        return self.close(outcome)

    def fail(self, error: BaseException, now: float, run_id: str) -> bool:
        """Close the call with the exception that the tool raised."""
        try:
            message = serialize_content(str(error))
        except (Exception, SystemExit):
            message = "the error has no readable message"
        return self._close_failed(type(error).__name__[:_MAX_KIND], message, now, run_id)

    def _close_failed(self, kind: str, message: str, now: float, run_id: str) -> bool:
        outcome = Failure(kind=kind, error=message, **self._outcome_fields(now))
        if len(message) > self.tool.max_result_characters:
            outcome.error, outcome.artifact = self._make_excerpt(message, run_id)
            outcome.whole_error = message
        return self.close(outcome)

    def _make_excerpt(self, content: str, run_id: str) -> tuple[str, Artifact | None]:
        tool = self.tool
        return make_excerpt(content, self.idempotency_key(run_id), tool.max_result_characters, tool.excerpt)

    def time_out(self, now: float, hung: bool = False) -> bool:
        """Close the call as timed out. `hung` says that an `async def` tool ignores its cancellation."""
        cap_s = round(self.deadline - self.started_at, 3)
        return self.close(Timeout(cap_s=cap_s, hung=hung or self.worker is not None, **self._outcome_fields(now)))

    def cancel(self, now: float, hung: bool = False) -> bool:
        """Close the call as cancelled."""
        return self.close(Cancelled(hung=hung or self.worker is not None, **self._outcome_fields(now)))

    def deny(self, reason: Reason, message: str, now: float) -> bool:
        """Close the call as denied, before the tool ran."""
        return self.close(Denied(reason=reason, message=message, **self._outcome_fields(now)))

    def idempotency_key(self, run_id: str) -> str:
        """Return the call's unique key, which is stable across crashes."""
        return f"{run_id}:{self.call.id}"

    def _outcome_fields(self, now: float) -> dict[str, Any]:
        header = {"call_id": self.call.id, "tool": self.tool.name, "seconds": now - self.started_at}
        return {**header, "children": self.children} if self.children else header
