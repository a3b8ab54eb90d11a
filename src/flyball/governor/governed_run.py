"""Open run of a governed loop: claims its turns, records its events and builds its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from threading import get_ident
from typing import Any

from .. import event
from ..budget.limits import ResolvedLimits
from ..budget.price import Unpriced
from ..budget.remedy import describe_refusal_remedy
from ..budget.run_budget import TurnBudget
from ..budget.spending import Spending
from ..errors import UsageError
from ..progress import Point
from ..recorder import Fields, Recorder
from ..result import Result, Stop, read_facts
from ..rules import RuleSet
from .active_rules import ActiveRules
from .ending import RunEnding
from .govern_options import GovernOptions
from .turn import Turn


class GovernedRun:
    """Run of a governed loop, from `start()` to `close()`. Iterating over it claims turns."""

    def __init__(self, options: GovernOptions, ending: RunEnding) -> None:
        self._limits = options.limits.resolve(options.registry, grace=options.grace)
        self._has_grace = options.grace
        self.envelope = _open_envelope(options, self._limits)
        """Budgets and deadlines of the run."""
        self.spending = Spending(self.envelope, options.price, options.model)
        self.tokens = self.envelope.budgets["tokens"]
        self.max_output_tokens = options.max_output_tokens
        self.active_rules: ActiveRules | None = None
        self.now = options.clock.now
        self.result: Result | None = None
        """Result, after `close()`."""
        self.ending = ending
        self.lock = ending.lock
        header = event.Header(options.run_id, options.session_id, options.clock.wall(), dict(options.metadata))
        self._recorder = Recorder(header, options.sinks, options.events_kept)
        self._pending_events: list[Callable[[], None]] = []
        """Functions that record the events from other threads."""
        self._emitted_refusals = 0
        self._thread = get_ident()
        self._started = self.now()
        self._turn_budget = self.envelope.budgets["turns"]
        self._turn: Turn | None = None
        self._number = 0
        self._turns = 0
        """Turns that took place. Refunds do not lower it."""
        self._requests = 0
        self._is_grace = False
        self._is_closing = False

    def start(self, rules: RuleSet | None, metadata: Mapping[str, Any]) -> None:
        """Record the start, and consult the rules."""
        self.tell(event.RunStarted, self.envelope.snapshot(), None)
        if rules is not None:
            max_extension_s = max(0.0, self._limits.max_extended_seconds - self._limits.seconds)
            run_id = self._recorder.header.run_id
            self.active_rules = ActiveRules(rules, self, run_id, self.envelope, metadata, max_extension_s)
            self._consult_rules(Point.RUN_STARTED)

    def complete(self, text: str) -> None:
        """End the run with its answer, or set the report in the grace turn."""
        self.ending.text = text
        if not self._is_grace:
            self.ending.stops.add(Stop.COMPLETED)

    def postpone(self, seconds: float, reason: str) -> None:
        """Move the deadline by `seconds`."""
        self.envelope.postpone(seconds, reason)
        self.tell(event.Postponed, seconds, reason)

    def halt(self, by: str, message: str, *, grace: bool) -> None:
        """End the run when the loop asks for its next turn."""
        if not self._is_closing:
            self.ending.halt(by, message, grace=grace and self._has_grace)

    def tell(self, kind: Callable[[int, float, int, event.Header, *Fields], event.Event], *fields: *Fields) -> None:
        """Record an event, or keep one from another thread until the loop's thread records its next one.

        Sinks run on the loop's thread only, one event at a time, in the order of the events.
        """
        recorder = self._recorder
        record = recorder.stream if kind in event.STREAMED else recorder.emit
        if get_ident() != self._thread:
            with self.lock:
                if self.result is None:
                    self._pending_events.append(partial(record, kind, *fields))
            return
        while self._pending_events:
            recorder.at = self.now() - self._started
            self._pending_events.pop(0)()
        if self.result is None:
            recorder.at = self.now() - self._started
            record(kind, *fields)

    def tell_refusals(self) -> None:
        """Record the budgets that refused since the last call."""
        if self.envelope.refusal_count == self._emitted_refusals:
            return
        with self.lock:
            refusals = self.envelope.refusals[self._emitted_refusals :]
            self._emitted_refusals += len(refusals)
        for refusal in refusals:
            self.tell(
                event.BudgetRefused, refusal.budget, refusal.flag, describe_refusal_remedy(refusal, self.envelope)
            )
            if get_ident() == self._thread:
                self._consult_rules(Point.BUDGET_REFUSED, refusal.budget)

    def __iter__(self) -> GovernedRun:
        return self

    def __next__(self) -> Turn:
        if self._turn is not None:
            self._close_turn(self._turn)
        ending = self.ending
        if not ending.stops:
            refused_budget = self._claim_turn()
            if refused_budget is not None:
                return self._end_by_refusal(refused_budget)
            if self._try_start_turn():
                self._turn = turn = Turn(self, self._number, grace=False)
                return turn
        if ending.stops == {Stop.HALTED} and ending.halts_with_grace and not self._is_grace:
            return self._open_grace_turn()
        raise StopIteration

    def close(self, error: BaseException | None) -> None:
        """End the run and build its result. `error` is the exception that left the block, or None."""
        if self._turn is not None:
            self._close_turn(self._turn)
        ending = self.ending
        if isinstance(error, Exception | SystemExit):
            ending.fail(error)
        elif error is not None:  # Ctrl-C, GeneratorExit, or the cancellation of asyncio or trio
            ending.cancel()
        if not ending.stops:
            ending.stops.add(Stop.HALTED)
        self._is_closing = True
        with self.lock:
            stop = ending.stop  # decided before rules and sinks run again
            by, failure = ending.origin_of(stop), ending.error_of(stop)
            self.envelope.close()
            self.tell_refusals()
            self._consult_rules(Point.RUN_ENDED, stop.value)
            self.result = self._build_result(stop, by, failure)
            ending.is_final = True

    def _claim_turn(self) -> str | None:
        """Claim the next turn, or return the name of the budget that refused."""
        envelope, spending = self.envelope, self.spending
        if self.now() >= envelope.work_at:
            return "seconds"
        with envelope.lock:
            short = spending.find_short_budgets(spending.likely_input_tokens)
            for name in short:
                envelope.refuse(name)
            if short:
                return short[0]
            return None if self._turn_budget.consume() else "turns"

    def _end_by_refusal(self, budget: str) -> Turn:
        """Stop the run because of a budget; return the grace turn, or raise StopIteration."""
        self.ending.stops.add(Stop.DEADLINE if budget == "seconds" else Stop.BUDGET)
        self.ending.warning = self.envelope.refuse(budget).warning
        self.tell_refusals()
        if not self._has_grace:
            raise StopIteration
        return self._open_grace_turn()

    def _open_grace_turn(self) -> Turn:
        """Open the reserve and return the grace turn, or raise StopIteration if no request fits into it."""
        self.envelope.open_reserve()
        if self.envelope.hard.expired or self.spending.find_short_budgets(self.spending.likely_input_tokens):
            raise StopIteration
        self._is_grace = True
        self.tell(event.GraceStarted, self.ending.stop.value)
        self._turn = turn = Turn(self, self._number, grace=True)
        return turn

    def _try_start_turn(self) -> bool:
        """Start the claimed turn, or refund it if a rule stops the run first."""
        self._number = self._recorder.turn = self._number + 1
        self.tell(event.TurnStarted)
        envelope = self.envelope
        for warning in envelope.warnings.take(envelope, self.now()):
            self.tell(event.BudgetWarned, *warning)
        if self.active_rules is not None:
            self._consult_rules(Point.TURN_STARTED)
        if not self.ending.stops:
            return True
        refunded = self._turn_budget.refund(reason="round_never_started")
        if refunded:
            self.tell(event.Refunded, "turns", refunded, "round_never_started")
        self.tell(event.TurnEnded)
        return False

    def _consult_rules(self, point: Point, about: object = None) -> None:
        rules = self.active_rules
        if rules is not None:
            rules.progress.turn, rules.progress.requests = self._number, self._requests
            rules.progress.input_tokens = self.spending.likely_input_tokens
            rules.consult(point, about)

    def _close_turn(self, turn: Turn) -> None:
        self._turn = None
        turn.close()
        if self.envelope.has_count_changes:
            for key, change in self.envelope.take_count_changes():
                self.tell(event.CountSet, key, change.difference, change.used)
        self._requests += turn.requests
        self._turns += turn.took_place and not turn.grace
        self.tell_refusals()
        if turn.grace:
            self.tell(event.GraceEnded, bool(self.ending.text))
            return
        if self.active_rules is not None:
            self._consult_rules(Point.TURN_ENDED)
        self.tell(event.TurnEnded)

    def _build_result(self, stop: Stop, by: str | None, failure: Mapping[str, Any] | None) -> Result:
        envelope, header = self.envelope, self._recorder.header
        turns, budgets = self._turns, envelope.snapshots()
        self.tell(event.RunEnded, stop.value, by, envelope.flags, turns, self._requests, budgets)
        # The run's time does not include waiting for people. Extensions by rules are not waits.
        extended_s = 0.0 if self.active_rules is None else self.active_rules.extended_s
        waited_s = envelope.postponed_s - extended_s
        return Result(
            stop=stop,
            text=self.ending.text,
            stopped_by=by,
            flags=envelope.flags,
            warning=self.ending.warning,
            turns=turns,
            requests=self._requests,
            budgets=budgets,
            error=failure,
            run_id=header.run_id,
            session_id=header.session_id,
            metadata=header.metadata or {},
            seconds=max(0.0, self.now() - self._started - waited_s),
            **read_facts(self.spending, self._recorder),
        )


def _open_envelope(options: GovernOptions, limits: ResolvedLimits) -> TurnBudget:
    envelope = limits.open(options.clock)
    usd = envelope.budgets["usd"]
    if usd.ceiling is not None and options.price is None and options.unpriced == Unpriced.REFUSE:
        envelope.close()
        raise UsageError(
            f"the limit of {usd.unit.show(usd.ceiling)} cannot be enforced without a price: pass "
            'price=TokenPrice(input=..., output=...) to govern, or unpriced="tokens_only" to ignore the limit'
        )
    return envelope
