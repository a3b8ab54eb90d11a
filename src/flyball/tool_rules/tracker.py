"""Tracker of the tool rules in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..progress import Done
from .kinds import RuleState, ToolRule


class ToolRuleTracker:
    """Decides which calls the tool rules allow. It fails closed: a rule that raises denies.

    The run calls `claim` before a call, then `note` if it succeeded and `release` otherwise, in request order. So
    calls in parallel cannot exceed a limit, and a failed call does not count. If something else denies a claimed call,
    the run calls `release_last` before the next claim. `denial` changes nothing.
    """

    __slots__ = ("_entries", "_in_progress")

    def __init__(self, rules: Sequence[ToolRule]) -> None:
        self._entries = [_TrackedRule(rule, f"tool_rules[{n}]") for n, rule in enumerate(rules)]
        self._in_progress: list[str] = []

    def denial(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Return why the rules deny a call, or None.

        The text says what to do instead.
        """
        reasons = [entry.denial(tool, arguments, self._in_progress) for entry in self._entries]
        return " ".join(dict.fromkeys(filter(None, reasons))) or None

    def completion_denial(self) -> str | None:
        """Return why the rules do not let the run complete, or None. The text says what to do."""
        reasons = [entry.completion_denial() for entry in self._entries]
        return " ".join(dict.fromkeys(filter(None, reasons))) or None

    def claim(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Return `denial`. If that is None, the call counts as in progress."""
        reason = self.denial(tool, arguments)
        if reason is None and self._entries:
            self._in_progress.append(tool)
        return reason

    def note(self, done: Done) -> None:
        """Record a successful call, and settle the oldest claim of its tool.

        A call that was never claimed counts as well.
        """
        self.release(done.tool)
        for entry in self._entries:
            entry.note(done)

    def release(self, tool: str) -> None:
        """Release the oldest claim of a tool whose call failed or was not made."""
        if tool in self._in_progress:
            self._in_progress.remove(tool)

    def release_last(self, tool: str) -> None:
        """Release the newest claim, if it is of this tool."""
        if self._in_progress[-1:] == [tool]:
            self._in_progress.pop()


class _TrackedRule:
    """A rule with its state.

    After an error in `begin` or `note` it denies every call.
    """

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
            reason = self.state.denial(tool, arguments, in_progress)
            reason = reason if reason is None else self.rule.message or reason
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            return self.describe_failure(error)
        if reason is None or (isinstance(cast("object", reason), str) and reason):
            return reason
        return self.describe_failure()

    def completion_denial(self) -> str | None:
        if not getattr(self.rule, "blocks_completion", False):
            return None
        if self.broken is not None:
            return self.broken
        try:
            return cast("Any", self.state).completion_denial()
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            return self.describe_failure(error)

    def note(self, done: Done) -> None:
        try:
            if self.state is not None:
                self.state.note(done)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            self.broken = self.describe_failure(error)

    def describe_failure(self, error: BaseException | None = None) -> str:
        problem = "gave no reason" if error is None else f"failed ({type(error).__name__})"
        return f"The tool rule {self.label} {problem}, so the call is not made."
