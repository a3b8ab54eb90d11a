"""Turn whose budgets others use too: parallel turns, or runs that share a budget."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

from .._internal import validation
from .reservation import Need, Reservation, Reserver, is_in_event_loop
from .turn import Turn

if TYPE_CHECKING:
    from .governed_run import GovernedRun  # cycle: its type only; a GovernedRun opens the turns


class ReservedTurn(Turn):
    """Turn whose request is reserved when it begins. Later requests wait for units that others hold."""

    __slots__ = ("_reserver", "_shared", "conversation")

    def __init__(
        self, run: GovernedRun, number: int, conversation: Hashable, reserver: Reserver, reserved: Reservation
    ) -> None:
        super().__init__(run, number, grace=reserved.is_grace)
        self.conversation = conversation
        self._reserver = reserver
        self._shared = run.shared
        self._take(reserved)

    def expect(self, input_tokens: int) -> bool:
        """Reserve the next request with this input instead of the estimated one.

        Returns False if the input does not fit.
        """
        validation.check_amount("tokens", input_tokens)
        with self.envelope.lock:
            if self._closed:
                raise self._ended_error("expect()")
            self._spending.is_input_expected = True
            self._release_holds()
            self._is_input_held = self._is_output_held = False
            context = self.envelope.context_tokens
            if context is not None and input_tokens > context:
                self.envelope.refuse("context_tokens")
                self._is_output_held, self._output = True, 0
        self._reserve(input_tokens)
        return self._output != 0

    @property
    def max_output_tokens(self) -> int | None:
        """Maximum tokens of the reply, which are reserved. None means no limit."""
        with self.envelope.lock:
            if self._closed and not self._is_output_held:
                raise self._ended_error("max_output_tokens")
        self._reserve(self._spending.likely_input_tokens)
        return self._output

    def _reserve(self, input_tokens: int) -> None:
        """Reserve the next request, if it is not yet. Wait for others, unless that would block an event loop."""
        if self._is_output_held:
            return
        need = self._build_need(input_tokens)
        # Without the lock, because others need it to settle what this request waits for.
        found = self._reserver.try_reserve(need) if is_in_event_loop() else self._reserver.reserve(need)
        with self.envelope.lock:
            if self._closed or self._is_output_held:  # another thread was faster
                if isinstance(found, Reservation):
                    found.release()
            elif isinstance(found, Reservation):
                self._take(found)
            else:
                self._is_output_held, self._output = True, 0
        self._run.tell_refusals()

    def _take(self, reserved: Reservation) -> None:
        self._holds = [reserved.holds]
        self._output = reserved.max_output_tokens
        self._is_input_held = self._is_output_held = True

    def _build_need(self, input_tokens: int) -> Need:
        run = self._run
        longest = run.max_report_tokens if self.grace else run.max_output_tokens
        return Need(input_tokens, longest, is_grace=self.grace)

    def _hold_output(self) -> int | None:
        # Only for a request without a reported usage: it has happened, so it does not wait.
        found = self._reserver.try_reserve(self._build_need(self._spending.likely_input_tokens))
        if isinstance(found, Reservation):
            self._take(found)
        return self._output

    def _claim_call(self, tool: str) -> bool:
        """Claim a tool call in the shared budget and in the run's own, or in neither."""
        shared = self._shared
        if shared is None:
            return super()._claim_call(tool)
        holds = shared.try_hold(tool_calls=1)
        if holds is None:
            self.envelope.remember(replace(shared.refuse("tool_calls"), is_shared=True))
            return False
        is_claimed = super()._claim_call(tool)
        holds["tool_calls"].settle(int(is_claimed))
        return is_claimed

    def _refund_turn(self, reason: str) -> int:
        refunded = super()._refund_turn(reason)
        if refunded and self._shared is not None:
            self._shared.budgets["turns"].refund(reason=reason)
        return refunded
