"""The keeper: writes down what one run does, effect by effect, so that a run that is killed loses nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar, cast

import anyio

from .._internal.workers import WorkerPool, run_in_worker
from ..budget.deadline import Clock
from ..errors import ResumeError, StaleFence, StoreError
from ..event import Delta, Event, ModelRequested, ToolReported
from ..loop.effects import Act, Answer, Append, Decide, Effect, Extend, Fingerprint, LeaseLost, Signal, StoreFailed
from ..loop.ending import End, describe_error
from ..loop.loop import EXTENDABLE_STOPS
from ..loop.plan import Plan
from ..message import Message
from ..outcome import Outcome, Success
from ..recorder import Recorder
from ..result import Result, Stop
from ..store import Guard, Holder, Kind, Query, Row, RunFinish, Start, Step, Store
from ..tools.call import ToolCallRun
from ..unit import Unit
from .history import JOURNAL_CODEC, RunHistory, StartedEffect, encode_plan, parse_journal, restore_plan
from .lease import SessionLease

_TASK_CHARACTERS = 200


class PendingStep:
    """Gathers what one run leaves, and keeps all of it in one commit. Safe between threads; commits come in order."""

    def __init__(self, store: Store, *, is_child: bool) -> None:
        self.plan: Plan | None = None
        """What the run began with."""
        self.take = 0
        """How often it was taken up again."""
        self.is_stored = False
        """Whether the store knows the run."""
        self.is_resumed = False
        """Whether this is the first that is written since it was taken up again."""
        self.state_changed = False
        self._store = store
        self._is_child = is_child
        self._uncommitted: Step | None = None
        """What could not be kept without waiting."""
        self._rows_lock = Lock()
        self._commit_lock = Lock()
        self._rows: list[Row] = []
        self._messages: list[Message] = []
        self._events: list[Mapping[str, Any]] = []

    def add_started(self, n: int, fingerprint: int, data: Mapping[str, Any], messages: Sequence[Message]) -> None:
        """An effect begins; those that say something have it said then."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.STARTED, JOURNAL_CODEC.dumps(data), fingerprint, self.take))
            self._messages += messages

    def add_outcome(self, n: int, call_id: str, outcome: Outcome) -> None:
        """One call of a batch has come to this."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.OUTCOME, JOURNAL_CODEC.dumps([call_id, outcome]), take=self.take))

    def add_answer(self, n: int, fingerprint: int, answer: object) -> None:
        """An effect has come to this."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.ANSWER, JOURNAL_CODEC.dumps(answer), fingerprint, self.take))

    def add_extended(self, n: int, signals: Sequence[object]) -> None:
        """A run that had ended was given more, with its last answer."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.EXTENDED, JOURNAL_CODEC.dumps(signals), take=self.take))

    def add_messages(self, messages: Sequence[Message]) -> None:
        """This was said."""
        with self._rows_lock:
            self._messages += messages

    def add_event(self, event: Mapping[str, Any]) -> None:
        """This has happened."""
        with self._rows_lock:
            self._events.append(event)

    def commit(self, guard: Guard | None, finish: RunFinish | None = None) -> None:
        """Keep all that was gathered; with the end of a run at the top its lease is given back. It blocks."""
        with self._commit_lock:
            step, self._uncommitted = self._uncommitted or self._build_step(guard, finish), None
            if step.rows or step.events or step.finish is not None:
                self._store.keep(step)

    def commit_now(self, guard: Guard | None, finish: RunFinish | None = None) -> bool:
        """The same without waiting for anybody; False where one must, and `commit` is still to be called."""
        keep_now = getattr(self._store, "keep_now", None)
        if keep_now is None or not self._commit_lock.acquire(blocking=False):
            return False
        try:
            step = self._build_step(guard, finish)
            if not (step.rows or step.events or step.finish is not None) or keep_now(step):
                return True
            self._uncommitted = step
            return False
        finally:
            self._commit_lock.release()

    def commit_outcomes(self, guard: Guard | None) -> None:
        """Keep what calls have come to while others of their batch are under way. It blocks.

        Nothing else: what is told behind the answer is kept together with the beginning of what comes next, which says
        how much of it there is. When that is about to come, the outcomes wait for it.
        """
        with self._commit_lock:
            with self._rows_lock:
                ready = all(row.kind is Kind.OUTCOME for row in self._rows)
                rows, self._rows = (self._rows, []) if ready else ([], self._rows)
            if rows:
                assert self.plan is not None, "a loop that does something has begun"
                self._store.keep(Step(run_id=self.plan.run_id, guard=guard, rows=rows))

    def _build_step(self, guard: Guard | None, finish: RunFinish | None) -> Step:
        plan = self.plan
        assert plan is not None, "a loop that does something has begun"
        with self._rows_lock:
            rows, self._rows = self._rows, []
            messages, self._messages = self._messages, []
            events, self._events = self._events, []
        start = None if self.is_stored else _build_start(plan)
        if start is not None:
            rows.insert(0, Row(0, Kind.RUN, encode_plan(plan)))
        state_is_new = self.state_changed or (start is not None and bool(plan.state))
        step = Step(
            run_id=plan.run_id,
            guard=guard,
            start=start,
            rows=rows,
            messages=messages,
            state=dict(plan.state) if state_is_new and not self._is_child else None,
            events=events,
            finish=finish,
            again=self.is_resumed,
            release=finish is not None and not self._is_child,
        )
        self.is_stored, self.is_resumed, self.state_changed = True, False, False
        return step


def _build_start(plan: Plan) -> Start:
    task = next((message.content for message in reversed(plan.messages) if message.content), "")
    return Start(
        at=plan.started_at,
        agent=plan.spec.name,
        session=plan.session_id,
        parent=plan.parent_run_id,
        task=str(task)[:_TASK_CHARACTERS],
        metadata=plan.metadata,
    )


T = TypeVar("T")
log = logging.getLogger(__name__)
STORE_WORKERS = WorkerPool(max_workers=250, max_hung=1_000)
"""Threads that wait for a store: apart from those of tools, which may all hang."""
_LEASE_POLL_S = 0.25
_TRANSIENT_EVENTS = (Delta, ToolReported)


@dataclass(frozen=True, slots=True)
class Resumption:
    """With what a run is taken up again."""

    extension: Extend | None = None


class RunJournal:
    """Writes one run to a store: a commit before each effect, with all that has happened since the last.

    Where that fails, the run is told, and nothing more is written. Children have keepers of their own, under the tenure
    of the first run.
    """

    def __init__(
        self, lease: SessionLease, clock: Clock, resumption: Resumption | None = None, *, is_child: bool = False
    ) -> None:
        self.lease = lease
        self.history: RunHistory | None = None
        """What is to be played again before the run goes on."""
        self.has_ended = False
        """Whether the run had ended before, and is played again for its result alone."""
        self.next_event = 0
        """The number of the next event."""
        self.send_signal: Callable[[Signal], object] = lambda signal: None
        """Tells the run what came up; from any thread."""
        self._clock = clock
        self._resumption = resumption
        self._is_child = is_child
        self._pending = PendingStep(lease.store, is_child=is_child)
        self._recorder: Recorder | None = None
        self._closed = False
        self._fingerprint = Fingerprint()
        self._effect_number = self._effect_fingerprint = 0
        """The effect under way, and its fingerprint."""

    def for_child(self) -> RunJournal:
        """The keeper of a child."""
        return RunJournal(self.lease, self._clock, self._resumption, is_child=True)

    def watch(self, recorder: Recorder) -> None:
        """Hear the events of a run."""
        self._recorder = recorder
        recorder.sinks = (*recorder.sinks, self._on_event)

    def _on_event(self, event: Event) -> None:
        own = self._recorder is not None and event.header is self._recorder.header
        if own and not isinstance(event, _TRANSIENT_EVENTS) and not self._closed:
            self._pending.add_event(event.to_dict())

    async def open(self, plan: Plan) -> Plan:
        """What the run begins with, or goes on from, when the session is its own; else a plan that says whose it is."""
        if self._is_child:
            return await _run_in_worker(lambda: self._read_resumed(plan)) if self._resumption else plan
        self.lease.on_lost = lambda: self._stop_writing(StaleFence(self.lease.session, "its lease was lost"))
        holder = await self._acquire_lease()
        if holder is not None:
            self._closed = True
            plan.not_started = End(Stop.CONTENDED, warning=_describe_holder(holder, self._clock.wall()))
            return plan
        return await _run_in_worker(
            lambda: self._read_session(plan) if self._resumption is None else self._read_resumed(plan)
        )

    async def _acquire_lease(self) -> Holder | None:
        """Have the session; or who has it, when one has waited long enough."""
        until = anyio.current_time() + self.lease.wait_s
        while True:
            holder = await _run_in_worker(self.lease.acquire)
            left_s = until - anyio.current_time()
            if holder is None or left_s <= 0:
                return holder
            await anyio.sleep(min(_LEASE_POLL_S, left_s))

    def _read_session(self, plan: Plan) -> Plan:
        """The plan of a run that begins, behind what was said in its session before."""
        session, store = self.lease.session, self.lease.store
        before = store.transcript.read(session)
        self._pending.add_messages(plan.messages)
        plan.messages = [*before, *plan.messages]
        plan.has_transcript, plan.stored_count = True, len(plan.messages)
        for key, value in store.state.get(session).items():
            plan.state.setdefault(key, value)
        if before:
            plan.session_run_number = 1 + len(store.runs.list(Query(session=session, limit=1_000_000)))
        return plan

    def _read_resumed(self, plan: Plan) -> Plan:
        """The plan and the past of a run that was left; a child that had not begun has none."""
        store, ledger = self.lease.store, self._pending
        rows, entry = store.journal.read(plan.run_id), store.runs.get(plan.run_id)
        if not rows or entry is None:
            if self._is_child:
                return plan
            raise ResumeError(f"run {plan.run_id}", "it is no longer in the store")
        plan, self.history = restore_plan(plan, rows[0].data), parse_journal(rows)
        self.next_event = 1 + max((event["seq"] for event in store.runs.events(plan.run_id)), default=-1)
        ledger.is_stored = ledger.is_resumed = True
        ledger.take = self.history.take + 1
        if self._is_child:
            self.has_ended = self._closed = entry.finish is not None
            return plan
        plan.has_transcript, plan.stored_count = True, len(plan.messages)
        self.history = self._select_history(self.history, plan, None if entry.finish is None else entry.finish.stop)
        return plan

    def _select_history(self, history: RunHistory, plan: Plan, stop: str | None) -> RunHistory:
        """The past up to where the run goes on; ResumeError where it does not."""
        more = None if self._resumption is None else self._resumption.extension
        if stop == Stop.PAUSED.value:
            history = history.truncate_at_question()
        elif stop in EXTENDABLE_STOPS and more is not None and history.answers:
            history.add_signals([more])  # the end was not final: it hears of this with its last answer
            self._pending.add_extended(len(history.answers) - 1, [more])
            return history
        elif stop is not None:
            to_do = (
                "extend= with more of the limit that it reached"
                if stop in EXTENDABLE_STOPS
                else "from_messages=True to start a new run from its messages"
            )
            raise ResumeError(f"run {plan.run_id}", f"it ended as {stop}; pass {to_do}")
        history.signals += () if more is None else (more,)
        return history

    def set_plan(self, plan: Plan) -> None:
        """The loop begins with this plan."""
        self._pending.plan = plan

    def matches(self, started: StartedEffect, effect: Effect[Any]) -> bool:
        """Whether an effect that is wanted again is the one that was begun."""
        return self._fingerprint.next(effect) == started.fingerprint

    def record_replayed(self, effect: Effect[Any]) -> None:
        """An effect of the past was wanted again, or has got its answer without being done."""
        self._effect_fingerprint = self._fingerprint.add(effect)

    async def record_start(self, n: int, effect: Effect[Any]) -> bool:
        """Write down that an effect begins, and all that happened before; whether it may."""
        self._effect_number, self._effect_fingerprint = n, self._fingerprint.add(effect)
        if self._closed or not self._check_lease():
            return False
        told: dict[str, Any] = {"events": 0 if self._recorder is None else self._recorder.loop_event_count}
        if isinstance(effect, Decide):
            told["question"] = effect.question.id
        self._pending.add_started(
            n, self._effect_fingerprint, told, effect.messages if isinstance(effect, Append) else ()
        )
        for act in cast("Sequence[ToolCallRun]", effect.acts) if isinstance(effect, Act) else ():
            if act.outcome is not None:  # it is taken up again, and this is known already
                self._pending.add_outcome(n, act.call.id, act.outcome)
        if isinstance(effect, Append):  # nobody waits for it: it is kept with what comes next, or with the end
            return True
        return await self._commit()

    async def _commit(self, finish: RunFinish | None = None) -> bool:
        """Keep what happened: here, if that takes no longer than to write it down, else where one can wait."""
        guard, ledger, kept = self.lease.guard, self._pending, list[bool]()
        if not self._try_commit(lambda: kept.append(ledger.commit_now(guard, finish))):
            return False
        return kept[0] or await _run_in_worker(lambda: self._try_commit(lambda: ledger.commit(guard, finish)))

    def record_answer(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> None:
        """Write down what an effect came to, with the next commit."""
        if isinstance(effect, Act) and any(isinstance(one, Success) and one.changes for one in answer.value):
            self._pending.state_changed = True
        self._pending.add_answer(n, self._effect_fingerprint, answer)

    def record_outcome(self, tool_call: ToolCallRun) -> None:
        """Write down at once what one call of a batch came to."""
        if not self._closed and tool_call.outcome is not None:
            self._pending.add_outcome(self._effect_number, tool_call.call.id, tool_call.outcome)
            worker = STORE_WORKERS.acquire()
            if worker is not None:  # else it is kept with the next commit
                worker.start(self._commit_outcomes)

    async def finish(self, result: Result) -> None:
        """Write down what the run came to, and leave the session."""
        if not self._closed and self._check_lease():
            finish = RunFinish(
                at=self._clock.wall(),
                stop=result.stop.value,
                record=_drop_record_events(_drop_result_events(result).to_dict()),
            )
            kept = await self._commit(finish)
            if kept and not self._is_child:
                self.lease.end()
        self._closed = True

    async def close(self) -> None:
        """Leave the session, if that was not done."""
        self._closed = True
        if not self._is_child and self.lease.guard is not None:
            await _run_in_worker(self.lease.release)

    def _check_lease(self) -> bool:
        if not self.lease.is_held:
            self._stop_writing(StaleFence(self.lease.session, "its lease was not renewed in time"))
        return self.lease.is_held

    def _try_commit(self, commit: Callable[[], None]) -> bool:
        """Keep what happened; whether it is kept. On any thread."""
        if self._closed:
            return False
        try:
            commit()
        except Exception as error:
            self._stop_writing(error)
            return False
        return True

    def _commit_outcomes(self) -> None:
        self._try_commit(lambda: self._pending.commit_outcomes(self.lease.guard))

    def _stop_writing(self, error: Exception) -> None:
        """Nothing is written any more, and the run must not go on."""
        self._closed = True
        self.send_signal(LeaseLost() if isinstance(error, StaleFence) else StoreFailed(describe_error(error)))
        if not isinstance(error, StoreError):
            log.error("the store raised an exception that is not a StoreError", exc_info=error)


async def _run_in_worker(work: Callable[[], T]) -> T:
    return await run_in_worker(STORE_WORKERS, work)


def _describe_holder(holder: Holder, now: float) -> str:
    """Why a run cannot begin, as another works on its session."""
    age = Unit.SECONDS.show(round(max(0.0, now - holder.since), 1))
    who = ":".join(holder.owner.split(":")[:2])  # the machine and the process; what is behind is for other processes
    return f"{who} has held session {holder.session!r} for {age}."


def _drop_result_events(result: Result) -> Result:
    """A result without events, but for those from which its record tells how the model was asked."""
    asked = [event for event in result.events if isinstance(event, ModelRequested)]
    return replace(result, events=asked, children=tuple(map(_drop_result_events, result.children)))


def _drop_record_events(record: dict[str, Any]) -> dict[str, Any]:
    """A record without events, which the store has on their own."""
    return {**record, "events": [], "children": [_drop_record_events(child) for child in record["children"]]}
