"""Turn whose budgets others use too: parallel turns, or runs that share a budget."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

from .._internal import validation
from ..budget.spending import add_holds
from ..budget.usage import Usage
from ..event import Refunded
from .reservation import Need, Reservation, Reserver, is_in_event_loop
from .turn import Turn

if TYPE_CHECKING:
    from ..budget.budget import Hold
    from .governed_run import GovernedRun  # cycle: its type only; a GovernedRun opens the turns


class ReservedTurn(Turn):
    """Turn whose request is reserved when it begins. Later requests wait for units that others hold."""

    __slots__ = (
        "_need",
        "_reserver",
        "_shared",
        "_turn_holds",
        "card",
        "conversation",
        "counts",
        "kept",
        "may_be_over",
    )

    def __init__(
        self, run: GovernedRun, number: int, conversation: Hashable, reserver: Reserver, reserved: Reservation
    ) -> None:
        super().__init__(run, number, grace=reserved.need.is_grace)
        self.conversation = conversation
        self._reserver = reserver
        self._shared = run.shared
        self._need = reserved.need
        self.card = reserved.need.model
        self.counts = reserved.need.turns > 0 or reserved.need.is_grace
        self._turn_holds = reserved.turns if reserved.need.is_pending else []
        self.kept = reserved.kept
        """Tokens and money that are reserved for a report of the conversation."""
        self.may_be_over = False
        """True if the conversation may be over after this turn, so that its reserve may serve others."""
        self._take(reserved)

    def confirm(self) -> None:
        """Count a pending turn, because its request began to be answered."""
        holds, self._turn_holds = self._turn_holds, []
        for hold in holds:
            hold.settle(hold.amount)

    def close(self) -> None:
        """End the turn. A pending one that was not withdrawn counts."""
        self.confirm()
        super().close()

    def withdraw(self, reason: str) -> None:
        """Give a turn back, because its request was not answered and not billed: a pending one not after `confirm`."""
        with self.envelope.lock:
            holds, self._turn_holds = self._turn_holds, []
            is_counted = bool(self._need.turns) and not self._need.is_pending
            if self._closed or not (holds or self.grace or not self._need.turns or is_counted):
                return
            for hold in holds:
                hold.release()
            if is_counted and not self._refund_turn(reason):
                return
            self.took_place = False
            self._release_holds()
            self._refund_reason = "round_never_started"
            self._reserver.release_report(self.kept)
            self.kept = self._reserver.keep(self._need.kept)
        if holds or is_counted:
            self._run.tell(Refunded, "turns", 1, "round_never_started")

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

    def settle_observed(self, input_tokens: int, output_tokens: int) -> None:
        """Settle a request whose usage was not reported at the tokens that were seen, at most at its reservation."""
        with self.envelope.lock:
            if not self._closed:
                self._spending.settle_estimate(
                    add_holds(self._holds), input_tokens, output_tokens, self.card, is_observed=True
                )
                self._renew_report(input_tokens, output_tokens)
                self._end_request()

    def _settle_usage(self, used: Usage, service_tier: str | None) -> None:
        super()._settle_usage(used, service_tier)
        self._renew_report(used.input, used.output)

    def _renew_report(self, input_tokens: int, output_tokens: int) -> None:
        """Reserve the report of the conversation again, after a request with these tokens."""
        if self._need.report_tokens is not None and not self.grace and self.counts:
            self.kept = self._reserver.renew_report(self.kept, self._need, input_tokens, output_tokens)

    def _take(self, reserved: Reservation) -> None:
        self._holds = [reserved.holds]
        self._output = reserved.max_output_tokens
        self._is_input_held = self._is_output_held = True

    def _build_need(self, input_tokens: int) -> Need:
        """Return the need of a further request of this turn."""
        run, own = self._run, self._need.max_output_tokens
        longest = run.max_report_tokens if self.grace else run.max_output_tokens
        caps = [cap for cap in (longest, own if self.card is not None else None) if cap is not None]
        return Need(input_tokens, min(caps, default=None), is_grace=self.grace, model=self.card)

    def _hold_output(self) -> int | None:
        # Only for a request without a reported usage: it has happened, so it does not wait.
        found = self._reserver.try_reserve(self._build_need(self._spending.likely_input_tokens))
        if isinstance(found, Reservation):
            self._take(found)
        return self._output

    def _claim_call(self, tool: str) -> bool:
        """Claim a tool call in the shared budgets and in the run's own, or in none."""
        holds: list[Hold] = []
        is_claimed = False
        for shared in self._shared:
            hold = shared.try_hold(tool_calls=1)
            if hold is None:
                self.envelope.remember(replace(shared.refuse("tool_calls"), is_shared=True))
                break
            holds.append(hold["tool_calls"])
        else:
            is_claimed = super()._claim_call(tool)
        for hold in holds:
            hold.settle(int(is_claimed))
        return is_claimed

    def _refund_turn(self, reason: str) -> int:
        refunded = super()._refund_turn(reason)
        for shared in self._shared if refunded else ():
            shared.budgets["turns"].refund(reason=reason)
        return refunded
