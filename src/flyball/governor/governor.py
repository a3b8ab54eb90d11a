"""Limits, rules, a grace turn and a result for a loop that the caller drives."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, Literal, Self

from .. import event
from .._internal import validation
from ..budget.deadline import SYSTEM, Clock
from ..budget.limits import Limits
from ..budget.lock import create_lock
from ..budget.price import Price, Unpriced
from ..budget.registry import IterationBudgetRegistry
from ..budget.run_budget import TurnBudget
from ..budget.spending import Spending
from ..errors import ConfigError, UsageError, describe_error
from ..progress import Point
from ..recorder import Fields, Recorder, Sink
from ..result import Result, Stop
from ..rules import RuleSet
from .active_rules import ActiveRules
from .turn import Turn


@dataclass(kw_only=True, eq=False, repr=False)
class govern:  # noqa: N801  (reads as a verb: `with govern(limits) as run`)
    """Govern a loop of your own: `with govern(Limits(turns=3)) as run`, then `for turn in run`.

    Each iteration claims a turn. After a refusal there is one last turn with `turn.grace` true. `govern` keeps no
    history and needs no model. `async with` and `async for` work the same way.

    `cancel()` and the claims of a turn are thread-safe. Call everything else from the thread of the loop.
    """

    limits: Limits = field(default_factory=Limits, kw_only=False)
    price: Price | None = None
    """Token prices, required by a money limit. None means unknown.

    `flyball.models.price_of(provider, name)` knows many models.
    """
    unpriced: Unpriced | Literal["refuse", "tokens_only"] = Unpriced.REFUSE
    """Handling of a money limit without a price.

    Either reject the run, or ignore the limit and report the model in `result.unpriced`.
    """
    grace: bool = True
    model: str = "unknown"
    """Name of the model in `result.cost`."""
    max_output_tokens: int | None = None
    """Maximum output tokens of one turn. None means only the budgets limit it."""
    rules: RuleSet | None = None
    """Rules to apply, such as `RuleSet.load(...)`; add the core rules with `.with_core()`. None means no rules."""
    registry: IterationBudgetRegistry | None = None
    clock: Clock = SYSTEM
    sinks: Iterable[Sink] = ()
    events_kept: int = 10_000
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        validation.check_type("govern, limits", self.limits, Limits)
        validation.check_optional_int("govern, max_output_tokens", self.max_output_tokens)
        validation.check_int("govern, events_kept", self.events_kept)
        validation.check_type("govern, metadata", self.metadata, Mapping)
        validation.check_type("govern, sinks", self.sinks, Iterable)
        validation.parse_enum("govern, unpriced", self.unpriced, Unpriced)
        if self.price is not None and not callable(getattr(self.price, "cost", None)):
            raise ConfigError("govern, price", self.price, "a price, such as TokenPrice(input=3, output=15)")
        self.lock = create_lock()
        self._state: _RunState | None = None
        self._result: Result | None = None
        self._stops: set[Stop] = set()
        self._error: BaseException | str | None = None
        self._warning: str | None = None
        self._halted_by = "caller"
        self._text = ""

    def complete(self, text: str = "") -> None:
        """End the run with its answer.

        In the grace turn, `text` is the report, and the run keeps the stop reason that led to the grace turn.
        """
        self._text = text
        if not self._require_open().is_grace:
            self._stops.add(Stop.COMPLETED)

    def fail(self, error: BaseException | str) -> None:
        """End the run as failed; the result keeps everything done so far."""
        self._error = error
        self._stops.add(Stop.FAILED)

    def postpone(self, seconds: float, reason: str) -> None:
        """Move the deadline by `seconds`, for time spent waiting for a person."""
        self.envelope.postpone(seconds, reason)
        self.tell(event.Postponed, seconds, reason)

    def halt(self, by: str, message: str = "", *, grace: bool = False) -> None:
        """End the run when the loop asks for its next turn.

        With `grace`, the loop gets one last turn for a report first.
        """
        if Stop.HALTED in self._stops or self._require_open().is_ending:
            return
        self._halted_by, self._require_open().halts_with_grace = by, grace and self.grace
        if not self._stops - {Stop.COMPLETED}:  # an earlier stop reason keeps its own warning
            self._warning = message or None
        self._stops.add(Stop.HALTED)

    def cancel(self) -> bool:
        """Cancel the run at its next turn; return False if it has already ended."""
        with self.lock:
            if self._result is None:
                self._stops.add(Stop.CANCELLED)
            return self._result is None

    @property
    def envelope(self) -> TurnBudget:
        """Budgets and deadlines of the open run."""
        return self._require_open().spending.envelope

    def result(self) -> Result:
        """Return the result, available after the `with` block.

        Raises UsageError while the run is open.
        """
        if self._result is None:
            raise UsageError("govern.result() is available only after the with block")
        return self._result

    def tell(self, kind: Callable[[int, float, int, event.Header, *Fields], event.Event], *fields: *Fields) -> None:
        """Record an event.

        An event from another thread is delivered when the loop's own thread records its next one.
        """
        run = self._require_open()
        with self.lock:
            if self._result is None:
                run.pending_events.append(lambda: run.recorder.emit(kind, *fields))
        self._flush_events(run)

    def tell_refusals(self) -> None:
        """Record the budgets that refused since the last call."""
        run = self._require_open()
        with self.lock:
            refusals = run.spending.envelope.refusals[run.emitted_refusals :]
            run.emitted_refusals += len(refusals)
        for refusal in refusals:
            self.tell(event.BudgetRefused, refusal.budget, refusal.flag)
            if get_ident() == run.thread:
                self._consult_rules(Point.BUDGET_REFUSED, refusal.budget)

    def __enter__(self) -> Self:
        if self._state is not None:
            raise UsageError("this govern object was already used: create a new govern(...) for each run")
        header = event.Header(self.run_id, self.session_id, self.clock.wall(), dict(self.metadata))
        recorder = Recorder(header, self.sinks, self.events_kept)
        limits = self.limits.resolve(self.registry, grace=self.grace)
        envelope = limits.open(self.clock)
        usd = envelope.budgets["usd"]
        if usd.ceiling is not None and self.price is None and self.unpriced == Unpriced.REFUSE:
            envelope.close()
            raise UsageError(
                f"the limit of {usd.unit.show(usd.ceiling)} cannot be enforced without a price: pass "
                'price=TokenPrice(input=..., output=...) to govern, or unpriced="tokens_only" to ignore the limit'
            )
        self._state = _RunState(Spending(envelope, self.price, self.model), recorder, self.clock.now())
        self.tell(event.RunStarted, envelope.snapshot(), None)
        if self.rules is not None:
            max_extension_s = max(0.0, limits.max_extended_seconds - limits.seconds)
            self._state.active_rules = ActiveRules(
                self.rules, self, self.run_id, envelope, self.metadata, max_extension_s
            )
        self._consult_rules(Point.RUN_STARTED)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        run = self._require_open()
        self._close_turn(run)
        if isinstance(error, Exception | SystemExit):
            self.fail(error)
        elif error is not None:  # Ctrl-C, GeneratorExit, or the cancellation of asyncio or trio
            self.cancel()
        if not self._stops:
            self._stops.add(Stop.HALTED)
        self._finish(run)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Turn:
        run = self._require_open()
        self._close_turn(run)
        if self._stops == {Stop.HALTED} and run.halts_with_grace and not run.is_grace and self._try_open_reserve(run):
            return self._open_turn(run, grace=True)
        if self._stops:
            raise StopIteration
        refused_budget = self._claim_turn(run.spending)
        if refused_budget is None:
            return self._open_turn(run, grace=False) if self._try_start_turn(run) else self.__next__()
        self._stops.add(Stop.DEADLINE if refused_budget == "seconds" else Stop.BUDGET)
        self._warning = run.spending.envelope.refuse(refused_budget).warning
        self.tell_refusals()
        if self.grace and self._try_open_reserve(run):
            return self._open_turn(run, grace=True)
        raise StopIteration

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Turn:
        try:
            return self.__next__()
        except StopIteration:
            raise StopAsyncIteration from None

    def _require_open(self) -> _RunState:
        if self._state is None:
            raise UsageError("this run is not open: put `with govern(...) as run:` around the loop")
        return self._state

    def _claim_turn(self, spending: Spending) -> str | None:
        """Claim the next turn, or return the name of the budget that refused."""
        envelope = spending.envelope
        if envelope.is_expired():
            return "seconds"
        with envelope.lock:
            short = spending.find_short_budgets(spending.likely_input_tokens)
            for name in short:
                envelope.refuse(name)
            if short:
                return short[0]
            return None if envelope.claim_step() else "turns"

    def _try_open_reserve(self, run: _RunState) -> bool:
        """Open the reserve, and check whether a request fits into it."""
        envelope = run.spending.envelope
        envelope.open_reserve()
        return not envelope.hard.expired and not run.spending.find_short_budgets(run.spending.likely_input_tokens)

    def _try_start_turn(self, run: _RunState) -> bool:
        """Start the claimed turn, or refund it if a rule stops the run first."""
        run.number += 1
        self.tell(event.TurnStarted)
        envelope = run.spending.envelope
        for warning in envelope.warnings.take(envelope, self.clock.now()):
            self.tell(event.BudgetWarned, *warning)
        self._consult_rules(Point.TURN_STARTED)
        if not self._stops:
            return True
        refunded = run.spending.envelope.budgets["turns"].refund(reason="round_never_started")
        if refunded:
            self.tell(event.Refunded, "turns", refunded, "round_never_started")
        self.tell(event.TurnEnded)
        return False

    def _open_turn(self, run: _RunState, *, grace: bool) -> Turn:
        run.is_grace = grace
        if grace:
            self.tell(event.GraceStarted, self._stop.value)
        run.turn = Turn(
            run.number,
            run.spending,
            grace=grace,
            max_output_tokens=self.max_output_tokens,
            teller=self,
            active_rules=run.active_rules,
        )
        return run.turn

    def _consult_rules(self, point: Point, about: object = None) -> None:
        run = self._require_open()
        if run.active_rules is not None:
            run.active_rules.progress.turn, run.active_rules.progress.requests = run.number, run.requests
            run.active_rules.progress.input_tokens = run.spending.likely_input_tokens
            run.active_rules.consult(point, about)

    def _close_turn(self, run: _RunState) -> None:
        turn, run.turn = run.turn, None
        if turn is None:
            return
        turn.close()
        run.requests += turn.requests
        self.tell_refusals()
        if turn.grace:
            self.tell(event.GraceEnded, bool(self._text))
        else:
            self._consult_rules(Point.TURN_ENDED)
            self.tell(event.TurnEnded)

    def _flush_events(self, run: _RunState) -> None:
        # Sinks run on the loop's thread only, one event at a time, in the order of the events.
        if get_ident() != run.thread:
            return
        while run.pending_events:
            run.recorder.at = self.clock.now() - run.started
            run.recorder.turn = run.number
            run.pending_events.pop(0)()

    @property
    def _stop(self) -> Stop:
        """Stop reason of the run: the first of the collected ones in the order of Stop."""
        return min(self._stops, key=list(Stop).index)

    def _finish(self, run: _RunState) -> None:
        """Build the result, last of all, so that it includes an exception of the block."""
        run.is_ending = True
        with self.lock:
            spending, envelope, stop = run.spending, run.spending.envelope, self._stop
            envelope.close()
            turns = envelope.budgets["turns"].used
            by = self._halted_by if stop is Stop.HALTED else None
            error = describe_error(self._error or "") if stop is Stop.FAILED else None
            self.tell_refusals()
            self._consult_rules(Point.RUN_ENDED, stop.value)
            budgets = envelope.snapshots()
            self.tell(event.RunEnded, stop.value, by, envelope.flags, turns, run.requests, budgets)
            self._result = Result(
                stop=stop,
                text=self._text,
                stopped_by=by,
                flags=envelope.flags,
                warning=self._warning,
                turns=turns,
                requests=run.requests,
                usage=spending.usage,
                cost=spending.costs,
                unpriced=spending.unpriced,
                estimated_requests=spending.estimated_requests,
                budgets=budgets,
                events=run.recorder.recorded_events,
                events_dropped=run.recorder.dropped,
                sink_errors=run.recorder.sink_errors,
                error=error,
                run_id=self.run_id,
                session_id=self.session_id,
                metadata=run.recorder.header.metadata or {},
                seconds=max(0.0, self.clock.now() - run.started - run.waited_s),
            )


@dataclass(slots=True)
class _RunState:
    """State of an open run."""

    spending: Spending
    recorder: Recorder
    started: float
    turn: Turn | None = None
    number: int = 0
    requests: int = 0
    emitted_refusals: int = 0
    is_grace: bool = False
    halts_with_grace: bool = False
    is_ending: bool = False
    active_rules: ActiveRules | None = None
    thread: int = field(default_factory=get_ident)
    pending_events: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])

    @property
    def waited_s(self) -> float:
        """Seconds spent waiting for people. Extensions by rules do not count."""
        return self.spending.envelope.postponed_s - (0.0 if self.active_rules is None else self.active_rules.extended_s)
