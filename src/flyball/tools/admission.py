"""Admission of tool calls: parse arguments, block tools and claim budgets.

It does no I/O and never waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..budget.run_budget import TurnBudget
from ..errors import ArgumentError, UnknownTool
from ..outcome import Denied, Outcome, Reason, Timeout
from ..request import Call
from .call import ToolCallRun
from .definition import Effects, Toolset

_NONE: frozenset[str] = frozenset()


class Admission:
    """Gate for the tool calls of one run.

    Each call passes `read` and `claim` before it is made, and `note` after it has ended.
    """

    __slots__ = ("_blocked", "_by_name", "_calls", "envelope", "tools")

    def __init__(self, tools: Toolset, envelope: TurnBudget | None = None) -> None:
        self.tools = tools
        self.envelope = envelope
        self._by_name = tools.by_name
        self._blocked: frozenset[str] = _NONE
        self._calls: dict[str, int] = {}

    def group_calls(self, calls: Sequence[Call]) -> Iterable[Sequence[Call]]:
        """Group adjacent reads together and every other call alone, in order."""
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
        """Return the call with checked arguments, or a denial.

        It claims nothing yet.
        """
        try:
            tool = self._by_name.get(call.name) or self.tools[call.name]
            values = tool.read(call.arguments)
        except UnknownTool as error:
            return build_denial(call, Reason.UNKNOWN, str(error))
        except ArgumentError as error:
            return build_denial(call, Reason.VALIDATION, str(error))
        if tool.name in self._blocked:
            return build_denial(
                call, Reason.BLOCKED, f"an earlier call of {tool.name} timed out, and its effect is unknown"
            )
        envelope = self.envelope
        if envelope is None:
            return ToolCallRun(call, tool, values, tool.timeout)
        if envelope.clock.now() >= envelope.work_at:
            envelope.refuse("seconds")
            return build_denial(call, Reason.DEADLINE, "the run has no time left for tool calls")
        cap_s = tool.timeout
        if envelope.tool_seconds:
            cap_s = min(cap_s, envelope.tool_seconds.get(tool.name, cap_s))
        return ToolCallRun(call, tool, values, cap_s, envelope)

    def check_budget(self, tool_call: ToolCallRun) -> Denied | None:
        """Return a denial if the budgets do not allow the call."""
        denial, envelope = self._check_max_calls(tool_call), self.envelope
        if denial is not None or envelope is None:
            return denial
        names = [name for name in ("tool_calls", f"calls.{tool_call.tool.name}") if name in envelope.budgets]
        exhausted = [name for name in names if envelope.budgets[name].available < 1]
        for name in exhausted:
            envelope.refuse(name)
        return self._deny_exhausted(tool_call, envelope) if exhausted else None

    def claim(self, tool_call: ToolCallRun) -> Denied | None:
        """Claim budgets for the call, or return a denial.

        This is the last step before the call is made.
        """
        tool, envelope = tool_call.tool, self.envelope
        if tool.max_calls is not None:
            denial = self._check_max_calls(tool_call)
            if denial is not None:
                return denial
        if envelope is not None and not envelope.claim_tool_call(tool.name):
            return self._deny_exhausted(tool_call, envelope)
        if tool.max_calls is not None:
            self._calls[tool.name] = self._calls.get(tool.name, 0) + 1
        return None

    def _check_max_calls(self, tool_call: ToolCallRun) -> Denied | None:
        name, max_calls = tool_call.tool.name, tool_call.tool.max_calls
        if max_calls is None or self._calls.get(name, 0) < max_calls:
            return None
        return build_denial(tool_call.call, Reason.BUDGET, f"{name} may be called at most {max_calls} times per run")

    def _deny_exhausted(self, tool_call: ToolCallRun, envelope: TurnBudget) -> Denied:
        budget = envelope.budgets.get(f"calls.{tool_call.tool.name}")
        message = budget.warning if budget is not None and budget.exceeded else "no tool calls are left"
        return build_denial(tool_call.call, Reason.BUDGET, message)

    def refund(self, tool_call: ToolCallRun, reason: str) -> list[str]:
        """Refund a claimed call that is not made.

        Return the names of the refunded budgets.
        """
        name, envelope = tool_call.tool.name, self.envelope
        if name in self._calls:
            self._calls[name] -= 1
        if envelope is None:
            return []
        budgets = envelope.budgets
        return [key for key in ("tool_calls", f"calls.{name}") if key in budgets and budgets[key].refund(reason=reason)]

    def note(self, name: str, outcome: Outcome) -> None:
        """Block a tool that timed out and must not be retried."""
        if isinstance(outcome, Timeout) and not self.tools[name].retry_on_timeout:
            self._blocked |= {name}

    def pause_children(self, by: str | None) -> None:
        """Do nothing: these calls start no child runs."""

    def close(self) -> None:
        """Do nothing: this class holds no resources."""


def build_denial(call: Call, reason: Reason, message: str) -> Denied:
    """Return the outcome of a call that is not made."""
    return Denied(call_id=call.id, tool=call.name, reason=reason, message=message)
