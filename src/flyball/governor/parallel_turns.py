"""Turns of several conversations at once, from any thread or task, on the budgets of one run."""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .._internal import validation
from ..budget.run_budget import Refusal
from ..budget.spending import NO_HOLDS, Holds, add_holds
from ..result import Stop
from .reservation import Need, Reservation, Reserver
from .reserved_turn import ReservedTurn

if TYPE_CHECKING:
    from .governed_run import GovernedRun  # cycle: its type only; a GovernedRun has the parallel turns
    from .turn import Turn

_IDLE_S = 300.0
"""Seconds without a turn after which a conversation may be over."""
LIMIT_STOPS = frozenset({Stop.BUDGET, Stop.DEADLINE})
"""Stop reasons after which other conversations may go on."""


@dataclass(slots=True)
class ConversationState:
    """Progress of one conversation."""

    turns: int = 0
    has_grace: bool = False
    """True once its grace turn was given."""
    kept: Holds = NO_HOLDS
    """Tokens and money that are reserved for its report. A turn in progress has them itself."""
    may_be_over: bool = False
    """True if its last reply called no tools, or was not delivered."""
    last_at: float = 0.0
    """Clock time at which its last turn ended."""


@dataclass(slots=True)
class Loan:
    """Reserve of a conversation's report while a request of it is being reserved."""

    kept: Holds = NO_HOLDS
    is_used: bool = False

    def use(self, turn: ReservedTurn | None) -> ReservedTurn | None:
        """Keep the reserve if a turn has it now, and return the turn."""
        self.is_used = turn is not None
        return turn


