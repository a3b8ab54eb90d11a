"""One turn of a governed loop: what it may use, and what it used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .._internal import validation
from ..budget.deadline import Deadline, DeadlineToken
from ..budget.run_budget import TurnBudget
from ..budget.spending import Holds, Spending
from ..budget.usage import Usage
from ..errors import ConfigError
from ..event import Refunded
from ..outcome import Outcome
from ..recorder import Teller
from .orders import ActiveRules


class TurnTeller(Teller, Protocol):
    """Who records what happens in a turn."""

    def tell_refusals(self) -> None:
        """Record what was refused since the last time."""
        ...


class Turn:
    """What a governed loop gets each time round. `grace` is true in the last one: report, without tools."""

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
        """Notices for the model: add them behind the newest message of this request only."""
        self.requests = 0
        self._spending = spending
        self._max_output_tokens = max_output_tokens
        self._teller = teller
        self._active_rules = active_rules
        self.denied: str | None = None
        """Why the last call that was claimed may not be made, where a rule says so."""
        self._holds: list[Holds] = []
        self._is_input_held = False
        self._output: int | None = None
        self._is_output_held = False
        self._is_refunded = False
        self._closed = False

    @property
    def envelope(self) -> TurnBudget:
        """The run's budgets and deadlines."""
        return self._spending.envelope

    @property
    def deadline(self) -> Deadline:
        """When this turn must have ended: when work ends, or, in the grace turn, when the run does."""
        return self.envelope.hard if self.grace else self.envelope.work

    def remaining_s(self) -> float:
        """Seconds until this turn must have ended."""
        return self.deadline.remaining

    def expect(self, input_tokens: int) -> bool:
        """Set the coming input aside, before `max_output_tokens` is read; False where it does not fit."""
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
            self._is_output_held, self._output = True, 0  # whoever goes on all the same has no room for a reply
        self._teller.tell_refusals()
        return False

    @property
    def max_output_tokens(self) -> int | None:
        """The most tokens the reply may have; None where nothing limits it. What it says is set aside until settled."""
        with self.envelope.lock:
            if not self._is_output_held:
                self._require_open("max_output_tokens")
                self._is_output_held = True
                self._output = self._hold_output()
            return self._output

    def settle(self, usage: object) -> None:
        """Book what a request has used: a `Usage`, or what OpenAI or Anthropic report, as a mapping or an object.

        A turn may make several requests, one after the other: the next one is set aside and settled anew.
        """
        used = Usage.of(usage)
        with self.envelope.lock:
            self._require_open("settle()")
            self._spending.settle(self._holds, used)
            self._holds.clear()
            self._is_input_held = self._is_output_held = False
            self.requests += 1

    @property
    def model(self) -> str | None:
        """The model that a rule wants to be asked, if one does."""
        return None if self._active_rules is None else self._active_rules.model

    def claim_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> bool:
        """Claim a call of a tool: False where no call or time for work is left, in the report, and after the turn.

        Where there are rules, they are asked too; `denied` tells why they say no.
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
        """Tell the rules what a call came to: a Success, Failure or Timeout of `flyball.outcome`."""
        if self._active_rules is not None:
            self._active_rules.record_outcome(outcome)

    def token(self, tool: str | None = None, cap_s: float | None = None) -> DeadlineToken:
        """What a tool that stops in time looks at: it expires with this turn's work, or with the tool's own seconds."""
        return DeadlineToken.from_budget(self.envelope, cap_s, tool)

    def refund(self, reason: str) -> int:
        """Give this turn back, once, for a round that never started or was cheap: 1, or 0 where it cannot be."""
        with self.envelope.lock:
            if self.grace or self._closed or self._is_refunded:
                return 0
            given = self.envelope.budgets["turns"].refund(reason=reason)
            self._is_refunded = bool(given)
        if given:
            self._teller.tell(Refunded, "turns", given, reason)
        return given

    def close(self) -> None:
        """End the turn: what was set aside and never settled is booked whole."""
        with self.envelope.lock:
            self._closed = True
            if self._holds or not (self.requests or self._is_refunded):
                self._spending.settle_estimate(self._holds)
            self._holds.clear()
            self.requests = max(1, self.requests)

    def _require_open(self, operation: str) -> None:
        if self._closed:
            raise ConfigError(
                f"turn {self.number}, {operation}", "a turn that is over", "to come before the next turn is asked for"
            )

    def _hold_output(self) -> int | None:
        """Input that was expected is already set aside; otherwise room is left for the largest there was."""
        input_tokens = 0 if self._is_input_held else self._spending.largest_input_tokens
        room = self._spending.compute_max_output(input_tokens)
        output = min((most for most in (room, self._max_output_tokens) if most is not None), default=None)
        if output:
            self._holds.append(self._spending.hold(input_tokens, output) or {})
        return output
