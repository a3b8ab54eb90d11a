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
from ..loop.ending import describe_error
from ..loop.plan import Plan
from ..models import Model
from ..models.scripted import ScriptedModel
from ..outcome import Outcome
from ..person import Approver, Question, Verdict, to_verdict
from ..request import Finish, ModelFailure, Reply, Request
from ..result import Result
from ..runtime.child_budget import ChildBudgets
from ..runtime.child_call import ChildCallRun
from ..runtime.shared_budget import SharedBudgetClient
from ..tools.call import ToolCallRun
from ..tools.runner import ToolRunner
from .clock import ManualClock

T = TypeVar("T")
Place = TypeVar("Place", bound=Hashable)
StepGenerator = Generator[float, None, T]
"""Something that goes on step by step: each tells how far its time is, and others may go on first."""


@dataclass(slots=True)
class _Child:
    steps: StepGenerator[float]
    started_at: float
    at: float
    last_step: int = 0
    """When it went on last, among all steps."""


def run_siblings(
    places: Sequence[Place],
    now: float,
    max_parallel: int,
    start: Callable[[Place, float], StepGenerator[float]],
    order: Random | None = None,
) -> StepGenerator[dict[Place, float]]:
    """Let them all go on to their ends, so many at a time and begun in this order; and when each ended.

    `begin` gives one that begins at a moment: its own time counts from there, and it comes to how long it took. The
    next step is that of the one whose time is least, of several the one that waits longest; or as `order` has it.
    """
    waiting, free = deque(places), [now] * max_parallel
    heapify(free)
    running: dict[Place, _Child] = {}
    ended: dict[Place, float] = {}
    steps = 0
    while waiting or running:
        while waiting and free:
            place, began = waiting.popleft(), heappop(free)
            running[place] = _Child(start(place, began), began, began)
        names = list(running)
        chosen = order.choice(names) if order else min(names, key=lambda one: (running[one].at, running[one].last_step))
        child, steps = running[chosen], steps + 1
        child.last_step = steps
        try:
            child.at = child.started_at + next(child.steps)
            yield child.at
        except StopIteration as end:
            ended[chosen] = child.started_at + end.value
            heappush(free, ended[chosen])
            del running[chosen]
    return ended


@dataclass(slots=True)
class ScriptPlan:
    """What a script wants to happen, in a run and in its children."""

    seconds: Mapping[str, float]
    decided: ScriptedApprover
    order: Random | None
    """By which children go on; None for the order of their time."""
    children: list[tuple[Plan, list[Answer[Any]]]]
    """Their plans, and what their loops were told."""

    def for_child(self, task: ChildTask) -> ScriptPlan:
        """The same for a child, which may have somebody else who decides."""
        approver = task.spec.approver
        return self if approver is None else replace(self, decided=ScriptedApprover({}, [], approver))


