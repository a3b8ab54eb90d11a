"""Journals: the protocol that the driver uses, and the journals of runs without a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from ..errors import FlyballError, UsageError
from ..loop.effects import Answer, Decide, Effect, Fingerprint, Signal
from ..loop.plan import AgentSpec, Plan
from ..loop.player import LoopPlayer
from ..recorder import Recorder
from ..result import Result
from ..tools.call import ToolCallRun
from .history import PausedRun, RunHistory, StartedEffect


class EffectJournal(Protocol):
    """Record of one run's effects and answers.

    `attach`, `record_start`, `record_answer` and `finish` are called only if the run is stored.
    """

    @property
    def is_stored(self) -> bool:
        """True if the run waits for its journal: before each effect and at its end."""
        ...

    @property
    def history(self) -> RunHistory | None:
        """Recorded part of a resumed run. None for a new run."""
        ...

    @property
    def next_event(self) -> int | None:
        """Number of the next event. None means that the events of a replay are numbered as before."""
        ...

    @property
    def has_ended(self) -> bool:
        """True if the run had ended, and is replayed for its result only."""
        ...

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """Error of the store, as in `Result.error`. None if everything was stored."""
        ...

    @property
    def opened_s(self) -> float:
        """Seconds that the store took to open the run."""
        ...

    @property
    def described(self) -> list[Any] | None:
        """List for the descriptions of answered effects. None if the journal does not need them."""
        ...

    def attach(self, recorder: Recorder, send_signal: Callable[[Signal], object], now: Callable[[], float]) -> None:
        """Watch the events of a run, and signal failures of the store to it. `now` returns its active seconds."""
        ...

    def cancel(self) -> None:
        """Wait for the store for the closing seconds only, because the run is cancelled."""
        ...

    def may_write(self) -> bool:
        """Return False if another run holds the session, or may hold it."""
        ...

    async def open(self, plan: Plan) -> Plan:
        """Acquire the session, and return the plan with what the store knows."""
        ...

    def set_plan(self, plan: Plan) -> None:
        """Set the plan that the loop starts with."""
        ...

    def matches(self, started: StartedEffect, effect: Effect[Any]) -> bool:
        """Check whether an effect is the recorded one."""
        ...

    def record_replayed(self, effect: Effect[Any]) -> None:
        """Count an effect that is answered without being performed."""
        ...

    def record_start(self, n: int, effect: Effect[Any]) -> bool | Awaitable[bool]:
        """Record that an effect starts. Return False if it must not be performed.

        A bool is returned if nothing must be waited for, to save two coroutines for each effect.
        """
        ...

    def record_answer(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> None:
        """Record the answer to an effect."""
        ...

    def record_outcome(self, tool_call: ToolCallRun) -> None:
        """Record the outcome of one call while other calls of its batch are in progress."""
        ...

    def read_history(self, answers: Sequence[Answer[Any]]) -> RunHistory:
        """Return what a paused run resumes from in this process."""
        ...

    def build_divergence_error(self, player: LoopPlayer) -> FlyballError:
        """Return the error for a replay whose current effect is not the recorded one."""
        ...

    def release(self) -> None:
        """Let the run be resumed again, because this attempt did nothing."""
        ...

    async def finish(self, result: Result) -> None:
        """Record the result and release the session."""
        ...

    async def close(self) -> None:
        """Release the session if `finish` did not."""
        ...

    def for_child(self) -> EffectJournal | None:
        """Return the journal of a child run. None means that the child run chooses its own."""
        ...


class NullJournal:
    """Journal that records nothing."""

    __slots__ = ()

    is_stored = False
    next_event: int | None = None
    has_ended = False
    failure: Mapping[str, Any] | None = None
    opened_s = 0.0

    @property
    def described(self) -> list[Any] | None:
        return None

    @property
    def history(self) -> RunHistory | None:
        return None

    def attach(self, recorder: Recorder, send_signal: Callable[[Signal], object], now: Callable[[], float]) -> None: ...

    def cancel(self) -> None: ...

    @staticmethod
    def may_write() -> bool:
        return True

    async def open(self, plan: Plan) -> Plan:
        return plan

    def set_plan(self, plan: Plan) -> None: ...

    def matches(self, started: StartedEffect, effect: Effect[Any]) -> bool:
        return True

    def record_replayed(self, effect: Effect[Any]) -> None: ...

    def record_start(self, n: int, effect: Effect[Any]) -> bool | Awaitable[bool]:
        return True

    def record_answer(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> None: ...

    def record_outcome(self, tool_call: ToolCallRun) -> None: ...

    def read_history(self, answers: Sequence[Answer[Any]]) -> RunHistory:
        raise AssertionError("a run that can pause has a journal: see build_journal")

    def build_divergence_error(self, player: LoopPlayer) -> FlyballError:
        raise AssertionError("a run without a history is not replayed")

    def release(self) -> None: ...

    async def finish(self, result: Result) -> None: ...

    async def close(self) -> None: ...

    def for_child(self) -> EffectJournal | None:
        return None


class PauseJournal(NullJournal):
    """Journal of a run that can pause. It keeps what resuming in this process needs.

    Fingerprints cost more than a turn can spare, so the player adds a description of each effect, and the fingerprints
    are computed when the run pauses.
    """

    __slots__ = ("_described", "_pause", "_replayed")

    def __init__(self, pause: PausedRun | None = None) -> None:
        self._pause = pause
        self._described: list[Any] = []  # a tuple for each effect would be work for the garbage collector
        self._replayed = None if pause is None else Fingerprint()
        """Fingerprint of the replayed effects. None if the run is not resumed."""

    @property
    def described(self) -> list[Any]:
        return self._described

    @property
    def history(self) -> RunHistory | None:
        return None if self._pause is None else self._pause.history

    def matches(self, started: StartedEffect, effect: Effect[Any]) -> bool:
        return self._replayed is not None and self._replayed.next(effect) == started.fingerprint

    def record_replayed(self, effect: Effect[Any]) -> None:
        if self._replayed is not None:
            self._replayed.add(effect)

    def read_history(self, answers: Sequence[Answer[Any]]) -> RunHistory:
        fingerprint, started, rows = Fingerprint(), list[StartedEffect](), list[list[Any]]()
        for value in self._described:
            if isinstance(value, type):  # each description begins with the class of its effect
                rows.append([])
            rows[-1].append(value)
        for row in rows:
            question = row[1] if row[0] is Decide else None
            started.append(StartedEffect(fingerprint=fingerprint.add_description(tuple(row)), question=question))
        return RunHistory(list(answers), started, at=answers[-1].at)

    def build_divergence_error(self, player: LoopPlayer) -> FlyballError:
        found = f"the run wants {type(player.effect).__name__}" if player.result is None else player.result.explain()
        return UsageError(
            "the run did not reach its open question again, because a hook, a callback or the model decided otherwise "
            f"than before the pause: {found}"
        )

    def release(self) -> None:
        if self._pause is not None:
            self._pause.release()


NULL_JOURNAL = NullJournal()


def build_journal(spec: AgentSpec) -> EffectJournal:
    """Return a journal for a run without a store: one in memory if the run can ask a person, and so can pause."""
    return PauseJournal() if spec.may_pause else NULL_JOURNAL