class ParallelTurns:
    """Begins turns of conversations. Each takes three steps: prepare, reserve (which may wait), start."""

    def __init__(self, run: GovernedRun) -> None:
        self._run = run
        self.reserver = Reserver(run.spending, run.shared, run.now, partial(run.is_over, LIMIT_STOPS))
        self.reserver.drop_report = self._drop_report
        self._first_turns = run.envelope.budgets["turns"].ceiling
        self._conversations: dict[Hashable, ConversationState] = {}
        self.open: set[Turn] = set()
        """Turns in progress."""

    @property
    def is_reporting(self) -> bool:
        """True while a conversation has its grace turn."""
        return any(turn.grace for turn in self.open)

    def prepare(self, input_tokens: int | None, max_output_tokens: int | None) -> Need | None:
        """Return the need of a turn. None if the run has ended, or the input is too long."""
        return self.check(self._build_need(input_tokens, max_output_tokens, turns=1))

    def check(self, need: Need) -> Need | None:
        """Return the need of a turn. None if the run has ended, or the input is too long."""
        run = self._run
        with run.lock:
            if run.is_over(LIMIT_STOPS):
                return None
        if run.ending.is_out_of_time:
            self.record_refusal(run.envelope.refuse("seconds"))
            return None
        context_tokens = run.envelope.context_tokens
        if context_tokens is not None and need.input_tokens > context_tokens:
            self.record_refusal(run.envelope.refuse("context_tokens"))
            return None
        return need

    def start(self, conversation: Hashable, reserved: Reservation | Refusal | None) -> ReservedTurn | None:
        """Start the turn that was reserved; return None if it was refused, or the run ended meanwhile."""
        run = self._run
        if isinstance(reserved, Refusal):
            self.record_refusal(reserved)
            return None
        if reserved is None:
            return None
        with run.lock:
            if run.is_over(LIMIT_STOPS):
                reserved.release()
                return None
            if not reserved.need.is_pending:
                reserved.start_turn()
            state = self._conversations.setdefault(conversation, ConversationState())
            if not reserved.need.turns:
                turn = run.start_side_request(conversation, reserved)
            else:
                turn = run.start_reserved_turn(conversation, reserved)
                state.turns += turn is not None
            if turn is not None:
                self.open.add(turn)
            return turn

    def renew(self, conversation: Hashable) -> None:
        """Grant fresh turns and seconds, and the conversation another report."""
        run = self._run
        envelope, turns = run.envelope, run.envelope.budgets["turns"]
        with run.lock:
            if run.is_over(LIMIT_STOPS):
                return
            if self._first_turns is not None and turns.ceiling is not None:
                missing = self._first_turns + turns.used - turns.ceiling
                if missing > 0:
                    turns.extend(missing, by="task")
            if math.isfinite(envelope.hard_at):
                run.renew_seconds(run.now() + envelope.seconds - envelope.hard_at)
            run.ending.stops -= LIMIT_STOPS
            run.ending.warning = None
            if conversation in self._conversations:
                self._conversations[conversation].has_grace = False

    @contextmanager
    def borrow_report(self, conversation: Hashable, *, from_turns: bool) -> Generator[Loan]:
        """Take what is reserved for the report of a conversation, and give it back if it is not used.

        With `from_turns` also from a turn of the conversation in progress.
        """
        loan = Loan()
        with self._run.lock:
            state = self._conversations.get(conversation)
            if state is not None:
                state.kept, loan.kept = NO_HOLDS, state.kept
                for turn in self.open if from_turns and loan.kept == NO_HOLDS else ():
                    if isinstance(turn, ReservedTurn) and turn.conversation == conversation:
                        turn.kept, loan.kept = NO_HOLDS, turn.kept
                        break
        try:
            yield loan
        finally:
            if state is not None and not loan.is_used:
                state.kept = add_holds((state.kept, loan.kept))

    def finish(self, turn: Turn) -> None:
        """Keep what is reserved for the report of a turn's conversation, after the turn."""
        self.open.discard(turn)
        state = self._conversations.get(turn.conversation)
        if state is None or not isinstance(turn, ReservedTurn):
            return
        if not turn.took_place and turn.counts:
            state.turns -= not turn.grace
            state.has_grace = state.has_grace and not turn.grace
        lower, higher = sorted((turn.kept, state.kept))
        turn.kept = NO_HOLDS
        if state.has_grace:
            lower, higher = add_holds((lower, higher)), NO_HOLDS
        self.reserver.release_report(lower)
        state.kept, state.may_be_over, state.last_at = higher, turn.may_be_over, self._run.now()

    def _drop_report(self) -> bool:
        """Release the reserve of the latest conversation that may be over. The first one keeps its own longest."""
        with self._run.lock:
            idle_since = self._run.now() - _IDLE_S
            for state in reversed(self._conversations.values()):
                if state.kept != NO_HOLDS and (state.may_be_over or state.last_at < idle_since):
                    self.reserver.release_report(state.kept)
                    state.kept = NO_HOLDS
                    return True
        return False

    def prepare_grace(
        self, conversation: Hashable, input_tokens: int | None, max_output_tokens: int | None
    ) -> Need | None:
        """Take the grace turn of a conversation and return its need. None if it has none, or not now."""
        shares = self.open_grace(conversation)
        if not shares:
            return None
        return self._build_need(input_tokens, max_output_tokens, is_grace=True, shares=shares)

    def open_grace(self, conversation: Hashable) -> int:
        """Give the grace turn to a conversation.

        Returns the number of conversations that may report, including this one. 0 if it has no grace turn, or not now.
        """
        run = self._run
        with run.lock:
            state = self._conversations.get(conversation)
            if state is None or not state.turns or state.has_grace or not run.may_enter_grace():
                return 0
            state.has_grace = True
            return 1 + sum(not other.has_grace for other in self._conversations.values() if other.turns)

    def start_grace(self, conversation: Hashable, reserved: Reservation | Refusal | None) -> ReservedTurn | None:
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

    def record_refusal(self, refusal: Refusal) -> None:
        """Record that a limit was reached. Conversations may still report."""
        run = self._run
        with run.lock:
            if not run.is_closing:
                stop = Stop.DEADLINE if refusal.budget == "seconds" else Stop.BUDGET
                run.ending.meet_limit(stop, refusal.warning)
        run.tell_refusals()
