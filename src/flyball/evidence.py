"""Evidence: the calls of a run that succeeded, with what they were really given and gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """One call that succeeded."""

    tool: str
    arguments: Mapping[str, Any]
    """As they were checked: what the tool was really given."""
    value: object
    """What the tool gave."""


class Evidence:
    """What a run can prove. The loop adds to it; whoever is handed it only reads."""

    __slots__ = ("_by_tool", "state")

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state
        """The run's state, which seed 002 calls engine data."""
        self._by_tool: dict[str, list[Done]] = {}

    def add(self, done: Done) -> None:
        """Note a call that succeeded."""
        self._by_tool.setdefault(done.tool, []).append(done)

    def of(self, tool: str) -> tuple[Done, ...]:
        """The successful calls of one tool, oldest first."""
        return tuple(self._by_tool.get(tool, ()))

    def count(self, tool: str) -> int:
        """How many calls of one tool succeeded."""
        return len(self._by_tool.get(tool, ()))
