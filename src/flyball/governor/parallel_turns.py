"""Turns of several conversations at once, from any thread or task, on the budgets of one run."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .._internal import validation
from ..budget.run_budget import Refusal
from ..result import Stop
from .reservation import Need, Reservation, Reserver

if TYPE_CHECKING:
    from .governed_run import GovernedRun  # cycle: its type only; a GovernedRun has the parallel turns
    from .turn import Turn

LIMIT_STOPS = frozenset({Stop.BUDGET, Stop.DEADLINE})
"""Stop reasons after which other conversations may go on."""


@dataclass(slots=True)
class ConversationState:
    """Progress of one conversation."""

    turns: int = 0
    has_grace: bool = False
    """True once its grace turn was given."""


class ParallelTurns:
    """Begins turns of conversations. Each takes three steps: prepare, reserve (which may wait), start."""

    def __init__(self, run: GovernedRun) -> None:
        self._run = run
        self.reserver = Reserver(run.spending, run.shared, run.now, partial(run.is_over, LIMIT_STOPS))
        self._conversations: dict[Hashable, ConversationState] = {}
        self.open: set[Turn] = set()
        """Turns in progress."""

    def prepare(self, input_tokens: int | None, max_output_tokens: int | None) -> Need | None:
        """Return the need of a turn. None if the run has ended, or the input is too long."""
        run = self._run
        with run.lock:
            if run.is_over(LIMIT_STOPS):
                return None
        need = self._build_need(input_tokens, max_output_tokens, turns=1)
        context_tokens = run.envelope.context_tokens
        if context_tokens is not None and need.input_tokens > context_tokens:
            self._record_refusal(run.envelope.refuse("context_tokens"))
            return None
        return need

    def start(self, conversation: Hashable, reserved: Reservation | Refusal | None) -> Turn | None:
        """Start the turn that was reserved; return None if it was refused, or the run ended meanwhile."""
        run = self._run
        if isinstance(reserved, Refusal):
            self._record_refusal(reserved)
            return None
        if reserved is None:
            return None
        with run.lock:
            if run.is_over(LIMIT_STOPS):
                reserved.release()
                return None
            reserved.start_turn()
            state = self._conversations.setdefault(conversation, ConversationState())
            turn = run.start_reserved_turn(conversation, reserved)
            if turn is not None:
                state.turns += 1
                self.open.add(turn)
            return turn

    def prepare_grace(
        self, conversation: Hashable, input_tokens: int | None, max_output_tokens: int | None
    ) -> Need | None:
        """Take the grace turn of a conversation and return its need. None if it has none, or not now."""
        run = self._run
        with run.lock:
            state = self._conversations.get(conversation)
            if state is None or not state.turns or state.has_grace or not run.may_enter_grace():
                return None
            shares = sum(not other.has_grace for other in self._conversations.values() if other.turns)
            state.has_grace = True
        return self._build_need(input_tokens, max_output_tokens, is_grace=True, shares=shares)

    def start_grace(self, conversation: Hashable, reserved: Reservation | Refusal | None) -> Turn | None:
        """Start the grace turn that was reserved; return None if it does not fit."""
        run = self._run
        with run.lock:
            if isinstance(reserved, Reservation):
                if run.may_enter_grace():
                    turn = run.start_reserved_grace(conversation, reserved)
                    self.open.add(turn)
                    return turn
                reserved.release()
            self._conversations[conversation].has_grace = False  # it was not given
        run.tell_refusals()
        return None

    def _build_need(
        self,
        input_tokens: int | None,
        max_output_tokens: int | None,
        turns: int = 0,
        *,
        is_grace: bool = False,
        shares: int = 1,
    ) -> Need:
        run = self._run
        validation.check_optional_int("turn, input_tokens", input_tokens)
        validation.check_optional_int("turn, max_output_tokens", max_output_tokens)
        longest = run.max_report_tokens if is_grace else run.max_output_tokens
        caps = [cap for cap in (max_output_tokens, longest) if cap is not None]
        tokens = run.spending.likely_input_tokens if input_tokens is None else input_tokens
        return Need(tokens, min(caps, default=None), turns, is_grace, shares)

    def _record_refusal(self, refusal: Refusal) -> None:
        run = self._run
        with run.lock:
            if not run.is_closing:
                run.ending.stops.add(Stop.DEADLINE if refusal.budget == "seconds" else Stop.BUDGET)
                run.ending.warning = run.ending.warning or refusal.warning
        run.tell_refusals()
