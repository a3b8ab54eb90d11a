"""Caller of the current request, and the position of running code in its chain."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..budget.deadline import SYSTEM, Clock, Deadline
from ..budget.run_budget import TurnBudget

COUNTED_BUDGETS = ("turns", "tokens", "usd")
"""Budgets that a chain passes on."""
_NEVER = Deadline(math.inf)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Caller:
    """Agent that called this service, and the budget its chain leaves."""

    root: str
    """Id shared by all hops of a chain."""
    depth: int = 0
    """Number of this hop; 0 is the top, which no agent called."""
    ceiling: int = 1
    """Lowest refused depth, set by this service or one above it."""
    agent: str = ""
    """Name of the calling agent."""
    host: str = ""
    path: tuple[str, ...] = ()
    """Agents of the chain so far, oldest first; the last is the caller."""
    deadline: Deadline = _NEVER
    """Deadline of the chain, on this machine's clock."""
    envelope: TurnBudget | None = None
    """Turns, tokens and money left to the chain, shared by all runs of the request.

    None means that the chain does not limit them.
    """
    expires: float | None = None
    """Expiry of the context, in seconds since the epoch. None means unknown."""
    signed: bool = False
    """True if a known key signed the context; otherwise it is only the caller's claim."""
    shared_envelopes: list[TurnBudget] = field(default_factory=list[TurnBudget])
    """Usage of runs that draw from a budget shared beyond this request; deducted in `left`."""

    @property
    def remaining_s(self) -> float:
        """Seconds left to the chain; `math.inf` means no limit."""
        return self.deadline.remaining

    @property
    def left(self) -> dict[str, int]:
        """Turns, tokens and money left to the chain, without unlimited ones.

        Money is in billionths of a dollar.
        """
        remaining = read_remaining(self.envelope)
        for envelope in self.shared_envelopes:
            remaining = {name: max(0, amount - envelope.budgets[name].used) for name, amount in remaining.items()}
        return remaining


def read_remaining(envelope: TurnBudget | None) -> dict[str, int]:
    """Return the turns, tokens and money left, without unlimited ones."""
    return {} if envelope is None else envelope.remaining(*COUNTED_BUDGETS)


@dataclass(slots=True, eq=False)
class Position:
    """Place of running code in a chain: its caller, run and tool call."""

    caller: Caller | None = None
    chain: Any = None
    """Service that was called; its outgoing calls use the same name. None means no service."""
    run_id: str = ""
    """Id of the topmost run here; empty outside a run."""
    envelope: TurnBudget | None = None
    until: float = math.inf
    """Clock time by which the tool call must end."""
    clock: Clock = SYSTEM

    @property
    def position(self) -> Position:
        """The position itself."""
        return self

    @property
    def remaining_s(self) -> float:
        """Seconds left for the tool call."""
        return max(0.0, self.until - self.clock.now())

    def for_call(self, run_id: str, envelope: TurnBudget | None, until: float, clock: Clock) -> Position:
        """Return the position of one tool call of a run here."""
        return Position(self.caller, self.chain, self.run_id or run_id, envelope, until, clock)

    def for_children(self, run_id: str) -> Position:
        """Return the position of the child runs of a run here."""
        return Position(self.caller, self.chain, self.run_id or run_id)


class Positioned(Protocol):
    """Position, or a tool call, which builds its position only for the few tools that need it."""

    @property
    def position(self) -> Position:
        """Place in a chain."""
        ...


_NO_POSITION = Position()
POSITION: ContextVar[Positioned] = ContextVar("flyball_chain_position", default=_NO_POSITION)


def find_position() -> Position:
    """Return the position of the running code."""
    return POSITION.get().position


def current() -> Caller | None:
    """Return the caller of the current request; None outside a checked request."""
    return find_position().caller


@contextmanager
def serving(caller: Caller | None, chain: Any = None) -> Generator[None]:
    """Serve a caller: runs inside the block share its chain's budget."""
    token = POSITION.set(Position(caller, chain))
    try:
        yield
    finally:
        POSITION.reset(token)
