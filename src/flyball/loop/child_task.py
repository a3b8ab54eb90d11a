"""A child: a run that another run delegates, and the edge between the two."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ..budget.budget import Hold, IterationBudget
from ..budget.limits import ResolvedLimits
from ..message import Message, MessageType, Role
from ..person import Approver
from ..recorder import Sink
from ..request import tokens_of
from ..result import Result
from ..unit import Unit
from .plan import AgentSpec, Plan

_TOLD = (
    "You work for another agent, which reads nothing but your last message. Do its task, and nothing else. End with a "
    "report in plain words: what you found or did, what failed, and what is open."
)
_SPARE_SHARE, _SPARE_S = 0.05, 0.5
"""What a child's time ends before its parent's, so that its end is heard and not cut."""


SLICED = ("turns", "tokens", "usd")
"""What is carved for a child."""
POOLED = (*SLICED, "children")
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
    terrain: AgentSpec
    mode: Mode = Mode.INDEPENDENT
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sinks: tuple[Sink, ...] = ()
    events_kept: int = 10_000
    approver: Approver | None = None
    patience_s: float = math.inf
    """How long a person may take to answer."""
    guard: Callable[[IterationBudget | None], None] = lambda _: None
    """Raises where a limit of money cannot be held, as nobody knows a price."""
    runner: Callable[..., Any] | None = None
    """Makes who brings a run of it to its end, where that is somebody else than the family's own driver: of the task,
    its plan, its recorder, the clock, and what it shares with others."""


@dataclass(slots=True, kw_only=True)
class ChildTask:
    """One task for a child; the loop adds what it knows of the parent before it is begun."""

    edge: ChildSpec
    goal: str
    context: str = ""
    most: dict[str, int] = field(default_factory=dict[str, int])
    """What narrows its budgets."""
    most_s: float = math.inf
    slice: dict[str, Hold] = field(default_factory=dict[str, Hold])
    """What is set aside for it of the parent's budgets."""
    pool: Mapping[str, int | None] | None = None
    """What is left for it and its siblings together, by budget; None is no ceiling."""
    only: frozenset[str] | None = None
    """The tools to which it is narrowed."""
    sameness: tuple[object, ...] = ()
    """What an equal task has in common with it."""
    twin: ChildTask | None = None
    """An equal task that was asked for before it in the batch; then what that comes to is its result too."""
    place: tuple[int, int] = (1, 1)
    """Which of how many equal tasks of the batch it is, where each is a run of its own."""
    ended: Result | None = None
    """What it has come to by itself."""
    run_id: str = ""
    parent_run_id: str = ""
    level: int = 0

    @property
    def result(self) -> Result | None:
        """What it has come to."""
        return self.ended if self.twin is None else self.twin.ended

    def plan(self, left_s: float, at: float, within: Mapping[str, int] | None = None) -> Plan:
        """The plan of a run that begins now, while its parent has so many seconds left for work.

        `within` is what budgets that it shares leave of tokens and money; None where it shares none.
        """
        terms, until = self.edge.terrain.terms, self.edge.terrain.terms.limits.until
        most_s = min(self.most_s, spared(left_s))
        most = dict(self.most)
        for name, amount in (within or {}).items():
            most[name] = min(amount, most.get(name, amount))
        words = _limits_told(terms, most, most_s)
        return Plan(
            shared=self._terrain(words),
            told=words,
            run_id=self.run_id,
            messages=[Message(self.run_id, 0, at, MessageType.TEXT, Role.USER, self.words)],
            started_at=at,
            until=None if until is None else until.timestamp() - terms.reserve_s(until.timestamp() - at),
            metadata=self.edge.metadata,
            most_s=most_s,
            most=most,
            level=self.level,
            parent_run_id=self.parent_run_id,
            within=within is not None,
            seed=zlib.crc32(self.run_id.encode()),
        )

    def _terrain(self, words: str) -> AgentSpec:
        """That of its agent, told these words, with the tools that are left to it."""
        terrain = told(self.edge.terrain, words)
        if self.only is None or terrain.offering is None:
            return terrain
        narrowed = replace(terrain, only=self.only)
        return narrowed if terrain.sources else terrain.offering(narrowed, ())

    @property
    def words(self) -> str:
        """The task as the child reads it."""
        n, all_alike = self.place
        alike = f"(The same task was given to {all_alike} agents at once; you are number {n}. Go your own way.)"
        parts = [self.goal, self.context if self.context.strip() else "", alike if all_alike > 1 else ""]
        return "\n\n".join(part for part in parts if part)


def spared(left_s: float) -> float:
    """What a run may take of the time of whoever waits for it, who must still hear of its end."""
    return left_s if left_s == math.inf else max(0.0, left_s - min(_SPARE_S, left_s * _SPARE_SHARE))


def told(terrain: AgentSpec, words: str, instead_of: str = "") -> AgentSpec:
    """The terrain with more instructions, which every request has; perhaps in place of others that it was told."""
    if instead_of:
        before = (terrain.instructions or "").removesuffix(instead_of).removesuffix("\n\n")
        terrain = replace(terrain, instructions=before or None)
    more = tokens_of(words) - tokens_of(instead_of)
    cards = {name: replace(card, base_tokens=card.base_tokens + more) for name, card in terrain.cards.items()}
    instructions = f"{terrain.instructions}\n\n{words}" if terrain.instructions else words
    tokens = terrain.instruction_tokens + more
    return replace(terrain, instructions=instructions, instruction_tokens=tokens, cards=cards)


def _limits_told(terms: ResolvedLimits, most: Mapping[str, int], most_s: float) -> str:
    """What a child is told of its work and its limits."""
    limits = [_amount(name, terms, most) for name in ("turns", "tokens", "usd")]
    seconds = min(terms.seconds, most_s)
    limits.append("" if seconds == math.inf else Unit.SECONDS.show(round(seconds, 1)))
    return f"{_TOLD} Your limits: {', '.join(limit for limit in limits if limit)}."


def _amount(name: str, terms: ResolvedLimits, most: Mapping[str, int]) -> str:
    budget = terms.budgets[name]
    known = [amount for amount in (budget.ceiling, most.get(name)) if amount is not None]
    if not known:
        return ""
    shown = budget.unit.show(min(known))
    return shown if budget.unit is Unit.USD else f"{shown} {name}"
