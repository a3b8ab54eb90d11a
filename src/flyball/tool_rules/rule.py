"""What every tool rule has: a part that is the same for all runs, and what it remembers of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ..evidence import Done


class RuleState(Protocol):
    """What a rule remembers of one run. It must not block; where it raises, the call is denied."""

    def denial(self, tool: str, arguments: Mapping[str, Any], under_way: Sequence[str]) -> str | None:
        """Why the call may not be made now and what to do instead, or None.

        `under_way` names the tools of the calls that were let through and have not ended, in the order asked: the rule
        must hold whether they succeed or not.
        """
        ...

    def note(self, done: Done) -> None:
        """Learn that a call succeeded."""
        ...


@runtime_checkable
class ToolRule(Protocol):
    """A rule, the same for every run."""

    @property
    def name(self) -> str | None:
        """What it is called, in what is said about it."""
        ...

    @property
    def message(self) -> str | None:
        """What the model is told instead of the standard words."""
        ...

    @property
    def tools_named(self) -> Mapping[str, str]:
        """Every tool that it names, by the place where it does."""
        ...

    def waits_for(self, tool: str) -> str | None:
        """The tool that has to succeed before `tool` may be called for the first time, or None."""
        ...

    def begin(self) -> RuleState:
        """What it remembers of a run that starts now."""
        ...
