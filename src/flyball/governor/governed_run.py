"""Open run of a governed loop: claims its turns, records its events and builds its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from threading import get_ident
from typing import Any

from .. import event
from ..budget.forecast import Forecast, describe_forecast
from ..budget.limits import ResolvedLimits
from ..budget.price import Unpriced
from ..budget.remedy import describe_refusal_remedy
from ..budget.run_budget import Refusal, TurnBudget
from ..budget.spending import Spending
from ..errors import UsageError
from ..progress import Point, RunPace
from ..recorder import Fields, Recorder
from ..result import Result, Stop, read_facts
from ..rules import RuleSet
from .active_rules import ActiveRules
from .ending import RunEnding
from .govern_options import GovernOptions
from .model_card import GovernedModel, find_model
from .parallel_turns import LIMIT_STOPS, ParallelTurns
from .reservation import Need, Reservation, SharedSpending
from .reserved_turn import ReservedTurn
from .turn import Turn


class GovernedRun:
    """Run of a governed loop, from `start()` to `close()`. Iterating over it claims turns."""

    def __init__(
        self,
        options: GovernOptions,
        ending: RunEnding,
        *,
        reserves_each_report: bool = False,
        renews_turns: bool = False,
        shared: tuple[TurnBudget, ...] | None = None,
        model: GovernedModel | None = None,
    ) -> None:
        """Open the run.

        `shared`: budgets in which its claims also count, the innermost first. None means that of the options.
        `reserves_each_report`: turns reserve the reports of their conversations, not the run. `renews_turns`: there is
        no maximum of all turns, because `renew` grants them again. `model`: that of the options. None means that it is
        looked up.
        """
        self._limits = options.limits.resolve(options.registry, grace=options.grace)
        if reserves_each_report:
            self._limits = replace(self._limits, reserve={})
        if renews_turns:
            self._limits = self._limits.without_maximum("turns")
        self._has_grace = options.grace
        within = () if options.within is None else (options.within,)
        self.shared = within if shared is None else shared
        """Budgets in which the run's claims also count."""
        model = model or find_model(options)
        self.envelope = _open_envelope(options, self._limits, model, self.shared)
        """Budgets and deadlines of the run."""
        self.spending = (
            SharedSpending(self.envelope, self.shared, model)
            if self.shared
            else Spending(self.envelope, model.price, model.name, model.reserve_price)
        )
        self.tokens = self.envelope.budgets["tokens"]
        self.max_output_tokens = model.max_output_tokens
        """Longest reply in tokens. None means no limit."""
        self.report = self._limits.report
        """Cap of a report."""
        caps = (model.max_output_tokens, self.report.tokens)
        self.max_report_tokens = min((cap for cap in caps if cap is not None), default=None)
        """Longest report in tokens. None means no limit."""
        self.tier_prices = model.tier_prices
        self.unsettled = options.unsettled
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
        self._renewed_s = 0.0
        self._turn_budget = self.envelope.budgets["turns"]
        self._turn: Turn | None = None
        self._number = 0
        self._token_marks: list[int] = []
        """Tokens used after each turn, for forecasts."""
        self._turns = 0
        """Turns that took place. Refunds do not lower it."""
        self._requests = 0
        self._is_grace = False
        self.is_closing = False
        self._parallel: ParallelTurns | None = None
        """Turns without the iterator. None until the first of them."""
        if self.shared:
            self._parallel = ParallelTurns(self)

    @property
    def envelopes(self) -> tuple[TurnBudget, ...]:
        """Its budgets, and the shared ones."""
        return (self.envelope, *self.shared)

    def start(self, rules: RuleSet | None, metadata: Mapping[str, Any]) -> None:
        """Record the start, and consult the rules."""
        self.tell(event.RunStarted, self.envelope.snapshot(), None)
        if rules is not None:
            max_extension_s = max(0.0, self._limits.max_extended_seconds - self._limits.seconds)
            run_id = self._recorder.header.run_id
            self.active_rules = ActiveRules(rules, self, run_id, self.envelope, metadata, max_extension_s)
            self.active_rules.progress.pace = self.pace
            self._consult_rules(Point.RUN_STARTED)

    def complete(self, text: str) -> None:
        """End the run with its answer, or set the report in the grace turn."""
        with self.lock:
            self.ending.text = text
            is_report = self._is_grace or (self._parallel is not None and self._parallel.is_reporting)
            if not is_report:
                self.ending.stops.add(Stop.COMPLETED)

    def postpone(self, seconds: float, reason: str) -> None:
        """Move the deadline by `seconds`."""
        self.envelope.postpone(seconds, reason)
        with self.lock:
            self.tell(event.Postponed, seconds, reason)

    def renew(self, conversation: Hashable) -> None:
        """Grant fresh turns and seconds for a further task, and the conversation another report."""
        self.require_parallel().renew(conversation)

    def renew_seconds(self, seconds: float) -> None:
        """Move the deadline by `seconds`, which count as time of the run."""
        if seconds > 0:
            self._renewed_s += seconds
            self.postpone(seconds, "task")

    def halt(self, by: str, message: str, *, grace: bool) -> None:
        """End the run when the loop asks for its next turn."""
        if not self.is_closing:
            self.ending.halt(by, message, grace=grace and self._has_grace)

    def tell(self, kind: Callable[[int, float, int, event.Header, *Fields], event.Event], *fields: *Fields) -> None:
        """Record an event, or keep one from another thread until the loop's thread records its next one.

        Sinks run on the loop's thread only, one event at a time, in the order of the events. With parallel turns, each
        thread records its own events, still one at a time.
        """
        recorder = self._recorder
        record = recorder.stream if kind in event.STREAMED else recorder.emit
        if self._parallel is not None:
            with self.lock:
                self._record(record, kind, fields)
        elif get_ident() == self._thread:
            if self._pending_events or self.result is not None:
                self._record(record, kind, fields)
            else:  # nearly always: the same without a call
                recorder.at = self.now() - self._started
                record(kind, *fields)
        else:
            with self.lock:
                if self.result is None:
                    self._pending_events.append(partial(record, kind, *fields))

    def tell_about(
        self, turn: Turn, kind: Callable[[int, float, int, event.Header, *Fields], event.Event], *fields: *Fields
    ) -> None:
        """Record an event of one of several turns in progress."""
        recorder = self._recorder
        with self.lock:
            recorder.turn = turn.number
            self._record(recorder.stream if kind in event.STREAMED else recorder.emit, kind, fields)

    def _record(self, record: Callable[..., None], kind: Callable[..., event.Event], fields: tuple[Any, ...]) -> None:
        recorder = self._recorder
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
            remedy = describe_refusal_remedy(refusal, self.envelope)
            self.tell(event.BudgetRefused, refusal.budget, refusal.flag, remedy, refusal.is_shared)
            if self._parallel is not None or get_ident() == self._thread:
                self._consult_rules(Point.BUDGET_REFUSED, refusal.budget)

    def __iter__(self) -> GovernedRun:
        return self

    def __next__(self) -> Turn:
        if self._parallel is not None:
            return self._next_of_parallel()
        if self._turn is not None:
            self._close_turn(self._turn)
        ending = self.ending
        if not ending.stops:
            refusal = self._claim_turn()
            if refusal is not None:
                return self._end_by_refusal(refusal)
            if self._try_start_turn():
                self._turn = turn = Turn(self, self._number, grace=False)
                return turn
        if ending.stops == {Stop.HALTED} and ending.halts_with_grace and not self._is_grace:
            return self._open_grace_turn()
        raise StopIteration

    async def anext(self) -> Turn | None:
        """Return the next turn without blocking the event loop. None ends the loop."""
        if self._parallel is None:
            return next(self, None)
        self._end_last_turn()
        self._turn = await self.abegin_turn(None) or await self.aenter_grace(None)
        return self._turn

    def _next_of_parallel(self) -> Turn:
        self._end_last_turn()
        self._turn = turn = self.begin_turn(None) or self.enter_grace(None)
        if turn is None:
            raise StopIteration
        return turn

    def _end_last_turn(self) -> None:
        if self._turn is not None:
            self.end_turn(self._turn)

    def begin_turn(
        self, conversation: Hashable, input_tokens: int | None = None, max_output_tokens: int | None = None
    ) -> Turn | None:
        """Begin a turn of a conversation; return None if it is refused."""
        parallel = self.require_parallel()
        need = parallel.prepare(input_tokens, max_output_tokens)
        return None if need is None else parallel.start(conversation, parallel.reserver.reserve(need))

    async def abegin_turn(
        self, conversation: Hashable, input_tokens: int | None = None, max_output_tokens: int | None = None
    ) -> Turn | None:
        """Begin a turn in the same way as `begin_turn`, without blocking the event loop."""
        parallel = self.require_parallel()
        need = parallel.prepare(input_tokens, max_output_tokens)
        return None if need is None else parallel.start(conversation, await parallel.reserver.areserve(need))

    def enter_grace(
        self, conversation: Hashable, input_tokens: int | None = None, max_output_tokens: int | None = None
    ) -> Turn | None:
        """Begin the grace turn of a conversation; return None if it has none."""
        parallel = self.require_parallel()
        need = parallel.prepare_grace(conversation, input_tokens, max_output_tokens)
        return None if need is None else parallel.start_grace(conversation, parallel.reserver.reserve(need))

    async def aenter_grace(
        self, conversation: Hashable, input_tokens: int | None = None, max_output_tokens: int | None = None
    ) -> Turn | None:
        """Begin the grace turn in the same way as `enter_grace`, without blocking the event loop."""
        parallel = self.require_parallel()
        need = parallel.prepare_grace(conversation, input_tokens, max_output_tokens)
        return None if need is None else parallel.start_grace(conversation, await parallel.reserver.areserve(need))

    def reserve_turn(self, conversation: Hashable, need: Need) -> ReservedTurn | None:
        """Begin a turn with this need; return None if it is refused."""
        parallel = self.require_parallel()
        with parallel.borrow_report(conversation, from_turns=False) as loan:
            need.kept = loan.kept
            checked = parallel.check(need)
            return (
                None if checked is None else loan.use(parallel.start(conversation, parallel.reserver.reserve(checked)))
            )

    async def areserve_turn(self, conversation: Hashable, need: Need) -> ReservedTurn | None:
        """Begin a turn in the same way as `reserve_turn`, without blocking the event loop."""
        parallel = self.require_parallel()
        with parallel.borrow_report(conversation, from_turns=False) as loan:
            need.kept = loan.kept
            checked = parallel.check(need)
            if checked is None:
                return None
            return loan.use(parallel.start(conversation, await parallel.reserver.areserve(checked)))

    def reserve_grace(self, conversation: Hashable, need: Need) -> ReservedTurn | None:
        """Begin the grace turn of a conversation with this need; return None if it has none."""
        parallel = self.require_parallel()
        if not parallel.open_grace(conversation):
            return None
        with parallel.borrow_report(conversation, from_turns=True) as loan:
            need = replace(need, is_grace=True, turns=0, kept=loan.kept)
            return loan.use(parallel.start_grace(conversation, parallel.reserver.reserve(need)))

    async def areserve_grace(self, conversation: Hashable, need: Need) -> ReservedTurn | None:
        """Begin the grace turn in the same way as `reserve_grace`, without blocking the event loop."""
        parallel = self.require_parallel()
        if not parallel.open_grace(conversation):
            return None
        with parallel.borrow_report(conversation, from_turns=True) as loan:
            need = replace(need, is_grace=True, turns=0, kept=loan.kept)
            return loan.use(parallel.start_grace(conversation, await parallel.reserver.areserve(need)))

    def end_turn(self, turn: Turn) -> None:
        """End a turn that is in progress."""
        with self.lock:
            if turn is self._turn or (self._parallel is not None and turn in self._parallel.open):
                self._close_turn(turn)

    @property
    def forecast(self) -> Forecast | None:
        """Limit that will be met first. None if it is not known yet, or if none will be met."""
        with self.lock:
            return self.pace.find_forecast(self.envelope)

    @cached_property
    def pace(self) -> RunPace:
        """Spend of the last turns."""
        return RunPace(self._recorder, self._token_marks)

    def is_over(self, allowed: frozenset[Stop] = frozenset()) -> bool:
        """Check whether the run ends, for another reason than the allowed ones."""
        return self.is_closing or bool(self.ending.stops - allowed)

    def may_enter_grace(self) -> bool:
        """Check whether conversations may report, because a limit was reached or the run is halted with a report."""
        ending = self.ending
        if not self._has_grace or not ending.stops or self.is_over(LIMIT_STOPS | {Stop.HALTED}):
            return False
        return Stop.HALTED not in ending.stops or ending.halts_with_grace

    def start_reserved_turn(self, conversation: Hashable, reserved: Reservation) -> ReservedTurn | None:
        """Start a turn whose units are reserved; return None if a rule stops the run first."""
        if self._try_start_turn():
            return ReservedTurn(self, self._number, conversation, self.require_parallel().reserver, reserved)
        reserved.release()
        for shared in self.shared:
            shared.budgets["turns"].refund(reason="round_never_started")
        return None

    def start_side_request(self, conversation: Hashable, reserved: Reservation) -> ReservedTurn:
        """Start a request beside the turns, whose units are reserved."""
        return ReservedTurn(self, self._number, conversation, self.require_parallel().reserver, reserved)

    def start_reserved_grace(self, conversation: Hashable, reserved: Reservation) -> ReservedTurn:
        """Start a grace turn whose units are reserved."""
        if reserved.need.report_tokens is not None:  # one of several reports, so that each has its own number
            self._number = self._recorder.turn = self._number + 1
        self.tell(event.GraceStarted, self.ending.stop.value)
        return ReservedTurn(self, self._number, conversation, self.require_parallel().reserver, reserved)

    def record_refusal(self, refusal: Refusal) -> None:
        """End the run because of a refusal. Conversations may still report."""
        self.require_parallel().record_refusal(refusal)

    def require_parallel(self) -> ParallelTurns:
        """Return the turns of several conversations. Raises UsageError in a run whose loop has begun."""
        with self.lock:
            if self._parallel is None:
                if self._number:
                    raise UsageError("begin_turn() and the loop `for turn in run` cannot be used in the same run")
                self._parallel = ParallelTurns(self)
            return self._parallel

    def close(self, error: BaseException | None) -> None:
        """End the run and build its result. `error` is the exception that left the block, or None."""
        if self._parallel is not None:
            with self.lock:
                self.is_closing = True  # no turn begins from here on
            for turn in tuple(self._parallel.open):
                self.end_turn(turn)
            self._parallel.reserver.close()
        elif self._turn is not None:
            self._close_turn(self._turn)
        ending = self.ending
        if isinstance(error, Exception | SystemExit):
            ending.fail(error)
        elif error is not None:  # Ctrl-C, GeneratorExit, or the cancellation of asyncio or trio
            ending.cancel()
        if not ending.stops:
            ending.stops.add(Stop.HALTED)
        self.is_closing = True
        with self.lock:
            stop = ending.stop  # decided before rules and sinks run again
            by, failure = ending.origin_of(stop), ending.error_of(stop)
            self.envelope.close()
            self.tell_refusals()
            self._consult_rules(Point.RUN_ENDED, stop.value)
            self.result = self._build_result(stop, by, failure)
            ending.is_final = True

    def _claim_turn(self) -> Refusal | None:
        """Claim the next turn, or return the refusal."""
        envelope, spending = self.envelope, self.spending
        if self.now() >= envelope.work_at or self.ending.is_out_of_time:
            return envelope.refuse("seconds")
        with envelope.lock:
            input_tokens = spending.likely_input_tokens
            short = spending.find_short_budgets(input_tokens)
            if short:
                refusals = [envelope.refuse(name, input_tokens=input_tokens) for name in short]
                return refusals[0]
            return None if self._turn_budget.consume_one() else envelope.refuse("turns")

    def _end_by_refusal(self, refusal: Refusal) -> Turn:
        """Stop the run because of a refusal; return the grace turn, or raise StopIteration."""
        self.ending.stops.add(Stop.DEADLINE if refusal.budget == "seconds" else Stop.BUDGET)
        self.ending.warning = refusal.warning
        self.tell_refusals()
        if not self._has_grace:
            raise StopIteration
        return self._open_grace_turn()

    def _open_grace_turn(self) -> Turn:
        """Open the reserve and return the grace turn, or raise StopIteration if no request fits into it."""
        self.envelope.open_reserve()
        if (
            self._turn_budget.ceiling == 0
            or self.envelope.hard.expired
            or self.spending.find_short_budgets(self.spending.likely_input_tokens)
        ):
            raise StopIteration
        self._is_grace = True
        self.tell(event.GraceStarted, self.ending.stop.value)
        self._turn = turn = Turn(self, self._number, grace=True)
        return turn

    def _try_start_turn(self) -> bool:
        """Start the claimed turn, or refund it if a rule stops the run first."""
        self._number += 1
        self._recorder.start_turn(self._number)
        self.tell(event.TurnStarted)
        envelope = self.envelope
        if envelope.take_changes(self.now()):
            for warning in envelope.warnings.take(envelope, self.now()):
                forecast = self.forecast if self._recorder.is_watched else None
                self.tell(event.BudgetWarned, *warning, *describe_forecast(forecast))
            self._consult_rules(Point.TURN_STARTED)
        if not self.ending.stops or (self._parallel is not None and not self.is_over(LIMIT_STOPS)):
            return True
        refunded = self._turn_budget.refund(reason="round_never_started")
        if refunded:
            self.tell(event.Refunded, "turns", refunded, "round_never_started")
        self.tell(event.TurnEnded)
        self._token_marks.append(self.tokens.used)
        return False

    def _consult_rules(self, point: Point, about: object = None) -> None:
        rules = self.active_rules
        if rules is not None:
            rules.progress.turn, rules.progress.requests = self._number, self._requests
            rules.progress.input_tokens = self.spending.likely_input_tokens
            rules.consult(point, about)

    def _close_turn(self, turn: Turn) -> None:
        if turn is self._turn:
            self._turn = None
        parallel, changes = self._parallel, self.envelope.changes
        if parallel is None:
            turn.close()
        else:
            self._recorder.turn = turn.number
            turn.close()
            parallel.finish(turn)
        if changes is not None and changes.counts:
            for key, change in self.envelope.take_count_changes():
                self.tell(event.CountSet, key, change.difference, change.used)
        self._requests += turn.requests
        self._turns += turn.took_place and turn.counts and not turn.grace
        self.tell_refusals()
        if not turn.counts:
            return
        if turn.grace:
            self.tell(event.GraceEnded, bool(self.ending.text), ())
            return
        if self.active_rules is not None:
            self._consult_rules(Point.TURN_ENDED)
        self.tell(event.TurnEnded)
        self._token_marks.append(self.tokens._used)  # pyright: ignore[reportPrivateUsage]  # in every turn

    def _build_result(self, stop: Stop, by: str | None, failure: Mapping[str, Any] | None) -> Result:
        envelope, header = self.envelope, self._recorder.header
        turns, budgets = self._turns, envelope.snapshots()
        self.tell(event.RunEnded, stop.value, by, envelope.flags, turns, self._requests, budgets)
        # The run's time does not include waiting for people. Extensions by rules and for tasks are not waits.
        extended_s = 0.0 if self.active_rules is None else self.active_rules.extended_s
        waited_s = envelope.postponed_s - extended_s - self._renewed_s
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


def _open_envelope(
    options: GovernOptions, limits: ResolvedLimits, model: GovernedModel, shared: tuple[TurnBudget, ...]
) -> TurnBudget:
    if not shared:
        envelope = limits.open(options.clock)
    else:
        rooms = {
            name: min(one.budgets[name].unspent - one.reserved(name) for one in shared) for name in ("tokens", "usd")
        }
        max_amounts = {name: max(0, int(room)) for name, room in rooms.items() if room != math.inf}
        envelope = limits.open(options.clock, min(one.remaining_s() for one in shared), max_amounts)
    usd = envelope.budgets["usd"]
    if usd.ceiling is not None and model.price is None and options.unpriced == Unpriced.REFUSE:
        envelope.close()
        unknown = "" if options.model == "unknown" else f", and that of {options.model!r} is not known"
        raise UsageError(
            f"the limit of {usd.unit.show(usd.ceiling)} cannot be enforced without a price{unknown}: name a known "
            'model (model="openai:gpt-5.5"), pass price=TokenPrice(input=..., output=...) to govern, or '
            'unpriced="tokens_only" to ignore the limit'
        )
    return envelope
