"""Turn of a governed loop: claims before acting, and usage after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .._internal import validation
from ..budget.deadline import Deadline, DeadlineToken
from ..budget.run_budget import TurnBudget
from ..budget.spending import Holds, Spending
from ..budget.usage import Usage
from ..errors import UsageError
from ..event import Refunded
from ..outcome import Outcome
from ..recorder import Teller
from .active_rules import ActiveRules


class Turn:
    """Iteration of a governed loop.

    `grace` is true in the last turn: write a report, without tools.
    """

    def __init__(
        self,
        number: int,
        spending: Spending,
        *,
        grace: bool,
        max_output_tokens: int | None,
        teller: TurnTeller,
        active_rules: ActiveRules | None = None,
    ) -> None:
        self.number = number
        self.grace = grace
        self.messages_to_add = () if active_rules is None else active_rules.pop_notices(grace=grace)
        """Notices for the model. Add them after the newest message, for this request only."""
        self.requests = 0
        self.took_place = True
        """False once the turn has ended and was refunded because its request never started."""
        self._spending = spending
        self._max_output_tokens = max_output_tokens
        self._teller = teller
        self._active_rules = active_rules
        self.denied: str | None = None
        """Reason why a rule denied the last claimed call. None if no rule did."""
        self._holds: list[Holds] = []
        self._is_input_held = False
        self._output: int | None = None
        self._is_output_held = False
        self._refund_reason: str | None = None
        self._closed = False

    @property
    def envelope(self) -> TurnBudget:
        """Budgets and deadlines of the run."""
        return self._spending.envelope

    @property
    def deadline(self) -> Deadline:
        """Deadline of this turn: the end of work, or of the run in the grace turn."""
        return self.envelope.hard if self.grace else self.envelope.work

    def remaining_s(self) -> float:
        """Return the seconds until this turn must end."""
        return self.deadline.remaining

    @property
    def model(self) -> str | None:
        """Model that a rule selected. None means no rule did."""
        return None if self._active_rules is None else self._active_rules.model

    def expect(self, input_tokens: int) -> bool:
        """Reserve the input tokens of the next request.

        Call it before reading `max_output_tokens`. Returns False if the input does not fit.
        """
        validation.check_amount("tokens", input_tokens)
        with self.envelope.lock:
            self._require_open("expect()")
            self._spending.is_input_expected = self._is_input_held = True
            context = self.envelope.context_tokens
            if context is not None and input_tokens > context:
                self.envelope.refuse("context_tokens")
                holds = None
            else:
                holds = self._spending.hold(input_tokens, 0)
            if holds is not None:
                self._holds.append(holds)
                return True
            self._is_output_held, self._output = True, 0  # no room for a reply, if the loop continues anyway
        self._teller.tell_refusals()
        return False

    @property
    def max_output_tokens(self) -> int | None:
        """Maximum tokens of the reply. None means no limit.

        Reading it reserves that many tokens until `settle()`.
        """
        with self.envelope.lock:
            if not self._is_output_held:
                self._require_open("max_output_tokens")
                self._is_output_held = True
                self._output = self._hold_output()
            return self._output

    def settle(self, usage: object) -> None:
        """Record the usage of a request.

        Accepts a `Usage`, or the usage reported by OpenAI or Anthropic as a mapping or an object. A turn may make
        several requests, one after the other; each is reserved and settled separately.
        """
        used = Usage.of(usage)
        with self.envelope.lock:
            self._require_open("settle()")
            self._spending.settle(self._holds, used)
            self._holds.clear()
            self._is_input_held = self._is_output_held = False
            self.requests += 1

    def claim_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> bool:
        """Claim a tool call; return False if it is not allowed.

        A call is refused when no calls or no time for work are left, in the grace turn, and after the turn. Rules may
        deny it too; `denied` has their reason.
        """
        self.denied = None if self._active_rules is None else self._active_rules.find_veto(name, arguments or {})
        if self.denied is not None:
            return False
        with self.envelope.lock:
            if self.grace or self._closed:
                return False
            if self.envelope.is_expired():
                self.envelope.refuse("seconds")
            elif self.envelope.claim_tool_call(name):
                return True
        self._teller.tell_refusals()
        return False

    def tool_ended(self, outcome: Outcome) -> None:
        """Report the outcome of a call to the rules.

        `outcome` is a Success, Failure or Timeout of `flyball.outcome`.
        """
        if self._active_rules is not None:
            self._active_rules.record_outcome(outcome)

    def token(self, tool: str | None = None, cap_s: float | None = None) -> DeadlineToken:
        """Create a token that tells a tool when to stop.

        It expires with the work time of the run, after `cap_s` seconds, or after the tool's own limit.
        """
        return DeadlineToken.from_budget(self.envelope, cap_s, tool)

    def refund(self, reason: str) -> int:
        """Refund this turn once, if its request never started or was cheap.

        Returns 1, or 0 if it cannot be refunded.
        """
        with self.envelope.lock:
            if self.grace or self._closed or self._refund_reason is not None:
                return 0
            refunded = self.envelope.budgets["turns"].refund(reason=reason)
            self._refund_reason = reason if refunded else None
        if refunded:
            self._teller.tell(Refunded, "turns", refunded, reason)
        return refunded

    def close(self) -> None:
        """End the turn; unsettled reservations count as used in full."""
        with self.envelope.lock:
            self._closed = True
            self.took_place = bool(self.requests) or self._refund_reason != "round_never_started"
            if self._holds or not (self.requests or self._refund_reason):
                self._spending.settle_estimate(self._holds)
            self._holds.clear()
            self.requests = max(1, self.requests)

    def _require_open(self, operation: str) -> None:
        if self._closed:
            raise UsageError(f"turn {self.number} has ended: use {operation} before the next turn starts")

    def _hold_output(self) -> int | None:
        # `expect()` has already reserved the input; otherwise leave room for the largest input so far.
        input_tokens = 0 if self._is_input_held else self._spending.largest_input_tokens
        room = self._spending.compute_max_output(input_tokens)
        output = min((limit for limit in (room, self._max_output_tokens) if limit is not None), default=None)
        if output:
            self._holds.append(self._spending.hold(input_tokens, output) or {})
        return output


class TurnTeller(Teller, Protocol):
    """Recorder of the events of a turn."""

    def tell_refusals(self) -> None:
        """Record the budgets that refused since the last call."""
        ...
