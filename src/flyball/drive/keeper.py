"""The keeper: writes down what one run does, effect by effect, so that a run that is killed loses nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import anyio

from ..clock import Clock
from ..errors import ResumeError, StaleFence, StoreError
from ..event import Delta, Event, ToolReported
from ..loop.effect import Act, Answer, Append, Decide, Effect, Extend, Fingerprint, LeaseLost, Letter, Unkept
from ..loop.end import described
from ..loop.plan import Plan
from ..message import Message
from ..outcome import Success
from ..recorder import Recorder
from ..result import Result
from ..store import Finish, Guard, Holder, Kind, Query, Row, Start, Step, Store
from ..tools.act import ToolAct
from ..unit import Unit
from ..worker import WorkerPool, in_worker
from .past import CODE, Past, past_of, plan_told, restored
from .tenure import Tenure

T = TypeVar("T")
log = logging.getLogger(__name__)
_SCRIBES = WorkerPool(workers=250, most_hung=1_000)
"""Threads that wait for a store: apart from those of tools, which may all hang."""
_ASKED_AGAIN_S = 0.25
_TASK_CHARACTERS = 200
_UNNUMBERED = (Delta, ToolReported)


@dataclass(frozen=True, slots=True)
class Resumption:
    """With what a run is taken up again."""

    extension: Extend | None = None
    answers: Mapping[str, Any] | None = None


class Keeper:
    """Writes one run to a store: a commit before each effect, with all that has happened since the last.

    Where that fails, the run is told, and nothing more is written. Children have keepers of their own, under the tenure
    of the first run.
    """

    def __init__(
        self, tenure: Tenure, clock: Clock, resumption: Resumption | None = None, *, of: Keeper | None = None
    ) -> None:
        self.past: Past | None = None
        """What is to be played again before the run goes on."""
        self.over = False
        """Whether the run had ended before, and is played again for its result alone."""
        self.post: Callable[[Letter], object] = lambda letter: None
        """Tells the run what came up; from any thread."""
        self.tenure = tenure
        self._store: Store = tenure.store
        self._clock = clock
        self._above = of
        self.resumption = resumption
        self._prints = Fingerprint()
        self._plan: Plan | None = None
        self._recorder: Recorder | None = None
        self._closed = False
        self._entered = False
        self._take = 0
        self._again = False
        self._writing = Lock()
        self._rows: list[Row] = []
        self._messages: list[Message] = []
        self._events: list[Mapping[str, Any]] = []
        self._state_changed = False
        self._n = 0
        """The effect under way."""
        self._print = 0
        """Its fingerprint."""
        self.next_event = 0
        """The number of the next event."""

    def child(self) -> Keeper:
        """The keeper of a child."""
        return Keeper(self.tenure, self._clock, self.resumption, of=self)

    @property
    def is_childs(self) -> bool:
        """Whether it is a child's, whose session is its parent's."""
        return self._above is not None

    def watch(self, recorder: Recorder) -> None:
        """Hear the events of a run."""
        self._recorder = recorder
        recorder.sinks = (*recorder.sinks, self._note)

    def _note(self, event: Event) -> None:
        recorder = self._recorder
        if recorder is not None and event.header is recorder.header and not isinstance(event, _UNNUMBERED):
            self._events.append(event.to_dict())

    async def open(self, plan: Plan) -> Plan:
        """What the run begins with, or goes on from, when the session is its own; else a plan that says whose it is."""
        if self.is_childs:
            return await self._crossing(lambda: self._read_again(plan)) if self.resumption else plan
        holder = await self._taken()
        if holder is not None:
            self._closed = True
            return _contended(plan, holder, self._clock.wall())
        return await self._crossing(lambda: self._opened(plan))

    async def _taken(self) -> Holder | None:
        """Have the session; or who has it, when one has waited long enough."""
        until = anyio.current_time() + self.tenure.wait_s
        while True:
            holder = await self._crossing(self.tenure.take)
            left_s = until - anyio.current_time()
            if holder is None or left_s <= 0:
                return holder
            await anyio.sleep(min(_ASKED_AGAIN_S, left_s))

    def _opened(self, plan: Plan) -> Plan:
        if self.resumption is not None:
            plan = self._read_again(plan)
            self._check_end(plan)
            return plan
        session, store = self.tenure.session, self._store
        before = store.transcript.read(session)
        given = plan.messages
        self._messages = list(given)
        return _with_session(
            plan,
            [*before, *given],
            {**store.state.get(session), **plan.state},
            1 + len(store.runs.list(Query(session=session, limit=1_000_000))) if before else 1,
        )

    def _read_again(self, plan: Plan) -> Plan:
        """The plan and the past of a run that was left; of a child that had not begun there is none."""
        rows, entry = self._store.journal.read(plan.run_id), self._store.runs.get(plan.run_id)
        if not rows or entry is None:
            return plan
        self._entered = True
        self.past = past_of(rows)
        self.next_event = 1 + max((event["seq"] for event in self._store.runs.events(plan.run_id)), default=-1)
        self._take = self.past.take + 1
        self._again = True
        self.over = self.is_childs and entry.finish is not None
        self._closed = self.over
        plan = restored(plan, rows[0].data)
        if not self.is_childs:
            plan.keeps, plan.kept = True, len(plan.messages)
            self._check_can_go_on(plan, None if entry.finish is None else entry.finish.stop)
        return plan

    def _check_can_go_on(self, plan: Plan, stop: str | None) -> None:
        """Cut the past to where the run goes on; ResumeError where it does not."""
        assert self.past is not None
        assert self.resumption is not None
        extension = self.resumption.extension
        if stop == "paused":
            self.past = self.past.until_open()
        elif stop is not None and (extension is None or stop not in ("budget", "deadline") or not self.past.answers):
            wanted = "more of what it has met (extend=)" if stop in ("budget", "deadline") else "from_messages=True"
            raise ResumeError(f"run {plan.run_id}", f"a run that ended as {stop}", wanted)
        if extension is not None:
            self._extend(extension, ended=stop in ("budget", "deadline"))

    def _extend(self, extension: Extend, ended: bool) -> None:
        """Write down that the run gets more. One that had ended hears it with its last answer."""
        assert self.past is not None
        if not ended:
            self.past.letters.append(extension)
            return
        n = len(self.past.answers) - 1
        self.past.extended([extension])
        self._rows.append(Row(n, Kind.EXTENDED, CODE.dumps([extension]), take=self._take))

    def _check_end(self, plan: Plan) -> None:
        if self.past is None:
            raise ResumeError(
                f"run {plan.run_id}", "a run of which the store knows nothing", "the id of one of its runs"
            )

    def begin(self, plan: Plan) -> None:
        """The loop begins with this plan."""
        self._plan = plan

    def fits(self, n: int, effect: Effect[Any]) -> bool:
        """Whether an effect that is played again is the one that was done."""
        assert self.past is not None
        return self._prints.add(effect) == self.past.prints[n]

    def known(self, n: int, outcomes: Mapping[str, Any]) -> None:
        """What calls of an effect that is taken up again have come to."""
        self._rows += [self._outcome_row(n, call_id, outcome) for call_id, outcome in outcomes.items()]

    async def started(self, n: int, effect: Effect[Any]) -> bool:
        """Write down that an effect begins, and all that happened before; whether it may."""
        self._n = n
        print_ = self._prints.add(effect)
        if self._closed or not self._may_write():
            return False
        told: dict[str, Any] = {"events": 0 if self._recorder is None else self._recorder.told}
        if isinstance(effect, Decide):
            told["question"] = effect.question.id
        self._rows.insert(self._place_of_start(n), Row(n, Kind.STARTED, CODE.dumps(told), print_, self._take))
        self._print = print_
        if isinstance(effect, Append):
            self._messages += effect.messages
        return await self._flushed()

    def _place_of_start(self, n: int) -> int:
        """Before the outcomes that are known of it already."""
        return next((at for at, row in enumerate(self._rows) if row.n == n), len(self._rows))

    def answered(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> None:
        """Write down what an effect came to, with the next commit."""
        if isinstance(effect, Act) and any(isinstance(one, Success) and one.changes for one in answer.value):
            self._state_changed = not self.is_childs
        self._rows.append(Row(n, Kind.ANSWER, CODE.dumps(answer), self._print, self._take))

    def interrupted(self, effect: Effect[Any]) -> None:
        """An effect that was begun before gets its answer without being done."""
        self._print = self._prints.add(effect)

    def ended(self, act: ToolAct) -> None:
        """Write down at once what one call of a batch came to."""
        if not self._closed and act.outcome is not None:
            self._rows.append(self._outcome_row(self._n, act.call.id, act.outcome))
            worker = _SCRIBES.take()
            if worker is not None:
                worker.start(self._flush_soon)

    def _flush_soon(self) -> None:
        self._flush()

    def _outcome_row(self, n: int, call_id: str, outcome: Any) -> Row:
        return Row(n, Kind.OUTCOME, CODE.dumps([call_id, outcome]), take=self._take)

    async def finish(self, result: Result) -> None:
        """Write down what the run came to, and leave the session."""
        if not self._closed and self._may_write():
            record = _slim(result.to_dict())
            await self._flushed(Finish(at=self._clock.wall(), stop=result.stop.value, record=record))
        self._closed = True

    async def close(self) -> None:
        """Leave the session, if that was not done."""
        self._closed = True
        if not self.is_childs and self.tenure.guard is not None:
            await self._crossing(self.tenure.give_back)

    def _may_write(self) -> bool:
        if self.tenure.holds:
            return True
        self._broken(StaleFence("session", "the lease was not renewed in time"))
        return False

    async def _flushed(self, finish: Finish | None = None) -> bool:
        """Wait until all is kept; whether it is."""
        return await self._crossing(lambda: self._flush(finish))

    def _flush(self, finish: Finish | None = None) -> bool:
        """One commit. On any thread, one at a time, in order."""
        with self._writing:
            if self._closed:
                return False
            step = self._step(finish)
            if not (step.rows or step.finish or step.start):
                return True
            try:
                self._store.keep(step)
            except Exception as error:
                self._broken(error)
                return False
            return True

    def _step(self, finish: Finish | None) -> Step:
        rows, self._rows = self._rows, []
        messages, self._messages = self._messages, []
        events, self._events = self._events, []
        start: Start | None = None
        if not self._entered:
            start = self._start()
            rows.insert(0, Row(0, Kind.RUN, plan_told(self._known_plan)))
        state = dict(self._known_plan.state) if self._state_changed or (start and not self.is_childs) else None
        step = Step(
            run_id=self._known_plan.run_id,
            guard=self._guard,
            start=start,
            rows=rows,
            messages=messages,
            state=state or None if start else state,
            events=events,
            finish=finish,
            again=self._again,
            release=finish is not None and not self.is_childs,
        )
        if step.release:
            self.tenure.end()
        self._entered, self._again, self._state_changed = True, False, False
        return step

    def _start(self) -> Start:
        plan = self._known_plan
        task = next((message.content for message in reversed(plan.messages) if message.content), "")
        return Start(
            at=plan.started_at,
            agent=plan.shared.agent,
            session=plan.session_id,
            parent=plan.parent_run_id,
            task=str(task)[:_TASK_CHARACTERS],
            metadata=plan.metadata,
        )

    @property
    def _known_plan(self) -> Plan:
        assert self._plan is not None, "a loop that does something has begun"
        return self._plan

    @property
    def _guard(self) -> Guard | None:
        return self.tenure.guard

    def _broken(self, error: Exception) -> None:
        """Nothing is written any more, and the run must not go on."""
        self._closed = True
        self.post(LeaseLost() if isinstance(error, StaleFence) else Unkept(described(error)))
        if not isinstance(error, StoreError):
            log.error("the store raised what is no StoreError", exc_info=error)

    async def _crossing(self, work: Callable[[], T]) -> T:
        return await in_worker(_SCRIBES, work)


def _with_session(plan: Plan, messages: Sequence[Message], state: dict[str, Any], number: int) -> Plan:
    plan.messages, plan.number = messages, number
    plan.state.update(state)
    plan.keeps, plan.kept = True, len(messages)
    return plan


def _contended(plan: Plan, holder: Holder, now: float) -> Plan:
    """The plan of a run that cannot begin, as another works on its session."""
    age = Unit.SECONDS.show(round(max(0.0, now - holder.since), 1))
    plan.contended = f"{holder.owner.rpartition(':')[0]} has held session {holder.session!r} for {age}."
    return plan


def _slim(record: dict[str, Any]) -> dict[str, Any]:
    """A record without events, which the store has on their own."""
    return {**record, "events": [], "children": [_slim(child) for child in record["children"]]}
