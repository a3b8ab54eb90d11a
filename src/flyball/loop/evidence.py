"""The witness of a run: sees with what its calls were made, keeps what they prove, and asks the tool rules."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ..outcome import Outcome, Success
from ..progress import Done, Evidence
from ..tool_rules import ToolRuleTracker


class EvidenceTracker:
    """Knows the arguments of the calls under way, where a completion policy or tool rules look at them."""

    __slots__ = ("_arguments", "_book", "_evidence")

    def __init__(self, evidence: Evidence, book: ToolRuleTracker | None) -> None:
        self._evidence = evidence
        self._book = book
        self._arguments: dict[str, Mapping[str, Any]] = {}

    def check_call(self, call_id: str, tool: str, values: dict[str, Any]) -> str | None:
        """Note a call that is about to be made; why a rule does not let it."""
        why = None if self._book is None else self._book.claim(tool, values)
        if why is None:
            self._arguments[call_id] = _snapshot_arguments(values)
        return why

    def withdraw(self, denied: Outcome) -> None:
        """The call that was seen last is not made, and must not take its place from those beside it."""
        if self._arguments.pop(denied.call_id, None) is not None and self._book is not None:
            self._book.release_last(denied.tool)

    def record_outcome(self, outcome: Outcome) -> None:
        """Keep what a call proves, if it succeeded, and tell the tool rules what it came to."""
        arguments = self._arguments.pop(outcome.call_id, None)
        if arguments is None:
            return
        if isinstance(outcome, Success):
            done = Done(outcome.tool, arguments, outcome.value)
            self._evidence.add(done)
            if self._book is not None:
                self._book.note(done)
        elif self._book is not None:
            self._book.release(outcome.tool)


def _snapshot_arguments(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments as they are now: a tool may change a list or a table that it was given."""
    if all(value is None or isinstance(value, str | int | float) for value in values.values()):
        return values
    try:
        return copy.deepcopy(values)
    except Exception:  # what cannot be copied is shared, as everything in Python is
        return values
