"""The caller: which agent has called this service, what its chain leaves, and where in a chain we are now."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..budget.deadline import SYSTEM, Clock, Deadline
from ..budget.run_budget import TurnBudget

COUNTED_BUDGETS = ("turns", "tokens", "usd")
"""What a chain carries of budgets."""
_NEVER = Deadline(math.inf)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Caller:
    """Where a request is in a chain of calls from agent to agent, and what the chain leaves it."""

    root: str
    """The id that all hops of a chain share."""
    depth: int = 0
    """Which hop this is; 0 is the top, where no agent has called."""
    ceiling: int = 1
    """The depth that is refused, by this service or by one above it, whichever is less."""
    agent: str = ""
    """The name of the agent that has called."""
    host: str = ""
    path: tuple[str, ...] = ()
    """The agents that the chain has been at, oldest first; the last is the one that has called."""
    deadline: Deadline = _NEVER
    """When the chain's time is over, on this machine's own clock."""
    envelope: TurnBudget | None = None
    """What the chain leaves of turns, tokens and money. All runs of the request count in it; None where it says nothing
    of them."""
    expires: float | None = None
    """When its context was to be used at the latest, in seconds since the epoch."""
    signed: bool = False
    """Whether a key that we know has signed this; else it is what the caller says of itself."""
    shared_envelopes: list[TurnBudget] = field(default_factory=list[TurnBudget])
    """What runs took that share an envelope of another with more than this request."""

    @property
    def remaining_s(self) -> float:
        """The seconds that the chain leaves now; `math.inf` is no limit."""
        return self.deadline.remaining

    @property
    def left(self) -> dict[str, int]:
        """What the chain leaves now of turns, tokens and money (in billionths of a dollar), where it says so."""
        left = get_remaining(self.envelope)
        for other in self.shared_envelopes:
            left = {name: max(0, amount - other.budgets[name].used) for name, amount in left.items()}
        return left


def get_remaining(envelope: TurnBudget | None) -> dict[str, int]:
    """What an envelope leaves now of turns, tokens and money, where it has a ceiling."""
    budgets = {} if envelope is None else envelope.budgets
    left = {name: budgets[name].available for name in COUNTED_BUDGETS if name in budgets}
    return {name: int(amount) for name, amount in left.items() if amount != math.inf}


@dataclass(slots=True, eq=False)  # not frozen: every call of a tool makes one, and that would take thrice as long
class Position:
    """Where in a chain the code that asks is: who has called, and in a tool, what the run that it works for leaves."""

    caller: Caller | None = None
    chain: Any = None
    """The service that was called, which calls others under the same name."""
    run_id: str = ""
    """The run that all that goes on here belongs to: the one at the top."""
    envelope: TurnBudget | None = None
    until: float = math.inf
    """When the call of the tool must have ended."""
    clock: Clock = SYSTEM

    @property
    def remaining_s(self) -> float:
        """The seconds that are left for that call."""
        return max(0.0, self.until - self.clock.now())

    def for_call(self, run_id: str, envelope: TurnBudget | None, until: float, clock: Clock) -> Position:
        """The place of one call, in a run that is here."""
        return Position(self.caller, self.chain, self.run_id or run_id, envelope, until, clock)

    def for_children(self, run_id: str) -> Position:
        """The place of the children of a run that is here."""
        return Position(self.caller, self.chain, self.run_id or run_id)


_NO_POSITION = Position()
POSITION: ContextVar[Position] = ContextVar("flyball_chain_position", default=_NO_POSITION)


def current() -> Caller | None:
    """The caller of the request that is being served here; None where no service has looked."""
    return POSITION.get().caller


@contextmanager
def serving(caller: Caller | None, chain: Any = None) -> Generator[None]:
    """Serve a caller: every run that begins inside takes what its chain leaves."""
    token = POSITION.set(Position(caller, chain))
    try:
        yield
    finally:
        POSITION.reset(token)
