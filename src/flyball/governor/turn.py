"""Turn of a governed loop: claims before acting, and usage after it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .._internal import validation
from ..budget.deadline import Deadline, DeadlineToken
from ..budget.spending import NO_HOLDS, Holds, add_holds
from ..budget.usage import Usage
from ..errors import UsageError
from ..event import Refunded, Retried
from ..outcome import Outcome
from .govern_options import Unsettled

if TYPE_CHECKING:
    from .governed_run import GovernedRun  # cycle: its type only; a GovernedRun opens the turns
    from .model_card import GovernedModel

P = ParamSpec("P")
R = TypeVar("R")
NO_USAGE = Usage()


class Turn:
    """Iteration of a governed loop.

    `grace` is true in the last turn: write a report, without tools.
    """

    __slots__ = (
        "_closed", "_holds", "_is_calling", "_is_input_held", "_is_output_held", "_output", "_refund_reason",
        "_report_at", "_run", "_spending", "_unsettled_call", "denied", "envelope", "grace", "messages_to_add",
        "number", "question", "requests", "took_place",
    )  # fmt: skip

    conversation: Hashable = None
    """Conversation that `begin_turn` got. None in a loop over the run."""
    counts: bool = True
    """Whether this is a turn. False for a request beside the turns, such as one for a title."""
    card: GovernedModel | None = None
    """Model of the turn's requests. None means that of the run."""

    def __init__(self, run: GovernedRun, number: int, *, grace: bool) -> None:
        self.number = number
        self.grace = grace
        rules = run.active_rules
        self.messages_to_add = () if rules is None else rules.pop_notices(grace=grace)
        """Notices for the model. Add them after the newest message, for this request only."""
        self.requests = 0
        self.took_place = True
        """False once the turn has ended and was refunded because its request never started."""
        self.denied: str | None = None
        """Reason why a rule denied the last claimed call. None if no rule did."""
        self.question: str | None = None
        """Question to a person that would lift that denial. None if there is none."""
        self.envelope = run.envelope
        """Budgets and deadlines of the run."""
        if grace:
            self._report_at = min(run.envelope.hard_at, run.now() + run.report.seconds)
        self._run = run
        self._spending = run.spending
        self._holds: list[Holds] = []
        self._output: int | None = None
        self._refund_reason: str | None = None
        self._is_input_held = self._is_output_held = self._closed = self._is_calling = False
        self._unsettled_call: int | None = None
        """Number of requests before a call whose reply had no usage. It counts until a request is settled."""

    @property
    def deadline(self) -> Deadline:
        """Deadline of this turn: the end of work, or of the report in the grace turn."""
        return Deadline(self._report_at, self.envelope.clock) if self.grace else self.envelope.work

    def remaining_s(self) -> float:
        """Return the seconds until this turn must end."""
        return max(0.0, (self._report_at if self.grace else self.envelope.work_at) - self._run.now())

    @property
    def model(self) -> str | None:
        """Model that a rule selected. None means no rule did."""
        return None if self._run.active_rules is None else self._run.active_rules.model

    def expect(self, input_tokens: int) -> bool:
        """Reserve the input tokens of the next request.

        Call it before reading `max_output_tokens`. Returns False if the input does not fit.
        """
        validation.check_amount("tokens", input_tokens)
        with self.envelope.lock:
            if self._closed:
                raise self._ended_error("expect()")
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
        self._run.tell_refusals()
        return False

    @property
    def max_output_tokens(self) -> int | None:
        """Maximum tokens of the reply. None means no limit.

        Reading it reserves that many tokens until `settle()`.
        """
        with self.envelope.lock:
            if not self._is_output_held:
                if self._closed:
                    raise self._ended_error("max_output_tokens")
                self._is_output_held = True
                self._output = self._hold_output()
            return self._output

    def settle(self, usage: object, *, service_tier: str | None = None) -> None:
        """Record the usage of a request.

        Accepts a `Usage`, or the usage reported by OpenAI or Anthropic as a mapping or an object. None, or no tokens at
        all, means that the server did not report it: `govern(unsettled=)` decides. A turn may make several requests,
        one after the other; each is reserved and settled separately. `service_tier` is the tier that the reply names.
        It counts if it has a price of its own.
        """
        used, lock = NO_USAGE if usage is None else Usage.of(usage), self.envelope.lock
        lock.acquire()  # here and below: `with` takes twice as long
        try:
            if self._closed:
                raise self._ended_error("settle()")
            if used.input or used.output:
                self._settle_usage(used, service_tier)
            else:
                self._settle_unreported()
            self._holds.clear()  # `_end_request` without a call
            self._is_input_held = self._is_output_held = False
            self.requests += 1
        finally:
            lock.release()

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call a model client within the time of this turn, and record the usage of its reply.

        `turn.call(client.chat.completions.create, model=..., messages=...)`. Returns None when the time is over; the
        loop then gets its grace turn. Other errors of the client are raised. Temporary ones are retried within the
        budget `retries`, instead of the client's own retries.
        """
        from .client_call import ClientCall  # imported here, because few loops need it

        return ClientCall(self, function, args, kwargs).run()

    async def acall(self, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call an async model client in the same way as `call`."""
        from .client_call import ClientCall

        return await ClientCall(self, function, args, kwargs).arun()

    @contextmanager
    def calling(self) -> Generator[None]:
        """Make one call at a time. An earlier one whose usage was not settled counts first, so that none is free."""
        with self.envelope.lock:
            if self._is_calling:
                raise UsageError(
                    f"turn {self.number} has a call in progress: make its calls one after the other, or begin a turn "
                    "for each with run.begin_turn(...)"
                )
            if self._unsettled_call == self.requests and not self._closed:
                self._settle_unreported()
                self._end_request()
            self._is_calling = True
        try:
            yield
        finally:
            self._is_calling = False

    def expect_settling(self) -> None:
        """Expect `settle` for the last call, whose reply had no usage. Without it the reservation counts."""
        self._unsettled_call = self.requests

    def claim_retry(self) -> bool:
        """Claim another attempt of a request that failed; return False if no retry is left."""
        if self.envelope.claim(retries=1):
            return True
        self._run.tell_refusals()
        return False

    def tell_retry(self, attempt: int, pause_s: float, reason: str) -> None:
        """Record another attempt."""
        self._run.tell(Retried, attempt, pause_s, reason)

    def run_out_of_time(self, error: Exception) -> None:
        """Have no turn follow but the grace turn, because waiting after this error would take longer than the run."""
        if not self.grace:  # the grace turn has another reason
            self._run.ending.run_out_of_time(error)

    def drop_reservation(self) -> None:
        """Release the reservation of a request that is not made."""
        with self.envelope.lock:
            self._release_holds()
            self._is_input_held = self._is_output_held = False

    def charge_request(self) -> None:
        """Count a request whose usage is unknown."""
        with self.envelope.lock:
            if not self._closed:
                self._settle_unreported(may_refuse=False)
                self._end_request()

    def release_request(self) -> None:
        """Count a request that was not billed."""
        with self.envelope.lock:
            if not self._closed:
                self._release_holds()
                self._end_request()

    def _end_request(self) -> None:
        self._holds.clear()
        self._is_input_held = self._is_output_held = False
        self.requests += 1

    def claim_tool(self, name: str, arguments: Mapping[str, Any] | None = None, *, is_approved: bool = False) -> bool:
        """Claim a tool call; return False if it is not allowed.

        A call is refused when no calls or no time for work are left, in the grace turn, and after the turn. Rules may
        deny it too; `denied` has their reason. A rule that asks a person denies it unless `is_approved`; `question` has
        what to ask.
        """
        rules, envelope = self._run.active_rules, self.envelope
        if rules is not None:
            denial = rules.find_veto(name, arguments or {}, is_approved=is_approved)
            self.denied, self.question = denial or (None, None)
            if denial is not None:
                return False
        envelope.lock.acquire()
        try:
            if self.grace or self._closed:
                return False
            if self._run.now() >= envelope.work_at:
                envelope.refuse("seconds")
            elif self._claim_call(name):
                return True
        finally:
            envelope.lock.release()
        self._run.tell_refusals()
        return False

    def tool_ended(self, outcome: Outcome) -> None:
        """Report the outcome of a call to the rules.

        `outcome` is a Success, Failure or Timeout of `flyball.outcome`.
        """
        if self._run.active_rules is not None:
            self._run.active_rules.record_outcome(outcome)

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
            refunded = self._refund_turn(reason)
            self._refund_reason = reason if refunded else None
        if refunded:
            self._run.tell(Refunded, "turns", refunded, reason)
        return refunded

    def end(self) -> None:
        """End this turn, which `begin_turn` or `enter_grace` returned. Any thread may call it, more than once."""
        self._run.end_turn(self)

    def close(self) -> None:
        """End the turn; a request without a reported usage is settled as `govern(unsettled=)` says."""
        with self.envelope.lock:
            self._closed = True
            if self._holds or not self.requests:
                self._close_unsettled()

    def _close_unsettled(self) -> None:
        if not self.requests and self._refund_reason == "round_never_started":
            self.took_place = False
            self._release_holds()
            return
        self._settle_unreported()
        self._holds.clear()
        self.requests = self.requests or 1

    def _settle_unreported(self, *, may_refuse: bool = True) -> None:
        """Settle a request without a reported usage at its reservation, because a limit must assume the worst."""
        spending, run = self._spending, self._run
        if run.unsettled == Unsettled.IGNORE:
            self._release_holds()
            spending.estimated_requests += 1
            return
        input_tokens = 0 if self._is_input_held else spending.likely_input_tokens
        if spending.is_limited and not self._is_output_held:
            self._hold_output()
        spending.settle_estimate(add_holds(self._holds), input_tokens, model=self.card)
        if may_refuse and run.unsettled == Unsettled.REFUSE:
            run.ending.fail(
                UsageError(
                    f"turn {self.number} has no usage, and unsettled='refuse' ends the run then: pass the usage of the "
                    "reply to turn.settle(), or ask the server for it (stream_options={'include_usage': True})"
                )
            )

    def _settle_usage(self, used: Usage, service_tier: str | None) -> None:
        tiers = self._run.tier_prices if self.card is None else self.card.tier_prices
        price = None if service_tier is None else tiers.get(service_tier)
        self._spending.settle(add_holds(self._holds), used, price, self.card)

    def _release_holds(self) -> None:
        self._spending.release(add_holds(self._holds))
        self._holds.clear()

    def _claim_call(self, tool: str) -> bool:
        return self.envelope.claim_tool_call(tool)

    def _refund_turn(self, reason: str) -> int:
        return self.envelope.budgets["turns"].refund(reason=reason)

    def _ended_error(self, operation: str) -> UsageError:
        return UsageError(f"turn {self.number} has ended: use {operation} before the next turn starts")

    def _hold_output(self) -> int | None:
        # `expect()` has already reserved the input; otherwise leave room for the largest input so far.
        spending, run = self._spending, self._run
        max_output_tokens = run.max_report_tokens if self.grace else run.max_output_tokens
        if not spending.is_limited:  # nothing to reserve, and a reply that is never reported costs no guess
            return max_output_tokens
        input_tokens = 0 if self._is_input_held else spending.largest_input_tokens
        if spending.price is None:  # only tokens to reserve: one step
            max_tokens = math.inf if max_output_tokens is None else input_tokens + max_output_tokens
            held = run.tokens.reserve(input_tokens + 1, max_tokens)
            if held:
                self._holds.append((held, 0))
                return held - input_tokens
        room = spending.compute_max_output(input_tokens)
        output = min((limit for limit in (room, max_output_tokens) if limit is not None), default=None)
        if output:
            self._holds.append(spending.hold(input_tokens, output) or NO_HOLDS)
        return output
