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

from .._internal.workers import WorkerPool, call_soon
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
from ..tools.runner import Performer
from .approval import NOBODY, ApprovalCaller, Person
from .history import PausedRun, is_open
from .journal import RunJournal
from .model_call import ModelCaller
from .resume import played, resumed
from .runner import Mailbox, Runner
from .shared_budget import SharedBudgetClient
from .timer import RunTimer

_CLOSING_S = 5.0
"""How long a run that is cancelled may take to keep what it has."""
_GIVES_WAY_EVERY = 33
"""Effects: a model and tools that never wait would else keep everybody else from running."""
_WORKERS = WorkerPool()
_GRACE = Purpose.GRACE  # found once: see loop/state.py


class Driver:
    """Drives one run: `await Driver(plan, recorder).drive()` gives its result.

    If the task is cancelled meanwhile, the run is closed as cancelled, `result` has what there is, and the cancellation
    is raised again.
    """

    __slots__ = (
        "_asking", "_deciding", "_gives_way_at", "_keeper", "_loop", "_paused", "_performer", "_person", "_plan",
        "_said", "_scope", "_soon", "_state", "_thread", "_until", "_within", "answers", "heir", "lender", "mailbox",
        "pace", "recorder", "result",
    )  # fmt: skip

    def __init__(
        self,
        plan: Plan,
        recorder: Recorder,
        mailbox: Mailbox | None = None,
        *,
        clock: Clock = SYSTEM,
        within: TurnBudget | None = None,
        workers: WorkerPool = _WORKERS,
        person: Person = NOBODY,
        performing: Callable[..., Performer] = Performer,
    ) -> None:
        self.recorder = recorder
        self.mailbox = mailbox or Mailbox()
        self._keeper: RunJournal | None = None
        self.answers: list[Answer[Any]] = []
        """Everything the loop was told: the run can be played again from it."""
        self.result: Result | None = None
        self.heir: Mailbox | None = None
        """Who hears of what comes when the run has ended: its parent."""
        self._plan = plan
        self._until = plan.until
        self._loop: Flow[Result] = converse(plan, recorder)
        self.pace = RunTimer(clock)
        shared = plan.shared
        model = cast("Model", shared.model)
        self._asking = ModelCaller(model, shared.model_is_async, workers, self._tell_delta, shared.models)
        self._performer = performing(
            workers=workers,
            clock=self.pace,
            run_id=plan.run_id,
            state=plan.state,
            metadata=plan.metadata,
            watcher=self,
        )
        self._state = dict(plan.state)
        """What the run begins with."""
        self._paused = person.paused
        self._said: dict[str, Verdict] | None = None
        """What is answered after the first question that stays open."""
        self._person = person
        self._deciding: ApprovalCaller | None = None
        self._within = within
        self.lender = None if within is None else SharedBudgetClient(within)
        self._scope: anyio.CancelScope | None = None
        self._soon: Callable[[Callable[[], object]], object] | None = None
        self._thread = 0
        self._gives_way_at = _GIVES_WAY_EVERY

    def keep(self, keeper: RunJournal) -> None:
        """Have all written down that it does."""
        self._keeper = keeper
        keeper.post = self.mailbox.post
        keeper.watch(self.recorder)
        self._performer.may_write = lambda: keeper.tenure.holds

    @property
    def ceilings(self) -> Mapping[str, IterationBudget]:
        """What the run's budgets began with."""
        return self._plan.shared.terms.budgets

    @property
    def agent(self) -> str:
        """Whose run it is."""
        return self._plan.shared.agent

    @property
    def children(self) -> Mapping[str, Runner]:
        """Those that go on now, by the ids of their runs."""
        return self._performer.under_way

    @property
    def idle_s(self) -> float:
        """For how long nothing has come of it: no reply, no outcome, no piece of text; of it, or of its children."""
        own = self.pace.now() - self.recorder.at
        return min([own, *(child.idle_s for child in tuple(self.children.values()))])

    def stall(self, idle_s: float) -> None:
        """Cut what is under way, as nothing comes of it; the run reports, and that is cut too when nothing comes."""
        if self.mailbox.post(Stalled(idle_s)):
            self._cut_scope()

    def drive(self) -> Coroutine[Any, Any, Result]:
        """Do what the loop wants until it has ended; where the run is kept, within a session that is its own."""
        return self._driven() if self._keeper is None else self._kept_within(self._keeper)

    async def _kept_within(self, keeper: RunJournal) -> Result:
        try:
            plan = self._plan = await keeper.open(self._plan)
            self._until, self._performer.state = plan.until, plan.state
            if keeper.past is not None:
                verdicts = {**keeper.past.said, **self._person.verdicts}
                self._person = replace(self._person, verdicts=verdicts)
            self._loop = converse(plan, self.recorder)
            self.pace.begin_at(0.0)  # waiting for the session takes nothing of the run's time
            return await self._driven()
        finally:
            await keeper.close()

    async def _driven(self) -> Result:
        self._soon, self._thread = call_soon(), get_ident()
        self._asking.here(self._soon, self._thread)
        mailbox, pace, doing = self.mailbox, self.pace, self._done if self._keeper is None else self._doing
        mailbox.on_cut(self._want_cut)
        effect: Effect[Any] | None = None
        try:
            effect = self._begun()
            while effect is not None and not mailbox.cutting:
                with pace.scope() as scope:
                    self._scope = scope
                    pace.enter(scope)
                    # What ends at the very moment its time is over, or ignores that, leaves a scope that cuts what
                    # comes next; so that gets a new one.
                    while effect is not None and not mailbox.cutting and not pace.is_cut():
                        effect = self.answer(effect, await doing(effect))
                if effect is not None and scope.cancelled_caught:  # its time is over, or somebody wants it cut
                    effect = self.answer(effect, self._cut(effect))
        except BaseException:
            self.mailbox.post(self._cancelled)
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
        if effect is not None and not self.mailbox.ended:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLOSING_S):
                while effect is not None:
                    keeps = isinstance(effect, Append | Grant)
                    effect = self.answer(effect, await self._doing(effect) if keeps else self._cut(effect))
            while effect is not None:
                effect = self.answer(effect, self._cut(effect))
        if self.lender is not None:
            self.lender.close()
        if self._keeper is not None and self.result is not None:
            await self._keeper.finish(self.result)
        self._part()

    def _part(self) -> None:
        """Let go of each other: what is tied in a circle waits for the collector, and a thousand runs would show it."""
        self.pace.leave()
        self.mailbox.on_cut(None)
        if self.heir is None or self.result is None or not self.result.hung:
            self._performer.watcher = None
        self._asking.leave()

    def answer(self, effect: Effect[Any], value: Any) -> Effect[Any] | None:
        """Tell the loop what an effect came to, when, and what has come in meanwhile."""
        mailbox, pace = self.mailbox, self.pace
        mailbox.lock.acquire()
        try:
            if self._until is not None and pace.wall() >= self._until:
                mailbox.post(TimeUp())
            answer = Answer(value, pace.now(), mailbox.empty() if mailbox.letters else ())
            if self._keeper is not None:
                self._keeper.answered(len(self.answers), effect, answer)
            self.answers.append(answer)
            return self.advance(answer)
        finally:
            mailbox.lock.release()

    def advance(self, answer: Any) -> Effect[Any] | None:
        """Hear what the loop wants next; None when it has ended."""
        try:
            effect = self._loop.send(answer)
            if type(effect) is Ask:
                self.mailbox.reporting = effect.request.purpose is _GRACE
            return effect
        except BaseException as end:
            self.mailbox.ended = True
            if not isinstance(end, StopIteration):
                raise
            self.result = self._resumable(end.value)
            return None

    def _resumable(self, result: Result) -> Result:
        """The result; of a paused run, with what it goes on from."""
        if result.stop is not Stop.PAUSED:
            return result
        plan = replace(self._plan, state=self._state)
        unheard = self.mailbox.empty()
        return replace(result, pause=PausedRun(plan, self.answers, result, self._said or {}, unheard, self._within))

    def _played(self, pause: PausedRun) -> Effect[Any]:
        """Play a run that was paused in this process, and go on with its time."""
        effect = played(self, pause)
        self.pace.begin_at(pause.at)
        return effect

    def abandon(self) -> None:
        """Let go of the loop; it goes another way than it did."""
        self._loop.close()

    def _begun(self) -> Effect[Any] | None:
        """What the loop wants first; of a run that goes on, first after what was done before."""
        keeper = self._keeper
        if keeper is None:
            return self.advance(None) if self._paused is None else self._played(self._paused)
        keeper.begin(self._plan)
        return self.advance(None) if keeper.past is None else resumed(self, keeper.past, keeper)

    def _doing(self, effect: Effect[Any]) -> Awaitable[Any]:
        return self._done(effect) if self._keeper is None else self._kept(effect, self._keeper)

    async def _kept(self, effect: Effect[Any], keeper: RunJournal) -> Any:
        """Do it when it is written down that it begins; where that cannot be, it is not done."""
        return await self._done(effect) if await keeper.started(len(self.answers), effect) else self._cut(effect)

    def _done(self, effect: Effect[Any]) -> Awaitable[Any]:
        """Do it, for as long as it may take."""
        if isinstance(effect, Ask):
            self.pace.allow(effect.deadline)
            gives_way = len(self.answers) >= self._gives_way_at
            return self._ask_later(effect) if gives_way else self._asking.ask(effect.request)
        if isinstance(effect, Act):
            acts: Sequence[Any] = effect.acts
            if len(acts) > 1 or acts[0].gate.outcome is not None:
                return self._act(acts, effect.deadline)
            act = acts[0]
            act.begin(self.pace.now(), effect.deadline)
            self.pace.allow(act.until)
            return self._performer.make(act)
        if isinstance(effect, Decide):
            return self._decide(effect.question)
        return self._wait(effect) if isinstance(effect, Wait) else self._at_once(effect)

    async def _ask_later(self, effect: Ask) -> Reply | ModelFailure:
        """Ask when others have had their turn."""
        self._gives_way_at = len(self.answers) + _GIVES_WAY_EVERY
        await anyio.lowlevel.checkpoint()
        return await self._asking.ask(effect.request)

    async def _wait(self, effect: Wait) -> None:
        self.pace.allow(math.inf)
        await anyio.sleep(max(0.0, effect.until - self.pace.now()))

    async def _decide(self, question: Question) -> Verdict:
        """Ask a person; meanwhile the run's time stands still."""
        self.pace.allow(math.inf)
        self.pace.stop()
        try:
            verdict = await self._asked_person().decide(question, self._until_s())
        finally:
            self.pace.go_on()
        if is_open(verdict):
            self._said = self._said or {}
        elif self._said is not None:
            self._said[question.id] = verdict
        return verdict

    def _asked_person(self) -> ApprovalCaller:
        """Made when somebody is asked, which in most runs nobody is."""
        if self._deciding is None:
            self._deciding = ApprovalCaller(self._person)
        return self._deciding

    def _until_s(self) -> float:
        """The seconds until the time of day when it must have ended its work."""
        return math.inf if self._until is None else self._until - self.pace.wall()

    async def _at_once(self, effect: Effect[Any]) -> Any:
        return self._answered_at_once(effect)

    async def _act(self, acts: Sequence[Any], deadline: float) -> Sequence[Outcome | None]:
        self.pace.allow(math.inf)  # each call has a scope of its own
        await self._performer.perform([act for act in acts if act.outcome is None], deadline)
        return [act.outcome for act in acts]

    def _answered_at_once(self, effect: Effect[Any]) -> Any:
        if isinstance(effect, Append):
            return None
        assert isinstance(effect, Grant), f"the loop wants a {type(effect).__name__}, which nobody can do"
        return None if self.lender is None else self.lender.grant(effect)

    def _cut(self, effect: Effect[Any]) -> Any:
        """What an effect that was not waited for came to."""
        match effect:
            case Ask():
                return self._asking.cut()
            case Act():
                acts = cast("Sequence[ToolCallRun]", effect.acts)
                self._performer.cut(acts, timed_out=not self.mailbox.cutting)
                return [act.outcome for act in acts]
            case Decide():
                return self._asked_person().cut()
            case Grant():
                return self._answered_at_once(effect)
            case _:
                return None

    def _want_cut(self) -> None:
        """From any thread: end what is under way."""
        if self._soon is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and the run with it
                self._soon(self._cut_scope)

    def _cut_scope(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
        self.pace.was_cut = True

    def started(self, act: ToolCallRun) -> None:
        """The loop tells that; it decided when."""

    def ended(self, act: ToolCallRun) -> None:
        """The loop tells that, in the order asked; it is kept now."""
        if self._keeper is not None:
            self._keeper.ended(act)

    def reported(self, act: ToolCallRun, text: str) -> None:
        """A tool tells how far it is; on its own thread, or here: then soon could be after its end."""
        if get_ident() == self._thread:
            self._tell(ToolReported, act.call.id, act.tool.name, text)
        elif self._soon is not None:
            with contextlib.suppress(RuntimeError):
                self._soon(lambda: self._tell(ToolReported, act.call.id, act.tool.name, text))

    def late(self, act: ToolCallRun) -> None:
        """A call ended after it was declared dead: the loop hears of it with the next answer."""
        if not self.mailbox.post(Late(act.call.id, act.tool.name)) and self.heir is not None:
            self.heir.post(Late(act.key(self._plan.run_id), act.tool.name, own=False))

    def _tell_delta(self, text: str) -> None:
        self._tell(Delta, text)

    def _tell(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        """Record what is only for those who watch now; the loop need not know it."""
        if not self.mailbox.ended:
            self.recorder.at = self.pace.now()
            self.recorder.emit(kind, *fields)
