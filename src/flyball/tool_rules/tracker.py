"""The rule book of one run: asked before each call, told of each that succeeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..progress import Done
from .kinds import RuleState, ToolRule


class ToolRuleTracker:
    """Says which calls may be made now. What guards fails closed: a rule that raises denies.

    `claim` before a call; then `note` if it succeeded, else `drop`, in the order asked. So calls that run side by side
    cannot overrun a limit, and one that failed gives its place back. A call that somebody else denies is withdrawn
    before the next is claimed. `denial` only looks.
    """

    __slots__ = ("_entries", "_in_progress")

    def __init__(self, rules: Sequence[ToolRule]) -> None:
        self._entries = [_TrackedRule(rule, f"tool_rules[{n}]") for n, rule in enumerate(rules)]
        self._in_progress: list[str] = []

    def denial(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Why this call may not be made now and what to do instead, by every rule that forbids it; None: it may."""
        reasons = [entry.denial(tool, arguments, self._in_progress) for entry in self._entries]
        return " ".join(dict.fromkeys(filter(None, reasons))) or None

    def claim(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """As `denial`; and where the call may be made, it counts as under way from now on."""
        reason = self.denial(tool, arguments)
        if reason is None and self._entries:
            self._in_progress.append(tool)
        return reason

    def note(self, done: Done) -> None:
        """A call succeeded. It settles the oldest claim of its tool; one that was never claimed counts all the same."""
        self.release(done.tool)
        for entry in self._entries:
            entry.note(done)

    def release(self, tool: str) -> None:
        """A call that was claimed did not succeed, or was never made: it gives its place back."""
        if tool in self._in_progress:
            self._in_progress.remove(tool)

    def release_last(self, tool: str) -> None:
        """The call that was claimed last is not made after all: it gives its place back at once."""
        if self._in_progress[-1:] == [tool]:
            self._in_progress.pop()


class _TrackedRule:
    """One rule in the book. Once it has raised where it should have learned, it denies every call."""

    __slots__ = ("broken", "label", "rule", "state")

    def __init__(self, rule: ToolRule, place: str) -> None:
        self.rule = rule
        self.label = place
        self.broken: str | None = None
        self.state: RuleState | None = None
        try:
            self.label = rule.name or place
            self.state = rule.begin()
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            self.broken = self.describe_failure(error)

    def denial(self, tool: str, arguments: Mapping[str, Any], in_progress: Sequence[str]) -> str | None:
        if self.state is None or self.broken is not None:
            return self.broken or self.describe_failure()
        try:
            told = self.state.denial(tool, arguments, in_progress)
            told = told if told is None else self.rule.message or told
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            return self.describe_failure(error)
        return told if told is None or (isinstance(cast("object", told), str) and told) else self.describe_failure()

    def note(self, done: Done) -> None:
        try:
            if self.state is not None:
                self.state.note(done)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            self.broken = self.describe_failure(error)

    def describe_failure(self, error: BaseException | None = None) -> str:
        what = "gave no reason" if error is None else f"failed ({type(error).__name__})"
        return f"The tool rule {self.label} {what}, so the call is not made."
