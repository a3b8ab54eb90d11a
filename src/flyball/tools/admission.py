"""Admission: which calls of a run are made. It reads, blocks and counts; it neither waits nor calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from ..budget.run_budget import TurnBudget
from ..errors import ArgumentError, UnknownTool
from ..outcome import Denied, Outcome, Reason, Timeout
from ..request import Call
from .call import ToolCallRun
from .tool import Effects, Toolset

_NONE: frozenset[str] = frozenset()


class Admission:
    """The calls of one run pass here before they are made: `read`, then `claim`; and `note` when they have ended."""

    __slots__ = ("_blocked", "_by_name", "_calls", "envelope", "tools")

    def __init__(self, tools: Toolset, envelope: TurnBudget | None = None) -> None:
        self.tools = tools
        self.envelope = envelope
        self._by_name = tools.by_name
        self._blocked: frozenset[str] = _NONE
        self._calls: dict[str, int] = {}

    def group_calls(self, calls: Sequence[Call]) -> Iterable[Sequence[Call]]:
        """Neighbours that only read, together; everything else alone, in the order asked."""
        return (calls,) if len(calls) == 1 else self._iter_groups(calls)

    def _iter_groups(self, calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
        group: list[Call] = []
        for call in calls:
            tool = self.tools.get(call.name)
            if tool is not None and tool.effects is Effects.READ:
                group.append(call)
                continue
            if group:
                yield group
                group = []
            yield [call]
        if group:
            yield group

    def read(self, call: Call) -> ToolCallRun | Denied:
        """The call with its arguments checked, or why it is not made; nothing is counted yet."""
        try:
            tool = self._by_name.get(call.name) or self.tools[call.name]
            values = tool.read(call.arguments)
        except UnknownTool as error:
            return build_denial(call, Reason.UNKNOWN, str(error))
        except ArgumentError as error:
            return build_denial(call, Reason.VALIDATION, str(error))
        if tool.name in self._blocked:
            return build_denial(call, Reason.BLOCKED, f"{tool.name} timed out before, and what it did is not known")
        envelope = self.envelope
        if envelope is None:
            return ToolCallRun(call, tool, values, tool.timeout)
        if envelope.clock.now() >= envelope.work_at:
            envelope.refuse("seconds")
            return build_denial(call, Reason.DEADLINE, "the time for work is over")
        cap_s = min(tool.timeout, envelope.tool_seconds.get(tool.name, tool.timeout))
        return ToolCallRun(call, tool, values, cap_s, envelope)

    def check_budget(self, tool_call: ToolCallRun) -> Denied | None:
        """Why the call could not be counted now; None where it could."""
        few, envelope = self._check_max_calls(tool_call), self.envelope
        if few is not None or envelope is None:
            return few
        counted = [name for name in ("tool_calls", f"calls.{tool_call.tool.name}") if name in envelope.budgets]
        spent = [name for name in counted if envelope.budgets[name].available < 1]
        for name in spent:
            envelope.refuse(name)
        return self._deny_exhausted(tool_call, envelope) if spent else None

    def claim(self, tool_call: ToolCallRun) -> Denied | None:
        """Count the call, as the last step before it is made; or why it is not made."""
        tool, envelope = tool_call.tool, self.envelope
        few = None if tool.max_calls is None else self._check_max_calls(tool_call)
        if few is not None:
            return few
        if envelope is not None and not envelope.claim_tool_call(tool.name):
            return self._deny_exhausted(tool_call, envelope)
        if tool.max_calls is not None:
            self._calls[tool.name] = self._calls.get(tool.name, 0) + 1
        return None

    def _check_max_calls(self, tool_call: ToolCallRun) -> Denied | None:
        name, most = tool_call.tool.name, tool_call.tool.max_calls
        if most is None or self._calls.get(name, 0) < most:
            return None
        return build_denial(tool_call.call, Reason.BUDGET, f"{name} may be called {most} times in one run")

    def _deny_exhausted(self, tool_call: ToolCallRun, envelope: TurnBudget) -> Denied:
        own = envelope.budgets.get(f"calls.{tool_call.tool.name}")
        message = own.warning if own is not None and own.exceeded else "no tool call is left"
        return build_denial(tool_call.call, Reason.BUDGET, message)

    def refund(self, tool_call: ToolCallRun, reason: str) -> list[str]:
        """Give back what was claimed for a call that is not made after all; the budgets that got it back."""
        name, budgets = tool_call.tool.name, {} if self.envelope is None else self.envelope.budgets
        if name in self._calls:
            self._calls[name] -= 1
        return [key for key in ("tool_calls", f"calls.{name}") if key in budgets and budgets[key].refund(reason=reason)]

    def note(self, name: str, outcome: Outcome) -> None:
        """Learn from a call that has ended: a tool that hung and may not be tried again is blocked."""
        if isinstance(outcome, Timeout) and not self.tools[name].retry_on_timeout:
            self._blocked |= {name}

    def close(self) -> None:
        """The run is over; nothing is set aside here."""


def build_denial(call: Call, reason: Reason, message: str) -> Denied:
    """The outcome of a call that is not made."""
    return Denied(call_id=call.id, tool=call.name, reason=reason, message=message)


def apply_changes(state: MutableMapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Keep what a call has set in the run's state; None deletes."""
    for key, value in changes.items():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
