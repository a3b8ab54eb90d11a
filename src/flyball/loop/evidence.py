"""Evidence from the calls of a run, for completion policies and tool rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._internal.jsonable import copy_arguments
from ..outcome import Outcome, Success
from ..progress import Done, Evidence
from ..tool_rules import ToolRuleTracker


class EvidenceTracker:
    """Arguments of the calls in progress, and the evidence from those that succeeded."""

    __slots__ = ("_arguments", "_evidence", "_tracker")

    def __init__(self, evidence: Evidence, tracker: ToolRuleTracker | None) -> None:
        self._evidence = evidence
        self._tracker = tracker
        self._arguments: dict[str, Mapping[str, Any]] = {}

    def check_call(self, call_id: str, tool: str, values: dict[str, Any]) -> str | None:
        """Note a call that is about to be made. Return why a tool rule denies it, or None."""
        why = None if self._tracker is None else self._tracker.claim(tool, values)
        if why is None:
            self._arguments[call_id] = copy_arguments(values)
        return why

    def find_completion_denial(self) -> str | None:
        """Return why a tool rule does not let the run complete, or None."""
        return None if self._tracker is None else self._tracker.completion_denial()

    def withdraw(self, denied: Outcome) -> None:
        """Forget the last noted call: it is not made, so other calls of its group may take its place."""
        if self._arguments.pop(denied.call_id, None) is not None and self._tracker is not None:
            self._tracker.release_last(denied.tool)

    def record_outcome(self, outcome: Outcome) -> None:
        """Record what a successful call proves, and pass the outcome to the tool rules."""
        arguments = self._arguments.pop(outcome.call_id, None)
        if arguments is None:
            return
        if isinstance(outcome, Success):
            done = Done(outcome.tool, arguments, outcome.value)
            self._evidence.add(done)
            if self._tracker is not None:
                self._tracker.note(done)
        elif self._tracker is not None:
            self._tracker.release(outcome.tool)
