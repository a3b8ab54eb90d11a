"""The governor without the loop: limits, a reserve, a grace turn and an honest result for loops people already have."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Concatenate, ParamSpec, Self

from . import event
from .clock import SYSTEM, Clock
from .envelope import TurnBudget
from .errors import ConfigError, FlyballError
from .limits import Limits
from .price import Price
from .purse import Purse
from .recorder import Recorder, Sink
from .registry import IterationBudgetRegistry
from .result import Result, Stop
from .turn import Turn

P = ParamSpec("P")


@dataclass(kw_only=True, eq=False, repr=False)
class govern:  # noqa: N801  (people read it as the verb: `with govern(limits) as run`)
    """Govern a loop that is not ours: `with govern(Limits(turns=3)) as run`, then `for turn in run`.

    Each time round claims a turn; after a refusal there is one last turn with `turn.grace` true. It keeps no history
    and needs no model. `async with` and `async for` do the same. `cancel()` and the claims of a turn may be called from
    any thread; the rest belongs to the thread of the loop.
    """

    limits: Limits = field(default_factory=Limits, kw_only=False)
    price: Price | None = None
    """What tokens cost; a money limit needs it."""
    grace: bool = True
    max_output_tokens: int | None = None
    """The most output of one turn, however much is left."""
    registry: IterationBudgetRegistry | None = None
    clock: Clock = SYSTEM
    sinks: Iterable[Sink] = ()
    events_kept: int = 10_000
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self._lock = RLock()
        self._open: _Open | None = None
        self._result: Result | None = None
        self._stops: set[Stop] = set()
        self._error: BaseException | str | None = None
        self._text = ""

    def complete(self, text: str = "") -> None:
        """End the run with its answer. In the grace turn that is the report, and the reason of the end stays."""
        self._text = text
        if not self._now().graced:
            self._stops.add(Stop.COMPLETED)

    def fail(self, error: BaseException | str) -> None:
        """End the run as failed; what was done so far stays in the result."""
        self._error = error
        self._stops.add(Stop.FAILED)

    def cancel(self) -> bool:
        """End the run as cancelled when its next turn is asked for; False if it has ended already."""
        with self._lock:
            if self._result is None:
                self._stops.add(Stop.CANCELLED)
            return self._result is None

    @property
    def envelope(self) -> TurnBudget:
        """The run's budgets and deadlines, while it goes on."""
        return self._now().purse.envelope

    def result(self) -> Result:
        """All there is to know, once the `with` block is left."""
        if self._result is None:
            raise ConfigError("govern, result()", "a run that goes on", "to be asked for it after the with block")
        return self._result

    def __enter__(self) -> Self:
        if self._open is not None:
            raise ConfigError("govern", "a run that was used before", "a new govern(...) for each run")
        envelope = self.limits.open(self.registry, grace=self.grace, clock=self.clock)
        money = envelope.budgets["usd"]
        if money.ceiling is not None and self.price is None:
            envelope.close()
            limit = money.unit.show(money.ceiling)
            raise ConfigError("govern, price", None, f"a price, because there is a limit of {limit}")
        header = event.Header(self.run_id, self.session_id, self.clock.wall(), self.metadata)
        recorder = Recorder(header, self.sinks, self.events_kept)
        self._open = _Open(Purse(envelope, self.price), recorder, self.clock.now())
        self.tell(event.RunStarted, envelope.snapshot())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        run = self._now()
        self._close_turn(run)
        if isinstance(error, Exception):
            self.fail(error)
        elif error is not None:
            self.cancel()
        if not self._stops:
            self._stops.add(Stop.HALTED)
        self._finish(run)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Turn:
        run = self._now()
        self._close_turn(run)
        if self._stops:
            raise StopIteration
        reason = self._refusal(run)
        if reason is None:
            return self._open_turn(run, grace=False)
        self._stops.add(reason)
        self.tell_refusals()
        if self.grace and self._grace_fits(run):
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

    def _now(self) -> _Open:
        if self._open is None:
            raise ConfigError("govern", "a run that was not entered", "`with govern(...) as run:` around the loop")
        return self._open

    def _refusal(self, run: _Open) -> Stop | None:
        """Claim the next turn, or tell what stands against it."""
        envelope = run.purse.envelope
        if envelope.is_expired():
            envelope.refuse("seconds")
            return Stop.DEADLINE
        if not envelope.claim_step():
            return Stop.BUDGET
        short = run.purse.short_of(run.purse.largest_input)
        for name in short:
            envelope.refuse(name)
        if short:
            envelope.budgets["turns"].refund(reason="round_never_started")
            return Stop.BUDGET
        return None

    def _grace_fits(self, run: _Open) -> bool:
        """Open the reserve, and see whether a request fits into it."""
        envelope = run.purse.envelope
        envelope.open_reserve()
        return not envelope.hard.expired and not run.purse.short_of(run.purse.largest_input)

    def _open_turn(self, run: _Open, *, grace: bool) -> Turn:
        run.graced = grace
        run.number += not grace
        run.turn = Turn(run.number, run.purse, grace=grace, cap=self.max_output_tokens, teller=self)
        if grace:
            self.tell(event.GraceStarted, self._stop.value)
        else:
            self.tell(event.TurnStarted)
        return run.turn

    def _close_turn(self, run: _Open) -> None:
        turn, run.turn = run.turn, None
        if turn is None:
            return
        turn.close()
        run.requests += turn.requests
        if turn.grace:
            self.tell(event.GraceEnded, bool(self._text))
        else:
            self.tell(event.TurnEnded)

    @property
    def _stop(self) -> Stop:
        """The one reason, of those that hold: the first in the order of Stop."""
        return min(self._stops, key=list(Stop).index)

    def tell(
        self,
        kind: Callable[Concatenate[int, float, int, event.Header, P], event.Event],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Record an event; what a turn is told to report comes from any thread."""
        run = self._now()
        with self._lock:
            run.recorder.at = self.clock.now() - run.started
            run.recorder.turn = run.number
            run.recorder.emit(kind, *args, **kwargs)

    def tell_refusals(self) -> None:
        """Record each budget's first refusal."""
        run = self._now()
        with self._lock:
            flags = run.purse.envelope.flags
            for flag in flags[run.told :]:
                self.tell(event.BudgetRefused, flag.removeprefix("max_").removesuffix("_reached"), flag)
            run.told = len(flags)

    def _finish(self, run: _Open) -> None:
        """Make the result; only now, because whatever raises before must be in it."""
        with self._lock:
            envelope, purse, stop = run.purse.envelope, run.purse, self._stop
            envelope.close()
            turns = envelope.budgets["turns"].used
            by = "caller" if stop is Stop.HALTED else None
            self.tell(event.RunEnded, stop.value, by, envelope.flags, turns, run.requests)
            self._result = Result(
                stop=stop,
                text=self._text,
                stopped_by=by,
                flags=envelope.flags,
                warning=envelope.warning,
                turns=turns,
                requests=run.requests,
                usage=purse.usage,
                cost={"model": purse.cost} if self.price else {},
                budgets=envelope.readings(),
                events=tuple(run.recorder.events),
                sink_errors=run.recorder.sink_errors,
                error=_described(self._error) if stop is Stop.FAILED else None,
                run_id=self.run_id,
                session_id=self.session_id,
                metadata=self.metadata,
                seconds=self.clock.now() - run.started,
            )


@dataclass(slots=True)
class _Open:
    """What a run has while it goes on."""

    purse: Purse
    recorder: Recorder
    started: float
    turn: Turn | None = None
    number: int = 0
    requests: int = 0
    told: int = 0
    graced: bool = False


def _described(error: BaseException | str | None) -> dict[str, Any]:
    if isinstance(error, FlyballError):
        return {"code": error.code, "kind": type(error).__name__, "message": str(error)}
    if isinstance(error, BaseException):
        return {"code": "exception", "kind": type(error).__name__, "message": str(error)}
    return {"code": "failed", "kind": "str", "message": str(error or "")}
