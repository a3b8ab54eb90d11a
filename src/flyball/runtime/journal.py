"""The keeper: writes down what one run does, effect by effect, so that a run that is killed loses nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar, cast

import anyio

from .._internal.workers import WorkerPool, in_worker
from ..budget.deadline import Clock
from ..errors import ResumeError, StaleFence, StoreError
from ..event import Delta, Event, ModelRequested, ToolReported
from ..loop.effects import Act, Answer, Append, Decide, Effect, Extend, Fingerprint, LeaseLost, Signal, Unkept
from ..loop.ending import described
from ..loop.loop import MORE_HELPS
from ..loop.plan import Plan
from ..message import Message
from ..outcome import Outcome, Success
from ..recorder import Recorder
from ..result import Result, Stop
from ..store import Guard, Holder, Kind, Query, Row, RunFinish, Start, Step, Store
from ..tools.call import ToolCallRun
from ..unit import Unit
from .history import CODE, RunHistory, StartedEffect, past_of, plan_told, restored
from .lease import SessionLease

_TASK_CHARACTERS = 200


class PendingStep:
    """Gathers what one run leaves, and keeps all of it in one commit. Safe between threads; commits come in order."""

    def __init__(self, store: Store, *, is_childs: bool) -> None:
        self.plan: Plan | None = None
        """What the run began with."""
        self.take = 0
        """How often it was taken up again."""
        self.entered = False
        """Whether the store knows the run."""
        self.goes_on = False
        """Whether this is the first that is written since it was taken up again."""
        self.state_changed = False
        self._store = store
        self._is_childs = is_childs
        self._unkept: Step | None = None
        """What could not be kept without waiting."""
        self._gathering = Lock()
        self._writing = Lock()
        self._rows: list[Row] = []
        self._messages: list[Message] = []
        self._events: list[Mapping[str, Any]] = []

    def started(self, n: int, print_: int, told: Mapping[str, Any], messages: Sequence[Message]) -> None:
        """An effect begins; those that say something have it said then."""
        with self._gathering:
            self._rows.append(Row(n, Kind.STARTED, CODE.dumps(told), print_, self.take))
            self._messages += messages

    def outcome(self, n: int, call_id: str, outcome: Outcome) -> None:
        """One call of a batch has come to this."""
        with self._gathering:
            self._rows.append(Row(n, Kind.OUTCOME, CODE.dumps([call_id, outcome]), take=self.take))

    def answer(self, n: int, print_: int, answer: object) -> None:
        """An effect has come to this."""
        with self._gathering:
            self._rows.append(Row(n, Kind.ANSWER, CODE.dumps(answer), print_, self.take))

    def extended(self, n: int, letters: Sequence[object]) -> None:
        """A run that had ended was given more, with its last answer."""
        with self._gathering:
            self._rows.append(Row(n, Kind.EXTENDED, CODE.dumps(letters), take=self.take))

    def say(self, messages: Sequence[Message]) -> None:
        """This was said."""
        with self._gathering:
            self._messages += messages

    def note(self, event: Mapping[str, Any]) -> None:
        """This has happened."""
        with self._gathering:
            self._events.append(event)

    def commit(self, guard: Guard | None, finish: RunFinish | None = None) -> None:
        """Keep all that was gathered; with the end of a run at the top its lease is given back. It blocks."""
        with self._writing:
            step, self._unkept = self._unkept or self._step(guard, finish), None
            if step.rows or step.events or step.finish is not None:
                self._store.keep(step)

    def commit_now(self, guard: Guard | None, finish: RunFinish | None = None) -> bool:
        """The same without waiting for anybody; False where one must, and `commit` is still to be called."""
        keep_now = getattr(self._store, "keep_now", None)
        if keep_now is None or not self._writing.acquire(blocking=False):
            return False
        try:
            step = self._step(guard, finish)
            if not (step.rows or step.events or step.finish is not None) or keep_now(step):
                return True
            self._unkept = step
            return False
        finally:
            self._writing.release()

    def commit_outcomes(self, guard: Guard | None) -> None:
        """Keep what calls have come to while others of their batch are under way. It blocks.

        Nothing else: what is told behind the answer is kept together with the beginning of what comes next, which says
        how much of it there is. When that is about to come, the outcomes wait for it.
        """
        with self._writing:
            with self._gathering:
                ready = all(row.kind is Kind.OUTCOME for row in self._rows)
                rows, self._rows = (self._rows, []) if ready else ([], self._rows)
            if rows:
                assert self.plan is not None, "a loop that does something has begun"
                self._store.keep(Step(run_id=self.plan.run_id, guard=guard, rows=rows))

    def _step(self, guard: Guard | None, finish: RunFinish | None) -> Step:
        plan = self.plan
        assert plan is not None, "a loop that does something has begun"
        with self._gathering:
            rows, self._rows = self._rows, []
            messages, self._messages = self._messages, []
            events, self._events = self._events, []
        start = None if self.entered else _start(plan)
        if start is not None:
            rows.insert(0, Row(0, Kind.RUN, plan_told(plan)))
        state_is_new = self.state_changed or (start is not None and bool(plan.state))
        step = Step(
            run_id=plan.run_id,
            guard=guard,
            start=start,
            rows=rows,
            messages=messages,
            state=dict(plan.state) if state_is_new and not self._is_childs else None,
            events=events,
            finish=finish,
            again=self.goes_on,
            release=finish is not None and not self._is_childs,
        )
        self.entered, self.goes_on, self.state_changed = True, False, False
        return step


def _start(plan: Plan) -> Start:
    task = next((message.content for message in reversed(plan.messages) if message.content), "")
    return Start(
        at=plan.started_at,
        agent=plan.shared.agent,
        session=plan.session_id,
        parent=plan.parent_run_id,
        task=str(task)[:_TASK_CHARACTERS],
        metadata=plan.metadata,
    )


T = TypeVar("T")
log = logging.getLogger(__name__)
SCRIBES = WorkerPool(workers=250, most_hung=1_000)
"""Threads that wait for a store: apart from those of tools, which may all hang."""
_ASKED_AGAIN_S = 0.25
_UNNUMBERED = (Delta, ToolReported)


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
        self, tenure: SessionLease, clock: Clock, resumption: Resumption | None = None, *, is_childs: bool = False
    ) -> None:
        self.tenure = tenure
        self.past: RunHistory | None = None
        """What is to be played again before the run goes on."""
        self.over = False
        """Whether the run had ended before, and is played again for its result alone."""
        self.next_event = 0
        """The number of the next event."""
        self.post: Callable[[Signal], object] = lambda letter: None
        """Tells the run what came up; from any thread."""
        self._clock = clock
        self._resumption = resumption
        self._is_childs = is_childs
        self._ledger = PendingStep(tenure.store, is_childs=is_childs)
        self._recorder: Recorder | None = None
        self._closed = False
        self._prints = Fingerprint()
        self._n = self._print = 0
        """The effect under way, and its fingerprint."""

    def child(self) -> RunJournal:
        """The keeper of a child."""
        return RunJournal(self.tenure, self._clock, self._resumption, is_childs=True)

    def watch(self, recorder: Recorder) -> None:
        """Hear the events of a run."""
        self._recorder = recorder
        recorder.sinks = (*recorder.sinks, self._heard)

    def _heard(self, event: Event) -> None:
        own = self._recorder is not None and event.header is self._recorder.header
        if own and not isinstance(event, _UNNUMBERED) and not self._closed:
            self._ledger.note(event.to_dict())

    async def open(self, plan: Plan) -> Plan:
        """What the run begins with, or goes on from, when the session is its own; else a plan that says whose it is."""
        if self._is_childs:
            return await _crossing(lambda: self._read_again(plan)) if self._resumption else plan
        self.tenure.lost = lambda: self._broken(StaleFence(self.tenure.session, "its lease was lost"))
        holder = await self._taken()
        if holder is not None:
            self._closed = True
            plan.contended = _told(holder, self._clock.wall())
            return plan
        return await _crossing(lambda: self._read_session(plan) if self._resumption is None else self._read_again(plan))

    async def _taken(self) -> Holder | None:
        """Have the session; or who has it, when one has waited long enough."""
        until = anyio.current_time() + self.tenure.wait_s
        while True:
            holder = await _crossing(self.tenure.take)
            left_s = until - anyio.current_time()
            if holder is None or left_s <= 0:
                return holder
            await anyio.sleep(min(_ASKED_AGAIN_S, left_s))

    def _read_session(self, plan: Plan) -> Plan:
        """The plan of a run that begins, behind what was said in its session before."""
        session, store = self.tenure.session, self.tenure.store
        before = store.transcript.read(session)
        self._ledger.say(plan.messages)
        plan.messages = [*before, *plan.messages]
        plan.keeps, plan.kept = True, len(plan.messages)
        for key, value in store.state.get(session).items():
            plan.state.setdefault(key, value)
        if before:
            plan.number = 1 + len(store.runs.list(Query(session=session, limit=1_000_000)))
        return plan

    def _read_again(self, plan: Plan) -> Plan:
        """The plan and the past of a run that was left; a child that had not begun has none."""
        store, ledger = self.tenure.store, self._ledger
        rows, entry = store.journal.read(plan.run_id), store.runs.get(plan.run_id)
        if not rows or entry is None:
            if self._is_childs:
                return plan
            raise ResumeError(f"run {plan.run_id}", "a run that is gone from the store", "one that is there")
        plan, self.past = restored(plan, rows[0].data), past_of(rows)
        self.next_event = 1 + max((event["seq"] for event in store.runs.events(plan.run_id)), default=-1)
        ledger.entered = ledger.goes_on = True
        ledger.take = self.past.take + 1
        if self._is_childs:
            self.over = self._closed = entry.finish is not None
            return plan
        plan.keeps, plan.kept = True, len(plan.messages)
        self.past = self._to_go_on_from(self.past, plan, None if entry.finish is None else entry.finish.stop)
        return plan

    def _to_go_on_from(self, past: RunHistory, plan: Plan, stop: str | None) -> RunHistory:
        """The past up to where the run goes on; ResumeError where it does not."""
        more = None if self._resumption is None else self._resumption.extension
        if stop == Stop.PAUSED.value:
            past = past.until_open()
        elif stop in MORE_HELPS and more is not None and past.answers:
            past.extended([more])  # the end was not final: it hears of this with its last answer
            self._ledger.extended(len(past.answers) - 1, [more])
            return past
        elif stop is not None:
            wanted = "more of what it has met (extend=)" if stop in MORE_HELPS else "from_messages=True"
            raise ResumeError(f"run {plan.run_id}", f"a run that ended as {stop}", wanted)
        past.letters += () if more is None else (more,)
        return past

    def begin(self, plan: Plan) -> None:
        """The loop begins with this plan."""
        self._ledger.plan = plan

    def fits(self, begun: StartedEffect, effect: Effect[Any]) -> bool:
        """Whether an effect that is wanted again is the one that was begun."""
        return self._prints.next(effect) == begun.print

    def passed(self, effect: Effect[Any]) -> None:
        """An effect of the past was wanted again, or has got its answer without being done."""
        self._print = self._prints.add(effect)

    async def started(self, n: int, effect: Effect[Any]) -> bool:
        """Write down that an effect begins, and all that happened before; whether it may."""
        self._n, self._print = n, self._prints.add(effect)
        if self._closed or not self._holds():
            return False
        told: dict[str, Any] = {"events": 0 if self._recorder is None else self._recorder.told}
        if isinstance(effect, Decide):
            told["question"] = effect.question.id
        self._ledger.started(n, self._print, told, effect.messages if isinstance(effect, Append) else ())
        for act in cast("Sequence[ToolCallRun]", effect.acts) if isinstance(effect, Act) else ():
            if act.outcome is not None:  # it is taken up again, and this is known already
                self._ledger.outcome(n, act.call.id, act.outcome)
        if isinstance(effect, Append):  # nobody waits for it: it is kept with what comes next, or with the end
            return True
        return await self._committed()

    async def _committed(self, finish: RunFinish | None = None) -> bool:
        """Keep what happened: here, if that takes no longer than to write it down, else where one can wait."""
        guard, ledger, kept = self.tenure.guard, self._ledger, list[bool]()
        if not self._kept(lambda: kept.append(ledger.commit_now(guard, finish))):
            return False
        return kept[0] or await _crossing(lambda: self._kept(lambda: ledger.commit(guard, finish)))

    def answered(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> None:
        """Write down what an effect came to, with the next commit."""
        if isinstance(effect, Act) and any(isinstance(one, Success) and one.changes for one in answer.value):
            self._ledger.state_changed = True
        self._ledger.answer(n, self._print, answer)

    def ended(self, act: ToolCallRun) -> None:
        """Write down at once what one call of a batch came to."""
        if not self._closed and act.outcome is not None:
            self._ledger.outcome(self._n, act.call.id, act.outcome)
            worker = SCRIBES.take()
            if worker is not None:  # else it is kept with the next commit
                worker.start(self._keep_outcomes)

    async def finish(self, result: Result) -> None:
        """Write down what the run came to, and leave the session."""
        if not self._closed and self._holds():
            finish = RunFinish(at=self._clock.wall(), stop=result.stop.value, record=_slim(_lean(result).to_dict()))
            kept = await self._committed(finish)
            if kept and not self._is_childs:
                self.tenure.end()
        self._closed = True

    async def close(self) -> None:
        """Leave the session, if that was not done."""
        self._closed = True
        if not self._is_childs and self.tenure.guard is not None:
            await _crossing(self.tenure.give_back)

    def _holds(self) -> bool:
        if not self.tenure.holds:
            self._broken(StaleFence(self.tenure.session, "its lease was not renewed in time"))
        return self.tenure.holds

    def _kept(self, commit: Callable[[], None]) -> bool:
        """Keep what happened; whether it is kept. On any thread."""
        if self._closed:
            return False
        try:
            commit()
        except Exception as error:
            self._broken(error)
            return False
        return True

    def _keep_outcomes(self) -> None:
        self._kept(lambda: self._ledger.commit_outcomes(self.tenure.guard))

    def _broken(self, error: Exception) -> None:
        """Nothing is written any more, and the run must not go on."""
        self._closed = True
        self.post(LeaseLost() if isinstance(error, StaleFence) else Unkept(described(error)))
        if not isinstance(error, StoreError):
            log.error("the store raised what is no StoreError", exc_info=error)


async def _crossing(work: Callable[[], T]) -> T:
    return await in_worker(SCRIBES, work)


def _told(holder: Holder, now: float) -> str:
    """Why a run cannot begin, as another works on its session."""
    age = Unit.SECONDS.show(round(max(0.0, now - holder.since), 1))
    who = ":".join(holder.owner.split(":")[:2])  # the machine and the process; what is behind is for other processes
    return f"{who} has held session {holder.session!r} for {age}."


def _lean(result: Result) -> Result:
    """A result without events, but for those from which its record tells how the model was asked."""
    asked = [event for event in result.events if isinstance(event, ModelRequested)]
    return replace(result, events=asked, children=tuple(map(_lean, result.children)))


def _slim(record: dict[str, Any]) -> dict[str, Any]:
    """A record without events, which the store has on their own."""
    return {**record, "events": [], "children": [_slim(child) for child in record["children"]]}
