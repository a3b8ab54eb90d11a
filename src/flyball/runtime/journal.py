"""The journal of a stored run: each effect is recorded before it is performed, so that a crash loses nothing."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeVar, cast

import anyio

from .. import __version__
from .._internal.workers import get_call_soon
from ..budget.deadline import Clock
from ..errors import ResumeError, StaleFence, StoreError, describe_error
from ..event import AskedPerson
from ..loop.clock import LoopClock
from ..loop.effects import Act, Answer, Append, Ask, Decide, Effect, Extend, Fingerprint, LeaseLost, Signal, StoreFailed
from ..loop.ending import End
from ..loop.loop import EXTENDABLE_STOPS
from ..loop.plan import Plan
from ..loop.player import LoopPlayer
from ..outcome import Success
from ..recorder import Recorder
from ..result import Result, Stop
from ..store import Entry, Holder, Query, RunFinish, Step
from ..store.encoded_events import EventEncoder
from ..tools.call import ToolCallRun
from ..unit import Unit
from .commit_queue import CallSoon, CommitJob, CommitQueue
from .history import JOURNAL_CODEC, RunHistory, StartedEffect, parse_journal, read_session_run_number, restore_plan
from .lease import SessionLease
from .pending_step import PendingStep
from .store_calls import STORE_WORKERS, StoreCaller
from .stored_record import to_stored_record

T = TypeVar("T")
log = logging.getLogger(__name__)
_LEASE_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Resumption:
    """Options of a resume."""

    extension: Extend | None = None


class RunJournal:
    """Writes one run to a store, with one commit before each effect.

    If a commit fails, the run receives a signal, and nothing more is written. Child runs have their own journals, under
    the lease of the top run.
    """

    is_stored = True
    described = None

    def __init__(
        self,
        lease: SessionLease,
        clock: Clock,
        resumption: Resumption | None = None,
        parent: RunJournal | None = None,
        start_metadata: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.lease = lease
        self.history: RunHistory | None = None
        """Recorded part of a resumed run. None for a new run."""
        self.has_ended = False
        """True if the run had ended, and is replayed for its result only."""
        self.next_event = 0
        """Number of the next event."""
        self.failure: dict[str, Any] | None = None
        """Error of the store, as in `Result.error`. None if everything was stored."""
        self.opened_s = 0.0
        """Seconds that the store took to open the run."""
        self._send_signal: Callable[[Signal], object] = lambda signal: None
        """Sends a signal to the run, from any thread."""
        self._clock = clock
        self._resumption = resumption
        self._is_child = parent is not None
        self._pending = PendingStep(is_child=self._is_child, start_metadata=start_metadata)
        self._queue = CommitQueue.of(lease.store)
        self._is_counted = False
        """True while the queue counts the run."""
        self._commits_lock = Lock()
        self._is_due = False
        """True while a step is written with those of other runs."""
        self._commits_in_progress = 0
        """Number of steps in the queue. A step after them must not be written before them."""
        self._caller: StoreCaller = StoreCaller(lease.store) if parent is None else parent._caller.for_child()
        self._now: Callable[[], float] = lambda: 0.0
        """Returns the active seconds of the run."""
        self._limit_s = math.inf
        """Active seconds at which the run must have ended."""
        self._recorder: Recorder | None = None
        self._event_encoder: EventEncoder | None = None
        self._closed = False
        self._transcript_count = 0
        """Number of messages of the run, from the first, that the transcript has. 0 for a child run."""
        self._fingerprint = Fingerprint()
        self._effect_number = self._effect_fingerprint = 0
        """Number and fingerprint of the effect in progress."""
        self._effects: list[tuple[int, str | None]] = []
        """Fingerprint of each effect, and the id of its question."""

    def for_child(self) -> RunJournal:
        """Return the journal of a child run."""
        return RunJournal(self.lease, self._clock, self._resumption, self)

    def attach(self, recorder: Recorder, send_signal: Callable[[Signal], object], now: Callable[[], float]) -> None:
        """Store the events of a run, and signal failures of the store to it."""
        self._recorder = recorder
        self._event_encoder = EventEncoder(recorder.header)
        self._send_signal = send_signal
        self._now = now
        recorder.unstored = []

    def may_write(self) -> bool:
        """Return False if another run holds the session, or may hold it."""
        return self.lease.is_held

    def cancel(self) -> None:
        """Wait for the store for the closing seconds only, because the run is cancelled."""
        self._caller.cancel()

    async def open(self, plan: Plan) -> Plan:
        """Acquire the session and return the plan with what the store knows.

        If another run holds the session, or the store fails, a new run does not start, and nothing is written.
        """
        self._limit_s = _compute_limit_s(plan)
        self._queue.add_runs(1)
        self._is_counted = True
        if self._is_child:
            return await self._call_store(lambda: self._read_resumed(plan)) if self._resumption else plan
        self.lease.on_lost = lambda: self._stop_writing(StaleFence(self.lease.session, "its lease was lost"))
        try:
            opened = await self._open_session(plan)
        except Exception as error:
            if self._resumption is not None:
                raise
            self._close_failed(error)
            if not self._caller.is_cancelled:
                plan.not_started = End(Stop.FAILED, error=self.failure)
            return plan
        if isinstance(opened, Holder):
            self._closed = True
            plan.not_started = End(Stop.CONTENDED, warning=_describe_holder(opened, self._clock.wall()))
            return plan
        return opened

    async def _open_session(self, plan: Plan) -> Plan | Holder:
        """Acquire the session within the wait time and read it. Otherwise return its holder."""
        until = anyio.current_time() + self.lease.wait_s
        while True:
            started_at = self._now()
            opened = await self._call_store(lambda: self.lease.acquire() or self._read(plan))
            remaining_s = until - anyio.current_time()
            if not isinstance(opened, Holder):
                self.opened_s = self._now() - started_at
                return opened
            if remaining_s <= 0 or self._caller.is_cancelled:
                return opened
            await anyio.sleep(min(_LEASE_POLL_S, remaining_s))

    def _read(self, plan: Plan) -> Plan:
        return self._read_session(plan) if self._resumption is None else self._read_resumed(plan)

    async def _call_store(self, work: Callable[[], T]) -> T:
        """Call the store within the time of the run."""
        return await self._caller.call(work, self._compute_remaining_s())

    def _compute_remaining_s(self, deadline: float = 0.0) -> float:
        """Return the seconds that the run has left. An extended run has until the deadline of its effect."""
        limit_s = self._limit_s if deadline == math.inf else max(self._limit_s, deadline)
        return limit_s - self._now()

    def _read_session(self, plan: Plan) -> Plan:
        """Return the plan of a new run, with the earlier messages and the state of its session."""
        session, store = self.lease.session, self.lease.store
        earlier = store.transcript.read(session)
        self._pending.add_messages(plan.messages)
        self._pending.earlier = len(earlier)
        plan.messages = [*earlier, *plan.messages]
        self._use_transcript(plan)
        for key, value in store.state.get(session).items():
            plan.state.setdefault(key, value)
        if earlier:
            newest = store.runs.list(Query(session=session, limit=1))
            plan.session_run_number = 1 + sum(map(self._read_run_number, newest))
        return plan

    def _read_run_number(self, entry: Entry) -> int:
        rows = self.lease.store.journal.read(entry.run_id)
        return read_session_run_number(rows[0].data) if rows else 0

    def _use_transcript(self, plan: Plan) -> None:
        plan.has_transcript, plan.stored_count = True, len(plan.messages)
        self._transcript_count = len(plan.messages)

    def _read_resumed(self, plan: Plan) -> Plan:
        """Return the plan of a resumed run, and read its history. A child run that had not started has none."""
        store, pending = self.lease.store, self._pending
        rows, entry = store.journal.read(plan.run_id), store.runs.get(plan.run_id)
        if not rows or entry is None:
            if self._is_child:
                return plan
            raise ResumeError(f"run {plan.run_id}", "it is no longer in the store")
        plan, self.history = restore_plan(plan, rows[0].data, store.transcript), parse_journal(rows)
        events = store.runs.events(plan.run_id)
        self.next_event = 1 + max((event["seq"] for event in events), default=-1)
        pending.is_stored = pending.is_resumed = True
        pending.take = self.history.take + 1
        if self._is_child:
            self.has_ended = self._closed = entry.finish is not None
            return plan
        self._use_transcript(plan)
        stop = None if entry.finish is None else entry.finish.stop
        self.history = self._select_history(self.history, plan, stop)
        if stop == Stop.PAUSED.value:
            pending.drop_events_after = _find_asked(events, self.history.started[-1].question)
        return plan

    def _select_history(self, history: RunHistory, plan: Plan, stop: str | None) -> RunHistory:
        """Return the history up to where the run continues. Raises ResumeError if it has ended for good."""
        extension = None if self._resumption is None else self._resumption.extension
        if stop == Stop.PAUSED.value:
            history = history.truncate_at_question()
        elif stop in EXTENDABLE_STOPS and extension is not None and history.answers:
            history.add_signals([extension])  # the loop receives it with its last answer, before it decides to end
            self._pending.add_extended(len(history.answers) - 1, [extension])
            return history
        elif stop is not None:
            raise _build_ended_error(plan.run_id, stop)
        history.signals += () if extension is None else (extension,)
        return history

    def set_plan(self, plan: Plan) -> None:
        """Set the plan that the loop starts with."""
        self._pending.plan = plan

    def matches(self, started: StartedEffect, effect: Effect[Any]) -> bool:
        """Return True if an effect is the recorded one."""
        return self._fingerprint.next(effect) == started.fingerprint

    def record_replayed(self, effect: Effect[Any]) -> None:
        """Count an effect that is answered without being performed."""
        self._count_effect(effect)

    def _count_effect(self, effect: Effect[Any]) -> None:
        self._effect_fingerprint = self._fingerprint.add(effect)
        question = effect.question.id if isinstance(effect, Decide) else None
        self._effects.append((self._effect_fingerprint, question))
        if isinstance(effect, Append):
            self._transcript_count += len(effect.messages)

    def read_history(self, answers: Sequence[Answer[Any]]) -> RunHistory:
        """Return what a paused run resumes from in this process, if its agent has no store."""
        started = [StartedEffect(fingerprint=fingerprint, question=question) for fingerprint, question in self._effects]
        return RunHistory(list(answers), started, at=answers[-1].at)

    def build_divergence_error(self, player: LoopPlayer) -> ResumeError:
        """Return the error for a replay whose current effect is not the recorded one."""
        assert self.history is not None, "a replay has a history"
        assert self._recorder is not None, "a replay has a recorder"
        step, steps, version = player.answer_count + 1, len(self.history.started), self.history.version
        wants = "the run ends" if player.effect is None else f"the run wants {type(player.effect).__name__}"
        changed = (
            f"code, rules or tools have changed: at step {step} of {steps}, {wants}, and the journal, written by "
            f"Flyball {version}, has another step. This is Flyball {__version__}."
        )
        return ResumeError(
            f"run {self._recorder.header.run_id}",
            f"{changed} Resume it with the same agent and version, or pass from_messages=True to start a new run from "
            "its messages",
            command_reason=f"{changed} --from-messages starts a new run from its messages",
        )

    def release(self) -> None:
        """Do nothing: a stored run can be resumed as soon as its session is released."""

    def record_start(self, n: int, effect: Effect[Any]) -> bool | Awaitable[bool]:
        """Commit the start of an effect and everything before it. Return False if it must not be performed."""
        self._effect_number = n
        self._count_effect(effect)
        if self._closed or not self._check_lease():
            return False
        pending, kind, messages = self._pending, type(effect), ()
        events = 0 if self._recorder is None else self._recorder.loop_event_count
        data = f'{{"events":{events}}}'
        if kind is Append:
            messages = cast("Append", effect).messages
        elif kind is Decide:
            data = JOURNAL_CODEC.dumps({"events": events, "question": cast("Decide", effect).question.id})
        pending.add_started(n, self._effect_fingerprint, data, messages)
        if kind is Append:  # it is committed with the next effect or with the end
            return True
        for tool_call in cast("Sequence[ToolCallRun]", cast("Act", effect).acts) if kind is Act else ():
            if tool_call.outcome is not None:  # known from before a resume
                pending.add_outcome(n, tool_call.call.id, tool_call.outcome)
        return self._commit(effect)

    def _commit(self, effect: Effect[Any] | None = None, finish: RunFinish | None = None) -> bool | Awaitable[bool]:
        """Commit what is pending: at once if the store need not wait, otherwise in the writing thread of the store."""
        step = self._pending.build(self.lease.guard, finish, self._encode_events())
        if step is None:
            return True
        deadline = effect.deadline if isinstance(effect, Ask | Act) else 0.0
        if self._commits_in_progress:
            return self._wait_for_commit(step, deadline)
        due = self._queue.add_due(step)
        if due is not None:
            return self._wait_for_due(step, due, deadline)
        try:
            return self._queue.keep_now(step) or self._wait_for_commit(step, deadline)
        except Exception as error:
            self._stop_writing(error)
            return False

    async def _wait_for_due(self, step: Step, due: asyncio.Future[bool], deadline: float) -> bool:
        """Wait for a step that the event loop writes with those of other runs."""
        self._is_due = True
        try:
            return await due or await self._wait_for_commit(step, deadline)
        except asyncio.CancelledError:  # its step is written all the same
            if due.cancelled():
                await self._wait_for_commit(step, deadline)
            raise
        except Exception as error:
            self._stop_writing(error)
            return False
        finally:
            self._is_due = False

    def _encode_events(self) -> Sequence[Mapping[str, Any]]:
        """Return the events since the last commit."""
        if self._recorder is None or self._event_encoder is None:
            return ()
        first_seq, rows = self._recorder.take_unstored()
        return self._event_encoder.encode(first_seq, rows) if rows else ()

    async def _wait_for_commit(self, step: Step, deadline: float) -> bool:
        done = anyio.Event()
        job = self._submit(step, (get_call_soon(), done.set))
        try:
            await self._caller.wait(done, self._compute_remaining_s(deadline))
        except BaseException as error:  # the store did not respond in time, or the task was cancelled
            job.is_abandoned = True
            if not done.is_set():
                self._stop_writing(error if isinstance(error, StoreError) else self._caller.build_error())
            if not isinstance(error, StoreError):
                raise
        return not self._closed

    def _submit(self, step: Step, wake: tuple[CallSoon, Callable[[], object]] | None = None) -> CommitJob:
        job = CommitJob(step, self._on_committed, wake)
        with self._commits_lock:
            self._commits_in_progress += 1
        self._queue.submit(job)
        return job

    def _on_committed(self, job: CommitJob) -> None:
        """Note the end of a commit, on the writing thread."""
        with self._commits_lock:
            self._commits_in_progress -= 1
        if job.error is not None and not job.is_abandoned:
            self._stop_writing(job.error)

    def record_answer(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> None:
        """Record the answer to an effect. It is written with the next commit."""
        if isinstance(effect, Act) and any(isinstance(one, Success) and one.changes for one in answer.value):
            self._pending.state_changed = True
        self._pending.add_answer(n, self._effect_fingerprint, answer)

    def record_outcome(self, tool_call: ToolCallRun) -> None:
        """Write the outcome of one call of a batch at once."""
        if not self._closed and tool_call.outcome is not None:
            self._pending.add_outcome(self._effect_number, tool_call.call.id, tool_call.outcome)
            step = None if self._is_due else self._pending.build_outcomes(self.lease.guard)
            if step is not None:
                self._submit(step)

    async def finish(self, result: Result) -> None:
        """Write the result and release the session."""
        if not self._closed and self._check_lease():
            finish = RunFinish(
                at=self._clock.wall(),
                stop=result.stop.value,
                record=to_stored_record(result, self._transcript_count),
            )
            is_committed = self._commit(finish=finish)
            if not isinstance(is_committed, bool):
                is_committed = await is_committed
            if is_committed and not self._is_child:
                self.lease.end()
        self._closed = True

    async def close(self) -> None:
        """Release the session if `finish` did not."""
        self._closed = True
        if self._is_counted:
            self._queue.add_runs(-1)
            self._is_counted = False
        if self._is_child:
            return
        if self._caller.has_abandoned:  # another call would hang too, so the run does not wait for it
            worker = STORE_WORKERS.acquire()
            self.lease.end() if worker is None else worker.start(self.lease.release)
        elif self.lease.guard is not None and self.lease.is_held:
            try:
                await self._caller.call(self.lease.release, 0.0)
            except StoreError as error:
                log.warning("the lease of session %s was not released: %s", self.lease.session, error)

    def _check_lease(self) -> bool:
        if self.lease.is_held:
            return True
        self._stop_writing(StaleFence(self.lease.session, "its lease was not renewed in time"))
        return False

    def _stop_writing(self, error: Exception) -> None:
        """Write nothing more, and signal the run that it must end."""
        self._close_failed(error)
        self._send_signal(LeaseLost() if isinstance(error, StaleFence) else StoreFailed(describe_error(error)))

    def _close_failed(self, error: Exception) -> None:
        self._closed = True
        if self._recorder is not None:
            self._recorder.unstored = None
        self.failure = self.failure or dict(describe_error(error))
        if not isinstance(error, StoreError):
            log.error("the store raised an exception that is not a StoreError", exc_info=error)


def _build_ended_error(run_id: str, stop: str) -> ResumeError:
    """Return the error for a run that ended and that nothing lets continue."""
    if stop in EXTENDABLE_STOPS:
        advice = "extend= with more of the limit that it reached"
        options = "--turns +20, or more of the limit that it reached"
    else:
        aim = "to start a new run from its messages"
        advice, options = f"from_messages=True {aim}", f"--from-messages {aim}"
    return ResumeError(
        f"run {run_id}", f"it ended as {stop}; pass {advice}", command_reason=f"it ended as {stop}; use {options}"
    )


def _find_asked(events: Sequence[Mapping[str, Any]], question: str | None) -> int | None:
    """Return the number of the event that asked a question. None if no event did."""
    asked = [event for event in events if event["event"] == AskedPerson.kind]
    return next((event["seq"] for event in reversed(asked) if event["question_id"] == question), None)


def _compute_limit_s(plan: Plan) -> float:
    """Return the active seconds at which a run must have ended."""
    with plan.spec.limits.open(LoopClock(plan.started_at), plan.max_seconds, plan.max_amounts) as budget:
        return budget.hard_at


def _describe_holder(holder: Holder, now: float) -> str:
    """Return who holds the session, as the reason why a run cannot start."""
    age = Unit.SECONDS.show(round(max(0.0, now - holder.since), 1))
    who = ":".join(holder.owner.split(":")[:2])  # host and process id; the rest is for other processes
    return f"{who} has held session {holder.session!r} for {age}."