def run_to_end(steps: StepGenerator[Any]) -> Any:
    """Let something go on to its end, and give what it comes to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class ScriptedApprover:
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
            return to_verdict(run_coroutine(said, "an approver") if inspect.iscoroutine(said) else said)
        except Exception as error:
            return Verdict(False, f"nobody could be asked ({type(error).__name__})")


@dataclass(slots=True, kw_only=True, eq=False)
class ScriptPerformer(ToolRunner):
    """Makes calls whose tools may have children of their own, each of which is driven to its end at once."""

    run_child: Callable[[ToolCallRun, object, str, str], Result]

    async def delegate(self, tool_call: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """Have a child do a task for a tool."""
        return self.run_child(tool_call, child, goal, context)


class EffectRunner:
    """Does the effects of one run, and of the children in it."""

    def __init__(self, plan: Plan, child_budgets: ChildBudgets, script_plan: ScriptPlan) -> None:
        self.clock = ManualClock(wall=plan.started_at)
        self._models = {"": cast("Model", plan.spec.model), **cast("dict[str, Model]", plan.spec.models)}
        self._child_budgets = child_budgets
        self._recorder = child_budgets.recorder
        self._script_plan = script_plan
        self._max_parallel = plan.spec.max_concurrent_children
        self._budget_client = (
            None if child_budgets.shared_budget is None else SharedBudgetClient(child_budgets.shared_budget)
        )
        self._performer = ScriptPerformer(
            run_child=self._run_delegated,
            workers=WorkerPool(),
            clock=self.clock,
            run_id=plan.run_id,
            state=plan.state,
            metadata=plan.metadata,
            watcher=self,
        )

    def replay_answer(self, answer: Answer[Any]) -> Answer[Any]:
        """An answer of before; its time has passed."""
        self._advance_to(answer.at)
        return answer

    def close(self) -> None:
        """The run is over."""
        if self._budget_client is not None:
            self._budget_client.close()

    def execute_effect(self, effect: Effect[Any]) -> StepGenerator[Any]:
        """Do it; where children go on meanwhile, step by step."""
        match effect:
            case Ask(request, deadline):
                try:
                    return self._ask_model(request, deadline)
                except (Exception, SystemExit) as error:
                    return ModelFailure.from_error(error)
            case Act(acts, deadline):
                return (yield from self._make_calls(cast("Sequence[ToolCallRun]", acts), deadline))
            case Wait(until):
                self._advance_to(until)
            case Decide(question):
                return self._script_plan.decided(question)
            case Grant() if self._budget_client is not None:
                return self._budget_client.apply(effect)
            case _:
                pass
        return None

    def _ask_model(self, request: Request, deadline: float) -> Reply:
        model, began = self._models[request.model], self.clock.now()
        if not isinstance(model, ScriptedModel):
            answer: Any = model.ask(request, self._emit_delta)
            reply = run_coroutine(answer, "a model") if inspect.iscoroutine(answer) else answer
            if isinstance(reply, Reply):
                return reply
            raise ModelError(f"the model gave a {type(reply).__name__}; expected a Reply")
        line, place = model.take_line(request)
        said: list[str] = []
        for after, piece in line.schedule_pieces():
            if began + after < deadline:
                self._advance_to(began + after)
                said.append(piece)
                self._emit_delta(piece)
        if began + line.after_s >= deadline:
            self._advance_to(deadline)
            return Reply("".join(said), finish=Finish.CUT)
        self._advance_to(began + line.after_s)
        return model.build_reply(line, place)

    def _make_calls(self, acts: Sequence[ToolCallRun], deadline: float) -> StepGenerator[list[Outcome | None]]:
        """Make calls side by side: each begins when one of so many places is free."""
        began, self._child_budgets.uncounted_children = self.clock.now(), 0
        free, children = [began] * self._performer.parallel, [act for act in acts if isinstance(act, ChildCallRun)]
        for act in acts:
            if not isinstance(act, ChildCallRun):
                heapreplace(free, self._make_call(act, free[0], deadline))
        last = max(free)
        if children:
            for act in children:
                act.start(began, deadline)
            tasks = [(act, n) for act in children for n, task in enumerate(act.tasks) if task.duplicate_of is None]
            ended = yield from run_siblings(
                tasks, began, self._max_parallel, self._start_child, self._script_plan.order
            )
            for act in children:
                alone = all(task.duplicate_of is None for task in act.tasks)
                act.close(max(ended[place] for place in tasks if place[0] is act or not alone))
            last = max(last, *ended.values())
        self._advance_to(last)
        return [act.outcome for act in acts]

    def _start_child(self, place: tuple[ChildCallRun, int], started_at: float) -> StepGenerator[float]:
        """A child that begins at that moment, step by step; and how long it took. Its moments are its own."""
        act, n = place
        return self._run_child(act.tasks[n], started_at, act.deadline)

    def _run_delegated(self, act: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """One that a tool has found itself; it takes none of the call's time."""
        task = self._child_budgets.claim_child(act, child, goal, context)
        for _ in self._run_child(task, self.clock.now(), act.deadline):
            pass
        assert task.own_result is not None, "a child that was driven has ended"
        self._child_budgets.add_result(act, task, task.own_result, self.clock.now())
        return task.own_result

    def _run_child(self, task: ChildTask, started_at: float, until: float) -> StepGenerator[float]:
        clock = ManualClock(started_at, wall=self.clock.wall() + started_at - self.clock.now())
        try:
            plan, within = self._child_budgets.build_plan(task, clock, until)
        except Exception as error:
            task.own_result = self._child_budgets.build_unstarted_result(
                task, clock.wall(), error=describe_error(error)
            )
            return 0.0
        recorder, hire = self._child_budgets.build_recorder(task, plan), plan.spec.resolve_child
        kin = ChildBudgets(
            recorder=recorder, shared_budget=within, tree_budget=self._child_budgets.tree_budget, resolve_child=hire
        )
        steps = EffectRunner(plan, kin, self._script_plan.for_child(task))
        task.own_result = yield from steps.run_to_end(plan)
        return steps.clock.now()

    def run_to_end(self, plan: Plan) -> StepGenerator[Result]:
        """Drive a child to its end."""
        answers: list[Answer[Any]] = []
        self._script_plan.children.append((replace(plan, state=dict(plan.state)), answers))
        loop = converse(plan, self._recorder)
        try:
            effect = next(loop)
            while True:
                yield self.clock.now()
                answers.append(Answer((yield from self.execute_effect(effect)), self.clock.now()))
                effect = loop.send(answers[-1])
        except StopIteration as end:
            self.close()
            return end.value

    def _make_call(self, act: ToolCallRun, now: float, deadline: float) -> float:
        act.start(now, deadline)
        ends = now + self._script_plan.seconds.get(act.tool.name, 0.0)
        if ends >= act.deadline:
            act.time_out(act.deadline)
            return act.deadline
        try:
            value = self._performer.bind(act)()
            if act.tool.is_async:
                value = run_coroutine(value, "an async tool")
            act.succeed(value, ends, self._performer.run_id)
        except BaseException as error:
            act.fail(error, ends)
        return ends

    def _advance_to(self, at: float) -> None:
        self.clock.move(max(0.0, at - self.clock.now()))
        self._recorder.at = self.clock.now()

    def _emit_delta(self, text: str) -> None:
        self._recorder.emit(Delta, text)

    def on_report(self, tool_call: ToolCallRun, text: str) -> None:
        """A tool tells how far it is."""
        self._recorder.emit(ToolReported, tool_call.call.id, tool_call.tool.name, text)

    def on_started(self, tool_call: ToolCallRun) -> None:
        """The loop tells that."""

    def on_ended(self, tool_call: ToolCallRun) -> None:
        """The loop tells that."""

    def on_late_result(self, tool_call: ToolCallRun) -> None:
        """Nothing is late here."""


def run_coroutine(coroutine: Any, who: str) -> Any:
    """What a coroutine gives that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError(f"{who} that waits cannot be driven by a script")
