"""Tasks of child runs, and what the parent declares about its children."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..budget.budget import Hold, IterationBudget
from ..budget.budget_set import narrow
from ..budget.limits import ResolvedLimits
from ..message import Message, MessageType, Role
from ..person import Approver
from ..recorder import Sink
from ..result import Result
from ..unit import Unit
from .calibration import CALIBRATION
from .plan import AgentSpec, Plan

_CHILD_INSTRUCTIONS = (
    "You work for another agent, which reads nothing but your last message. Do its task, and nothing else. End with a "
    "report in plain words: what you found or did, what failed, and what is open."
)
_END_MARGIN_SHARE, _END_MARGIN_S = 0.05, 0.5
"""Share and maximum of seconds by which a child run ends before its parent, so that its end is not cut off."""


CARVED_BUDGETS = ("turns", "tokens", "usd")
"""Budgets that a child gets a slice of."""
SHARED_BUDGETS = (*CARVED_BUDGETS, "children")
"""Budgets that children share with their parent."""


class Mode(StrEnum):
    """Relation of a child's budgets to its parent's."""

    INDEPENDENT = "independent"
    """Only its own limits. The sum may exceed the parent's."""
    CARVED = "carved"
    """A slice of the parent's, reserved at its start. The unused part is released at its end."""
    SHARED = "shared"
    """The rest of the parent's, shared with the siblings of its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """Child as declared in code: everything that a run of it needs."""

    name: str
    description: str
    agent_spec: AgentSpec
    mode: Mode = Mode.INDEPENDENT
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sinks: tuple[Sink, ...] = ()
    events_kept: int = 10_000
    approver: Approver | None = None
    approver_seconds: float = math.inf
    """Seconds that a person may take to answer."""
    check_money_limit: Callable[[IterationBudget | None], None] = lambda _: None
    """Raises if a money limit cannot be enforced because a price is unknown."""
    make_runner: Callable[..., Any] | None = None
    """Builds the runner of a remote child from its task, plan, recorder, clock and shared budget.

    None means that the parent's driver runs it.
    """


@dataclass(slots=True, kw_only=True)
class ChildTask:
    """One task for a child run. The loop fills in ids and reservations before it starts."""

    spec: ChildSpec
    goal: str
    context: str = ""
    max_amounts: dict[str, int] = field(default_factory=dict[str, int])
    """Maximum amounts, by budget, in addition to its own limits."""
    max_seconds: float = math.inf
    reserved: dict[str, Hold] = field(default_factory=dict[str, Hold])
    """Reservations in the parent's budgets."""
    pool: Mapping[str, int | None] | None = None
    """Amounts shared with its siblings, by budget. None as an amount means no ceiling."""
    allowed_tools: frozenset[str] | None = None
    """Tools that it may use. None means all of its agent."""
    duplicate_key: tuple[object, ...] = ()
    """Key that equal tasks have in common."""
    duplicate_of: ChildTask | None = None
    """Earlier equal task of the batch whose result this one takes. None if it is a run of its own."""
    position: tuple[int, int] = (1, 1)
    """(index, count) among identical tasks of the batch."""
    own_result: Result | None = None
    """Result of its own run."""
    run_id: str = ""
    parent_run_id: str = ""
    level: int = 0

    @property
    def handle(self) -> str:
        """Short name of the run, unique in its parent."""
        return self.run_id.removeprefix(f"{self.parent_run_id}.")

    @property
    def result(self) -> Result | None:
        """Result of the task. None before it has ended."""
        return self.own_result if self.duplicate_of is None else self.duplicate_of.own_result

    def build_plan(self, remaining_s: float, at: float, shared_amounts: Mapping[str, int] | None = None) -> Plan:
        """Build the plan of a run that starts now, while its parent has `remaining_s` seconds for work.

        `shared_amounts` are the tokens and the money left in shared budgets. None means that it shares none.
        """
        limits, until = self.spec.agent_spec.limits, self.spec.agent_spec.limits.limits.until
        max_seconds = min(self.max_seconds, subtract_end_margin(remaining_s))
        max_amounts = narrow(self.max_amounts, shared_amounts or {})
        instructions = _describe_limits(limits, max_amounts, max_seconds)
        model = self.spec.agent_spec.model.main
        return Plan(
            spec=self._build_spec(instructions),
            extra_instructions=instructions,
            run_id=self.run_id,
            messages=[Message(self.run_id, 0, at, MessageType.TEXT, Role.USER, self.prompt)],
            started_at=at,
            until=None if until is None else until.timestamp() - limits.compute_reserve_s(until.timestamp() - at),
            metadata=self.spec.metadata,
            max_seconds=max_seconds,
            max_amounts=max_amounts,
            level=self.level,
            parent_run_id=self.parent_run_id,
            has_shared_budget=shared_amounts is not None,
            jitter_seed=zlib.crc32(self.run_id.encode()),
            token_scale=CALIBRATION.find_scale(model.provider, model.name),
        )

    def _build_spec(self, extra_instructions: str) -> AgentSpec:
        """Return the spec of its agent with these instructions and its allowed tools."""
        spec = self.spec.agent_spec.add_instructions(extra_instructions)
        return spec if self.allowed_tools is None else spec.narrow_tools(self.allowed_tools)

    @property
    def prompt(self) -> str:
        """Text of the task for the child's model."""
        n, all_alike = self.position
        alike = f"(The same task was given to {all_alike} agents at once; you are number {n}. Work independently.)"
        parts = [self.goal, self.context if self.context.strip() else "", alike if all_alike > 1 else ""]
        return "\n\n".join(part for part in parts if part)


def subtract_end_margin(remaining_s: float) -> float:
    """Return the seconds for a run, so that it ends before the run or caller that waits for it."""
    return (
        remaining_s
        if remaining_s == math.inf
        else max(0.0, remaining_s - min(_END_MARGIN_S, remaining_s * _END_MARGIN_SHARE))
    )


def _describe_limits(resolved_limits: ResolvedLimits, max_amounts: Mapping[str, int], max_seconds: float) -> str:
    """Return the instructions for a child's model about its work and limits."""
    return f"{_CHILD_INSTRUCTIONS} {announce_limits(resolved_limits, max_amounts, max_seconds)}"


def announce_limits(resolved_limits: ResolvedLimits, max_amounts: Mapping[str, int], max_seconds: float) -> str:
    """Return a sentence for the model about the limits of its run."""
    by_tool = [name for name in resolved_limits.budgets if name.startswith("calls.")]
    names = ("turns", "tool_calls", *by_tool, "tokens", "usd")
    limits = [_format_limit(name, resolved_limits, max_amounts) for name in names]
    seconds = min(resolved_limits.seconds, max_seconds)
    limits.append("" if seconds == math.inf else Unit.SECONDS.show(round(seconds, 1)))
    return f"Your limits: {', '.join(limit for limit in limits if limit) or 'none'}."


def _format_limit(name: str, resolved_limits: ResolvedLimits, max_amounts: Mapping[str, int]) -> str:
    budget = resolved_limits.budgets[name]
    known = [amount for amount in (budget.ceiling, max_amounts.get(name)) if amount is not None]
    if not known:
        return ""
    shown = budget.unit.show(min(known))
    if budget.unit is Unit.USD:
        return shown
    kind, _, tool = name.partition(".")
    noun = kind.replace("_", " ").removesuffix("s" if min(known) == 1 else "")
    return f"{shown} {noun} of {tool}" if tool else f"{shown} {noun}"
