"""Ticket of a request: whether it is a turn, the last request, or gets a synthetic reply."""

from __future__ import annotations

from dataclasses import dataclass

from ..governor.reserved_turn import ReservedTurn
from ..request import Purpose
from .conversations import Chat
from .door import Access
from .inbound import Inbound
from .programs import SideRequest


@dataclass(slots=True, eq=False)
class Ticket:
    """Decision about a request."""

    inbound: Inbound
    chat: Chat
    turn: ReservedTurn | None = None
    """Claim of the request. None for a synthetic reply."""
    content: bytes = b""
    """Body to send."""
    side: SideRequest | None = None
    """Kind of a request that the program makes beside its loop. None for one of its loop."""
    is_last: bool = False
    strips_usage: bool = False
    """Whether the program did not ask for the usage that is now in the stream."""
    made_text: str = ""
    """Text of a synthetic reply."""
    input_tokens: int = 0
    """Estimate."""
    started_at: float = 0.0

    @property
    def is_of_loop(self) -> bool:
        """True for a request of the program's loop, False for one beside it."""
        return self.side is None and self.inbound.route.access is Access.GOVERNED

    @property
    def purpose(self) -> str:
        """Purpose of the request, for events."""
        if self.is_last:
            return Purpose.GRACE.value
        return Purpose.TURN.value if self.turn is not None and self.turn.counts else "side"
