"""A child: a run that another run delegates, and the edge between the two."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..budget.budget import Hold, IterationBudget
from ..budget.limits import ResolvedLimits
from ..message import Message, MessageType, Role
from ..person import Approver
from ..recorder import Sink
from ..result import Result
from ..unit import Unit
from .plan import AgentSpec, Plan

_CHILD_INSTRUCTIONS = (
    "You work for another agent, which reads nothing but your last message. Do its task, and nothing else. End with a "
    "report in plain words: what you found or did, what failed, and what is open."
)
_END_MARGIN_SHARE, _END_MARGIN_S = 0.05, 0.5
"""What a child's time ends before its parent's, so that its end is heard and not cut."""


CARVED_BUDGETS = ("turns", "tokens", "usd")
"""What is carved for a child."""
SHARED_BUDGETS = (*CARVED_BUDGETS, "children")
"""What children share with their parent."""


class Mode(StrEnum):
    """How the budgets of a child hang together with its parent's."""

    INDEPENDENT = "independent"
    """Its own limits alone; the sum may be more than the parent's."""
    CARVED = "carved"
    """A slice of the parent's, set aside at its start; what it did not use comes back at its end."""
    SHARED = "shared"
    """What is left of the parent's, which it shares with the siblings of its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What the code declares of a child, and so all that a run of it needs."""

    name: str
    description: str
    agent_spec: AgentSpec
    mode: Mode = Mode.INDEPENDENT
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sinks: tuple[Sink, ...] = ()
    events_kept: int = 10_000
    approver: Approver | None = None
    approver_seconds: float = math.inf
    """How long a person may take to answer."""
    check_money_limit: Callable[[IterationBudget | None], None] = lambda _: None
    """Raises where a limit of money cannot be held, as nobody knows a price."""
    make_runner: Callable[..., Any] | None = None
    """Makes who brings a run of it to its end, where that is somebody else than the family's own driver: of the task,
    its plan, its recorder, the clock, and what it shares with others."""


@dataclass(slots=True, kw_only=True)
class ChildTask:
    """One task for a child; the loop adds what it knows of the parent before it is begun."""

    spec: ChildSpec
    goal: str
    context: str = ""
    max_amounts: dict[str, int] = field(default_factory=dict[str, int])
    """What narrows its budgets."""
    max_seconds: float = math.inf
    reserved: dict[str, Hold] = field(default_factory=dict[str, Hold])
    """What is set aside for it of the parent's budgets."""
    pool: Mapping[str, int | None] | None = None
    """What is left for it and its siblings together, by budget; None is no ceiling."""
    allowed_tools: frozenset[str] | None = None
    """The tools to which it is narrowed."""
    duplicate_key: tuple[object, ...] = ()
    """What an equal task has in common with it."""
    duplicate_of: ChildTask | None = None
    """An equal task that was asked for before it in the batch; then what that comes to is its result too."""
    position: tuple[int, int] = (1, 1)
    """Which of how many equal tasks of the batch it is, where each is a run of its own."""
    own_result: Result | None = None
    """What it has come to by itself."""
    run_id: str = ""
    parent_run_id: str = ""
    level: int = 0

    @property
    def result(self) -> Result | None:
        """What it has come to."""
        return self.own_result if self.duplicate_of is None else self.duplicate_of.own_result

    def build_plan(self, remaining_s: float, at: float, shared_amounts: Mapping[str, int] | None = None) -> Plan:
        """The plan of a run that begins now, while its parent has so many seconds left for work.

        `within` is what budgets that it shares leave of tokens and money; None where it shares none.
        """
        terms, until = self.spec.agent_spec.limits, self.spec.agent_spec.limits.limits.until
        most_s = min(self.max_seconds, subtract_end_margin(remaining_s))
        most = dict(self.max_amounts)
        for name, amount in (shared_amounts or {}).items():
            most[name] = min(amount, most.get(name, amount))
        words = _describe_limits(terms, most, most_s)
        return Plan(
            spec=self._build_spec(words),
            extra_instructions=words,
            run_id=self.run_id,
            messages=[Message(self.run_id, 0, at, MessageType.TEXT, Role.USER, self.prompt)],
            started_at=at,
            until=None if until is None else until.timestamp() - terms.compute_reserve_s(until.timestamp() - at),
            metadata=self.spec.metadata,
            max_seconds=most_s,
            max_amounts=most,
            level=self.level,
            parent_run_id=self.parent_run_id,
            has_shared_budget=shared_amounts is not None,
            jitter_seed=zlib.crc32(self.run_id.encode()),
        )

    def _build_spec(self, extra_instructions: str) -> AgentSpec:
        """That of its agent, told these words, with the tools that are left to it."""
        spec = self.spec.agent_spec.add_instructions(extra_instructions)
        return spec if self.allowed_tools is None else spec.narrow_tools(self.allowed_tools)

    @property
    def prompt(self) -> str:
        """The task as the child reads it."""
        n, all_alike = self.position
        alike = f"(The same task was given to {all_alike} agents at once; you are number {n}. Work independently.)"
        parts = [self.goal, self.context if self.context.strip() else "", alike if all_alike > 1 else ""]
        return "\n\n".join(part for part in parts if part)


def subtract_end_margin(remaining_s: float) -> float:
    """What a run may take of the time of whoever waits for it, who must still hear of its end."""
    return (
        remaining_s
        if remaining_s == math.inf
        else max(0.0, remaining_s - min(_END_MARGIN_S, remaining_s * _END_MARGIN_SHARE))
    )


def _describe_limits(resolved_limits: ResolvedLimits, max_amounts: Mapping[str, int], max_seconds: float) -> str:
    """What a child is told of its work and its limits."""
    limits = [_format_limit(name, resolved_limits, max_amounts) for name in ("turns", "tokens", "usd")]
    seconds = min(resolved_limits.seconds, max_seconds)
    limits.append("" if seconds == math.inf else Unit.SECONDS.show(round(seconds, 1)))
    return f"{_CHILD_INSTRUCTIONS} Your limits: {', '.join(limit for limit in limits if limit)}."


def _format_limit(name: str, resolved_limits: ResolvedLimits, max_amounts: Mapping[str, int]) -> str:
    budget = resolved_limits.budgets[name]
    known = [amount for amount in (budget.ceiling, max_amounts.get(name)) if amount is not None]
    if not known:
        return ""
    shown = budget.unit.show(min(known))
    return shown if budget.unit is Unit.USD else f"{shown} {name}"
