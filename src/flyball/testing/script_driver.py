"""What a script does with the effects of a run: no event loop, no threads, no waiting."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace
from random import Random
from typing import Any, TypeVar, cast

from .._internal.workers import WorkerPool
from ..errors import ModelError
from ..event import Delta, ToolReported
from ..loop import Act, Answer, Ask, Decide, Effect, Grant, Wait, converse
from ..loop.child_task import ChildTask
from ..loop.ending import described
from ..loop.plan import Plan
from ..models import Model
from ..models.scripted import ScriptedModel
from ..outcome import Outcome
from ..person import Approver, Question, Verdict, verdict_of
from ..request import Finish, ModelFailure, Reply, Request
from ..result import Result
from ..runtime.child_budget import ChildBudgets
from ..runtime.child_call import ChildAct
from ..runtime.shared_budget import SharedBudgetClient
from ..tools.call import ToolCallRun
from ..tools.runner import Performer
from .clock import ManualClock

T = TypeVar("T")
Place = TypeVar("Place", bound=Hashable)
Moments = Generator[float, None, T]
"""Something that goes on step by step: each tells how far its time is, and others may go on first."""


@dataclass(slots=True)
class _Child:
    moments: Moments[float]
    began: float
    at: float
    stepped: int = 0
    """When it went on last, among all steps."""


def siblings(
    places: Sequence[Place],
    now: float,
    at_once: int,
    begin: Callable[[Place, float], Moments[float]],
    order: Random | None = None,
) -> Moments[dict[Place, float]]:
    """Let them all go on to their ends, so many at a time and begun in this order; and when each ended.

    `begin` gives one that begins at a moment: its own time counts from there, and it comes to how long it took. The
    next step is that of the one whose time is least, of several the one that waits longest; or as `order` has it.
    """
    waiting, free = deque(places), [now] * at_once
    heapify(free)
    running: dict[Place, _Child] = {}
    ended: dict[Place, float] = {}
    steps = 0
    while waiting or running:
        while waiting and free:
            place, began = waiting.popleft(), heappop(free)
            running[place] = _Child(begin(place, began), began, began)
        names = list(running)
        chosen = order.choice(names) if order else min(names, key=lambda one: (running[one].at, running[one].stepped))
        child, steps = running[chosen], steps + 1
        child.stepped = steps
        try:
            child.at = child.began + next(child.moments)
            yield child.at
        except StopIteration as end:
            ended[chosen] = child.began + end.value
            heappush(free, ended[chosen])
            del running[chosen]
    return ended


@dataclass(slots=True)
class ScriptPlan:
    """What a script wants to happen, in a run and in its children."""

    seconds: Mapping[str, float]
    decided: Decided
    order: Random | None
    """By which children go on; None for the order of their time."""
    children: list[tuple[Plan, list[Answer[Any]]]]
    """Their plans, and what their loops were told."""

    def of(self, task: ChildTask) -> ScriptPlan:
        """The same for a child, which may have somebody else who decides."""
        approver = task.edge.approver
        return self if approver is None else replace(self, decided=Decided({}, [], approver))


def whole(moments: Moments[Any]) -> Any:
    """Let something go on to its end, and give what it comes to."""
    while True:
        try:
            next(moments)
        except StopIteration as end:
            return end.value


class Decided:
    """What is answered to questions: by their id, in their order, or by the agent's approver."""

    def __init__(self, answers: dict[str, Verdict], verdicts: list[Verdict], approver: Approver | None) -> None:
        self._answers = answers
        self._verdicts = verdicts
        self._approver = approver

    def __call__(self, question: Question) -> Verdict:
        """Answer it."""
        if question.id in self._answers:
            return self._answers.pop(question.id)
        if self._verdicts:
            return self._verdicts.pop(0)
        if self._approver is None:
            return Verdict(None)
        try:
            said: Any = self._approver(question)
            return verdict_of(finished(said, "an approver") if inspect.iscoroutine(said) else said)
        except Exception as error:
            return Verdict(False, f"nobody could be asked ({type(error).__name__})")


