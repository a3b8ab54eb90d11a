"""The driver: one run's effects, done. It decides nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from threading import get_ident
from typing import Any, cast

import anyio
import anyio.lowlevel

from .._internal.workers import WorkerPool, get_call_soon
from ..budget.budget import IterationBudget
from ..budget.deadline import SYSTEM, Clock
from ..budget.run_budget import TurnBudget
from ..event import Delta, Event, Header, ToolReported
from ..loop.effects import Act, Answer, Append, Ask, Cancel, Decide, Effect, Flow, Grant, Late, Stalled, TimeUp, Wait
from ..loop.loop import converse
from ..loop.plan import Plan
from ..models import Model
from ..outcome import Outcome
from ..person import Question, Verdict
from ..recorder import Fields, Recorder
from ..request import ModelFailure, Purpose, Reply
from ..result import Result, Stop
from ..tools.call import ToolCallRun
from ..tools.runner import ToolRunner
from .approval import NO_PERSON, ApprovalCaller, Person
from .history import PausedRun, is_open
from .journal import RunJournal
from .model_call import ModelCaller
from .resume import replay_pause, resume_run
from .runner import Runner, SignalQueue
from .shared_budget import SharedBudgetClient
from .timer import RunTimer

_CLOSING_S = 5.0
"""How long a run that is cancelled may take to keep what it has."""
_YIELD_EVERY = 33
"""Effects: a model and tools that never wait would else keep everybody else from running."""
_WORKERS = WorkerPool()
_GRACE = Purpose.GRACE  # found once: see loop/state.py


class Driver:
    """Drives one run: `await Driver(plan, recorder).drive()` gives its result.

    If the task is cancelled meanwhile, the run is closed as cancelled, `result` has what there is, and the cancellation
    is raised again.
    """

    __slots__ = (
        "_approval_caller",
        "_call_soon",
        "_journal",
        "_later_verdicts",
        "_loop",
        "_model_caller",
        "_paused",
        "_performer",
        "_person",
        "_plan",
        "_scope",
        "_shared_budget",
        "_state",
        "_thread",
        "_until",
        "_yield_at",
        "answers",
        "budget_client",
        "parent_signals",
        "recorder",
        "result",
        "signals",
        "timer",
    )  # fmt: skip

    def __init__(
        self,
        plan: Plan,
        recorder: Recorder,
        signals: SignalQueue | None = None,
        *,
        clock: Clock = SYSTEM,
        shared_budget: TurnBudget | None = None,
        workers: WorkerPool = _WORKERS,
        person: Person = NO_PERSON,
        make_performer: Callable[..., ToolRunner] = ToolRunner,
    ) -> None:
        self.recorder = recorder
        self.signals = signals or SignalQueue()
        self._journal: RunJournal | None = None
        self.answers: list[Answer[Any]] = []
        """Everything the loop was told: the run can be played again from it."""
        self.result: Result | None = None
        self.parent_signals: SignalQueue | None = None
        """Who hears of what comes when the run has ended: its parent."""
        self._plan = plan
        self._until = plan.until
        self._loop: Flow[Result] = converse(plan, recorder)
        self.timer = RunTimer(clock)
        shared = plan.spec
        model = cast("Model", shared.model.main)
        self._model_caller = ModelCaller(model, shared.model.is_async, workers, self._emit_delta, shared.model.others)
        self._performer = make_performer(
            workers=workers,
            clock=self.timer,
            run_id=plan.run_id,
            state=plan.state,
            metadata=plan.metadata,
            watcher=self,
        )
        self._state = dict(plan.state)
        """What the run begins with."""
        self._paused = person.paused
        self._later_verdicts: dict[str, Verdict] | None = None
        """What is answered after the first question that stays open."""
        self._person = person
        self._approval_caller: ApprovalCaller | None = None
        self._shared_budget = shared_budget
        self.budget_client = None if shared_budget is None else SharedBudgetClient(shared_budget)
        self._scope: anyio.CancelScope | None = None
        self._call_soon: Callable[[Callable[[], object]], object] | None = None
        self._thread = 0
        self._yield_at = _YIELD_EVERY

    def attach_journal(self, journal: RunJournal) -> None:
        """Have all written down that it does."""
        self._journal = journal
        journal.send_signal = self.signals.send
        journal.watch(self.recorder)
        self._performer.may_write = lambda: journal.lease.is_held

    @property
    def ceilings(self) -> Mapping[str, IterationBudget]:
        """What the run's budgets began with."""
        return self._plan.spec.limits.budgets

    @property
    def agent(self) -> str:
        """Whose run it is."""
        return self._plan.spec.name

    @property
    def children(self) -> Mapping[str, Runner]:
        """Those that go on now, by the ids of their runs."""
        return self._performer.running_children

    @property
    def idle_s(self) -> float:
        """For how long nothing has come of it: no reply, no outcome, no piece of text; of it, or of its children."""
        own = self.timer.now() - self.recorder.at
        return min([own, *(child.idle_s for child in tuple(self.children.values()))])

    def stall(self, idle_s: float) -> None:
        """Cut what is under way, as nothing comes of it; the run reports, and that is cut too when nothing comes."""
        if self.signals.send(Stalled(idle_s)):
            self._cancel_scope()

    def drive(self) -> Coroutine[Any, Any, Result]:
        """Do what the loop wants until it has ended; where the run is kept, within a session that is its own."""
        return self._drive() if self._journal is None else self._drive_with_journal(self._journal)

    async def _drive_with_journal(self, journal: RunJournal) -> Result:
        try:
            plan = self._plan = await journal.open(self._plan)
            self._until, self._performer.state = plan.until, plan.state
            if journal.history is not None:
                verdicts = {**journal.history.later_verdicts, **self._person.verdicts}
                self._person = replace(self._person, verdicts=verdicts)
            self._loop = converse(plan, self.recorder)
            self.timer.set_elapsed(0.0)  # waiting for the session takes nothing of the run's time
            return await self._drive()
        finally:
            await journal.close()

    async def _drive(self) -> Result:
        self._call_soon, self._thread = get_call_soon(), get_ident()
        self._model_caller.bind_thread(self._call_soon, self._thread)
        mailbox, pace, doing = self.signals, self.timer, self._perform if self._journal is None else self._start_effect
        mailbox.on_cancel(self._request_cancel)
        effect: Effect[Any] | None = None
        try:
            effect = self._start_loop()
            while effect is not None and not mailbox.is_cancelling:
                with pace.scope() as scope:
                    self._scope = scope
                    pace.enter(scope)
                    # What ends at the very moment its time is over, or ignores that, leaves a scope that cuts what
                    # comes next; so that gets a new one.
                    while effect is not None and not mailbox.is_cancelling and not pace.is_cancelled():
                        effect = self.send_answer(effect, await doing(effect))
                if effect is not None and scope.cancelled_caught:  # its time is over, or somebody wants it cut
                    effect = self.send_answer(effect, self._interrupt_effect(effect))
        except BaseException:
            self.signals.send(self._cancelled)
            await self._close(effect)
            raise
        await self._close(effect)
        assert self.result is not None, "a loop that has ended has its result"
        return self.result

    @property
    def _cancelled(self) -> Cancel:
        """What it means for the run that its task is cancelled: a child's is part of its parent's."""
        return Cancel("task" if self._plan.parent_run_id is None else "parent")

    async def _close(self, effect: Effect[Any] | None) -> None:
        """After a cancel: keep what there is, for a while; nothing else is waited for."""
        if effect is not None and not self.signals.ended:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSING_S):
                while effect is not None:
                    keeps = isinstance(effect, Append | Grant)
                    effect = self.send_answer(
                        effect, await self._start_effect(effect) if keeps else self._interrupt_effect(effect)
                    )
            while effect is not None:
                effect = self.send_answer(effect, self._interrupt_effect(effect))
        if self.budget_client is not None:
            self.budget_client.close()
        if self._journal is not None and self.result is not None:
            await self._journal.finish(self.result)
        self._break_cycles()

    def _break_cycles(self) -> None:
        """Let go of each other: what is tied in a circle waits for the collector, and a thousand runs would show it."""
        self.timer.leave()
        self.signals.on_cancel(None)
        if self.parent_signals is None or self.result is None or not self.result.hung:
            self._performer.watcher = None
        self._model_caller.detach()

    def send_answer(self, effect: Effect[Any], value: Any) -> Effect[Any] | None:
        """Tell the loop what an effect came to, when, and what has come in meanwhile."""
        mailbox, pace = self.signals, self.timer
        mailbox.lock.acquire()
        try:
            if self._until is not None and pace.wall() >= self._until:
                mailbox.send(TimeUp())
            answer = Answer(value, pace.now(), mailbox.drain() if mailbox.pending else ())
            if self._journal is not None:
                self._journal.record_answer(len(self.answers), effect, answer)
            self.answers.append(answer)
            return self.advance(answer)
        finally:
            mailbox.lock.release()

    def advance(self, answer: Any) -> Effect[Any] | None:
        """Hear what the loop wants next; None when it has ended."""
        try:
            effect = self._loop.send(answer)
            if type(effect) is Ask:
                self.signals.in_grace_turn = effect.request.purpose is _GRACE
            return effect
        except BaseException as end:
            self.signals.ended = True
            if not isinstance(end, StopIteration):
                raise
            self.result = self._attach_pause(end.value)
            return None

    def _attach_pause(self, result: Result) -> Result:
        """The result; of a paused run, with what it goes on from."""
        if result.stop is not Stop.PAUSED:
            return result
        plan = replace(self._plan, state=self._state)
        unheard = self.signals.drain()
        return replace(
            result,
            pause=PausedRun(plan, self.answers, result, self._later_verdicts or {}, unheard, self._shared_budget),
        )

    def _replay_pause(self, pause: PausedRun) -> Effect[Any]:
        """Play a run that was paused in this process, and go on with its time."""
        effect = replay_pause(self, pause)
        self.timer.set_elapsed(pause.at)
        return effect

    def close_loop(self) -> None:
        """Let go of the loop; it goes another way than it did."""
        self._loop.close()

    def _start_loop(self) -> Effect[Any] | None:
        """What the loop wants first; of a run that goes on, first after what was done before."""
        keeper = self._journal
        if keeper is None:
            return self.advance(None) if self._paused is None else self._replay_pause(self._paused)
        keeper.set_plan(self._plan)
        return self.advance(None) if keeper.history is None else resume_run(self, keeper.history, keeper)

    def _start_effect(self, effect: Effect[Any]) -> Awaitable[Any]:
        return self._perform(effect) if self._journal is None else self._perform_journaled(effect, self._journal)

    async def _perform_journaled(self, effect: Effect[Any], journal: RunJournal) -> Any:
        """Do it when it is written down that it begins; where that cannot be, it is not done."""
        return (
            await self._perform(effect)
            if await journal.record_start(len(self.answers), effect)
            else self._interrupt_effect(effect)
        )

    def _perform(self, effect: Effect[Any]) -> Awaitable[Any]:
        """Do it, for as long as it may take."""
        if isinstance(effect, Ask):
            self.timer.set_deadline(effect.deadline)
            gives_way = len(self.answers) >= self._yield_at
            return self._ask_after_checkpoint(effect) if gives_way else self._model_caller.ask(effect.request)
        if isinstance(effect, Act):
            acts: Sequence[Any] = effect.acts
            if len(acts) > 1 or acts[0].gate.outcome is not None:
                return self._make_calls(acts, effect.deadline)
            act = acts[0]
            act.start(self.timer.now(), effect.deadline)
            self.timer.set_deadline(act.deadline)
            return self._performer.run_call(act)
        if isinstance(effect, Decide):
            return self._decide(effect.question)
        return self._wait(effect) if isinstance(effect, Wait) else self._perform_immediate(effect)

    async def _ask_after_checkpoint(self, effect: Ask) -> Reply | ModelFailure:
        """Ask when others have had their turn."""
        self._yield_at = len(self.answers) + _YIELD_EVERY
        await anyio.lowlevel.checkpoint()
        return await self._model_caller.ask(effect.request)

    async def _wait(self, effect: Wait) -> None:
        self.timer.set_deadline(math.inf)
        await anyio.sleep(max(0.0, effect.until - self.timer.now()))

    async def _decide(self, question: Question) -> Verdict:
        """Ask a person; meanwhile the run's time stands still."""
        self.timer.set_deadline(math.inf)
        self.timer.pause()
        try:
            verdict = await self._get_approval_caller().decide(question, self._compute_remaining_s())
        finally:
            self.timer.resume()
        if is_open(verdict):
            self._later_verdicts = self._later_verdicts or {}
        elif self._later_verdicts is not None:
            self._later_verdicts[question.id] = verdict
        return verdict

    def _get_approval_caller(self) -> ApprovalCaller:
        """Made when somebody is asked, which in most runs nobody is."""
        if self._approval_caller is None:
            self._approval_caller = ApprovalCaller(self._person)
        return self._approval_caller

    def _compute_remaining_s(self) -> float:
        """The seconds until the time of day when it must have ended its work."""
        return math.inf if self._until is None else self._until - self.timer.wall()

    async def _perform_immediate(self, effect: Effect[Any]) -> Any:
        return self._answer_immediate(effect)

    async def _make_calls(self, tool_calls: Sequence[Any], deadline: float) -> Sequence[Outcome | None]:
        self.timer.set_deadline(math.inf)  # each call has a scope of its own
        await self._performer.perform([act for act in tool_calls if act.outcome is None], deadline)
        return [act.outcome for act in tool_calls]

    def _answer_immediate(self, effect: Effect[Any]) -> Any:
        if isinstance(effect, Append):
            return None
        assert isinstance(effect, Grant), f"the driver cannot perform a {type(effect).__name__}"
        return None if self.budget_client is None else self.budget_client.apply(effect)

    def _interrupt_effect(self, effect: Effect[Any]) -> Any:
        """What an effect that was not waited for came to."""
        match effect:
            case Ask():
                return self._model_caller.interrupt()
            case Act():
                acts = cast("Sequence[ToolCallRun]", effect.acts)
                self._performer.interrupt(acts, timed_out=not self.signals.is_cancelling)
                return [act.outcome for act in acts]
            case Decide():
                return self._get_approval_caller().interrupt()
            case Grant():
                return self._answer_immediate(effect)
            case _:
                return None

    def _request_cancel(self) -> None:
        """From any thread: end what is under way."""
        if self._call_soon is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and the run with it
                self._call_soon(self._cancel_scope)

    def _cancel_scope(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
        self.timer.was_cancelled = True

    def on_started(self, tool_call: ToolCallRun) -> None:
        """The loop tells that; it decided when."""

    def on_ended(self, tool_call: ToolCallRun) -> None:
        """The loop tells that, in the order asked; it is kept now."""
        if self._journal is not None:
            self._journal.record_outcome(tool_call)

    def on_report(self, tool_call: ToolCallRun, text: str) -> None:
        """A tool tells how far it is; on its own thread, or here: then soon could be after its end."""
        if get_ident() == self._thread:
            self._emit(ToolReported, tool_call.call.id, tool_call.tool.name, text)
        elif self._call_soon is not None:
            with contextlib.suppress(RuntimeError):
                self._call_soon(lambda: self._emit(ToolReported, tool_call.call.id, tool_call.tool.name, text))

    def on_late_result(self, tool_call: ToolCallRun) -> None:
        """A call ended after it was declared dead: the loop hears of it with the next answer."""
        if not self.signals.send(Late(tool_call.call.id, tool_call.tool.name)) and self.parent_signals is not None:
            self.parent_signals.send(Late(tool_call.idempotency_key(self._plan.run_id), tool_call.tool.name, own=False))

    def _emit_delta(self, text: str) -> None:
        self._emit(Delta, text)

    def _emit(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        """Record what is only for those who watch now; the loop need not know it."""
        if not self.signals.ended:
            self.recorder.at = self.timer.now()
            self.recorder.emit(kind, *fields)