@dataclass(slots=True, kw_only=True, eq=False)
class Hiring(Performer):
    """Makes calls whose tools may have children of their own, each of which is driven to its end at once."""

    hire: Callable[[ToolCallRun, object, str, str], Result]

    async def hired(self, act: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """Have a child do a task for a tool."""
        return self.hire(act, child, goal, context)


class Steps:
    """Does the effects of one run, and of the children in it."""

    def __init__(self, plan: Plan, kin: ChildBudgets, plot: ScriptPlan) -> None:
        self.clock = ManualClock(wall=plan.started_at)
        self._models = {"": cast("Model", plan.shared.model), **cast("dict[str, Model]", plan.shared.models)}
        self._kin = kin
        self._recorder = kin.recorder
        self._plot = plot
        self._at_once = plan.shared.children_at_once
        self._lender = None if kin.within is None else SharedBudgetClient(kin.within)
        self._performer = Hiring(
            hire=self._hired,
            workers=WorkerPool(),
            clock=self.clock,
            run_id=plan.run_id,
            state=plan.state,
            metadata=plan.metadata,
            watcher=self,
        )

    def again(self, answer: Answer[Any]) -> Answer[Any]:
        """An answer of before; its time has passed."""
        self._pass_until(answer.at)
        return answer

    def close(self) -> None:
        """The run is over."""
        if self._lender is not None:
            self._lender.close()

    def doing(self, effect: Effect[Any]) -> Moments[Any]:
        """Do it; where children go on meanwhile, step by step."""
        match effect:
            case Ask(request, deadline):
                try:
                    return self._asked(request, deadline)
                except (Exception, SystemExit) as error:
                    return ModelFailure.of(error)
            case Act(acts, deadline):
                return (yield from self._made(cast("Sequence[ToolCallRun]", acts), deadline))
            case Wait(until):
                self._pass_until(until)
            case Decide(question):
                return self._plot.decided(question)
            case Grant() if self._lender is not None:
                return self._lender.grant(effect)
            case _:
                pass
        return None

    def _asked(self, request: Request, deadline: float) -> Reply:
        model, began = self._models[request.model], self.clock.now()
        if not isinstance(model, ScriptedModel):
            answer: Any = model.ask(request, self._tell)
            reply = finished(answer, "a model") if inspect.iscoroutine(answer) else answer
            if isinstance(reply, Reply):
                return reply
            raise ModelError(f"the model gave a {type(reply).__name__}; expected a Reply")
        line, place = model.take(request)
        said: list[str] = []
        for after, piece in line.told():
            if began + after < deadline:
                self._pass_until(began + after)
                said.append(piece)
                self._tell(piece)
        if began + line.after_s >= deadline:
            self._pass_until(deadline)
            return Reply("".join(said), finish=Finish.CUT)
        self._pass_until(began + line.after_s)
        return model.reply(line, place)

    def _made(self, acts: Sequence[ToolCallRun], deadline: float) -> Moments[list[Outcome | None]]:
        """Make calls side by side: each begins when one of so many places is free."""
        began, self._kin.hired_now = self.clock.now(), 0
        free, children = [began] * self._performer.parallel, [act for act in acts if isinstance(act, ChildAct)]
        for act in acts:
            if not isinstance(act, ChildAct):
                heapreplace(free, self._made_one(act, free[0], deadline))
        last = max(free)
        if children:
            for act in children:
                act.begin(began, deadline)
            tasks = [(act, n) for act in children for n, task in enumerate(act.tasks) if task.twin is None]
            ended = yield from siblings(tasks, began, self._at_once, self._begun, self._plot.order)
            for act in children:
                alone = all(task.twin is None for task in act.tasks)
                act.end(max(ended[place] for place in tasks if place[0] is act or not alone))
            last = max(last, *ended.values())
        self._pass_until(last)
        return [act.outcome for act in acts]

    def _begun(self, place: tuple[ChildAct, int], began: float) -> Moments[float]:
        """A child that begins at that moment, step by step; and how long it took. Its moments are its own."""
        act, n = place
        return self._child(act.tasks[n], began, act.until)

    def _hired(self, act: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """One that a tool has found itself; it takes none of the call's time."""
        task = self._kin.hired(act, child, goal, context)
        for _ in self._child(task, self.clock.now(), act.until):
            pass
        assert task.ended is not None, "a child that was driven has ended"
        self._kin.part(act, task, task.ended, self.clock.now())
        return task.ended

    def _child(self, task: ChildTask, began: float, until: float) -> Moments[float]:
        clock = ManualClock(began, wall=self.clock.wall() + began - self.clock.now())
        try:
            plan, within = self._kin.plan(task, clock, until)
        except Exception as error:
            task.ended = self._kin.not_begun(task, clock.wall(), obstacle=described(error))
            return 0.0
        recorder, hire = self._kin.recorder_of(task, plan), plan.shared.hire
        kin = ChildBudgets(recorder=recorder, within=within, ceiling=self._kin.ceiling, hire=hire)
        steps = Steps(plan, kin, self._plot.of(task))
        task.ended = yield from steps.through(plan)
        return steps.clock.now()

    def through(self, plan: Plan) -> Moments[Result]:
        """Drive a child to its end."""
        answers: list[Answer[Any]] = []
        self._plot.children.append((replace(plan, state=dict(plan.state)), answers))
        loop = converse(plan, self._recorder)
        try:
            effect = next(loop)
            while True:
                yield self.clock.now()
                answers.append(Answer((yield from self.doing(effect)), self.clock.now()))
                effect = loop.send(answers[-1])
        except StopIteration as end:
            self.close()
            return end.value

    def _made_one(self, act: ToolCallRun, now: float, deadline: float) -> float:
        act.begin(now, deadline)
        ends = now + self._plot.seconds.get(act.tool.name, 0.0)
        if ends >= act.until:
            act.time_out(act.until)
            return act.until
        try:
            value = self._performer.bound(act)()
            if act.tool.is_async:
                value = finished(value, "an async tool")
            act.succeed(value, ends, self._performer.run_id)
        except BaseException as error:
            act.fail(error, ends)
        return ends

    def _pass_until(self, at: float) -> None:
        self.clock.move(max(0.0, at - self.clock.now()))
        self._recorder.at = self.clock.now()

    def _tell(self, text: str) -> None:
        self._recorder.emit(Delta, text)

    def reported(self, act: ToolCallRun, text: str) -> None:
        """A tool tells how far it is."""
        self._recorder.emit(ToolReported, act.call.id, act.tool.name, text)

    def started(self, act: ToolCallRun) -> None:
        """The loop tells that."""

    def ended(self, act: ToolCallRun) -> None:
        """The loop tells that."""

    def late(self, act: ToolCallRun) -> None:
        """Nothing is late here."""


def finished(coroutine: Any, who: str) -> Any:
    """What a coroutine gives that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError(f"{who} that waits cannot be driven by a script")
