"""Effects of a run, executed without event loop, threads or waiting.

A child run is a generator that yields its own time after each step. `run_siblings` chooses which child takes the next
step, so that children overlap although everything happens in one thread.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace
from random import Random
from typing import Any, TypeVar, cast

from .._internal.workers import WorkerPool
from ..budget.usage import Usage
from ..errors import ModelError, describe_error
from ..event import Delta, ToolReported
from ..loop import Act, Answer, Ask, Decide, Effect, Grant, Wait
from ..loop.child_task import ChildTask
from ..loop.effects import Cancel, ChildDone, Signal
from ..loop.ending import End
from ..loop.plan import Plan
from ..loop.player import LoopPlayer
from ..models import Model
from ..models.scripted import ScriptedModel
from ..outcome import Outcome
from ..person import Approver, Question, Verdict, to_verdict
from ..request import Finish, ModelFailure, Reply, Request
from ..result import Result, Stop
from ..runtime.child_budget import ChildBudgets
from ..runtime.child_call import BackgroundCallRun, ChildCallRun
from ..runtime.shared_budget import SharedBudgetClient
from ..tools.call import ToolCallRun
from ..tools.runner import ToolRunner
from .clock import ManualClock

T = TypeVar("T")
Place = TypeVar("Place", bound=Hashable)
StepGenerator = Generator[float, None, T]
"""Generator that advances step by step. It yields its time in seconds, and others may run between two steps."""


class EffectRunner:
    """Executes the effects of a run and of its children."""

    def __init__(self, plan: Plan, child_budgets: ChildBudgets, script_plan: ScriptPlan) -> None:
        self.clock = ManualClock(wall=plan.started_at)
        self._models = {"": cast("Model", plan.spec.model.main), **cast("dict[str, Model]", plan.spec.model.others)}
        self._child_budgets = child_budgets
        self._recorder = child_budgets.recorder
        self._script_plan = script_plan
        self._max_parallel = plan.spec.children.max_concurrent
        self._budget_client = (
            None if child_budgets.shared_budget is None else SharedBudgetClient(child_budgets.shared_budget)
        )
        self._background: dict[str, _Background] = {}
        """Child runs in the background that have not ended, by id."""
        self._runners: dict[str, EffectRunner] = {}
        self.is_cancelled = False
        """True if the parent has cancelled this run."""
        self._performer = ScriptPerformer(
            run_child=self._run_delegated,
            workers=WorkerPool(),
            clock=self.clock,
            run_id=plan.run_id,
            state=plan.state,
            metadata=plan.metadata,
            watcher=self,
        )

    def close(self) -> None:
        """Release the shared budget after the run."""
        if self._budget_client is not None:
            self._budget_client.close()

    def execute_effect(self, effect: Effect[Any]) -> StepGenerator[Any]:
        """Execute an effect, and yield between steps while children run."""
        match effect:
            case Ask(request, deadline):
                try:
                    return self._ask_model(request, deadline)
                except (Exception, SystemExit) as error:
                    return ModelFailure.from_error(error)
            case Act(acts, deadline):
                return (yield from self._make_calls(cast("Sequence[ToolCallRun]", acts), deadline))
            case Wait(until, runs, cancel) if runs:
                self._wait_for_children(until, runs, cancel)
            case Wait(until):
                self.advance_to(until)
            case Decide(question):
                return self._script_plan.decided(question)
            case Grant() if self._budget_client is not None:
                return self._budget_client.apply(effect)
            case _:
                pass
        return None

    def _ask_model(self, request: Request, deadline: float) -> Reply:
        model, started_at = self._models[request.model], self.clock.now()
        if not isinstance(model, ScriptedModel):
            answer: Any = model.ask(request, self._emit_delta)
            reply = run_coroutine(answer, "a model") if inspect.iscoroutine(answer) else answer
            if isinstance(reply, Reply):
                return reply
            raise ModelError(f"the model returned a {type(reply).__name__}; expected a Reply")
        line, position = model.take_line(request)
        pieces: list[str] = []
        for delay, piece in line.schedule_pieces():
            if started_at + delay < deadline:
                self.advance_to(started_at + delay)
                pieces.append(piece)
                self._emit_delta(piece)
        if started_at + line.after_s >= deadline:
            self.advance_to(deadline)
            return Reply("".join(pieces), finish=Finish.CUT)
        self.advance_to(started_at + line.after_s)
        return model.build_reply(line, position)

    def _make_calls(self, calls: Sequence[ToolCallRun], deadline: float) -> StepGenerator[list[Outcome | None]]:
        """Make calls in parallel.

        Each starts when one of the slots is free.
        """
        started_at, self._child_budgets.uncounted_children = self.clock.now(), 0
        free_at = [started_at] * self._performer.parallel
        for call in calls:
            if isinstance(call, BackgroundCallRun):
                self._start_in_background(call, started_at, deadline)
        children = [
            call for call in calls if isinstance(call, ChildCallRun) and not isinstance(call, BackgroundCallRun)
        ]
        for call in calls:
            if not isinstance(call, ChildCallRun):
                heapreplace(free_at, self._make_call(call, free_at[0], deadline))
        ended_at = max(free_at)
        if children:
            for call in children:
                call.start(started_at, deadline)
            tasks = [(call, n) for call in children for n, task in enumerate(call.tasks) if task.duplicate_of is None]
            ended = yield from run_siblings(
                tasks, started_at, self._max_parallel, self._start_child, self._script_plan.order
            )
            for call in children:
                has_duplicates = any(task.duplicate_of is not None for task in call.tasks)
                call.close_finished(max(ended[place] for place in tasks if place[0] is call or has_duplicates))
            ended_at = max(ended_at, *ended.values())
        self.advance_to(ended_at)
        return [call.outcome for call in calls]

    def _start_in_background(self, tool_call: BackgroundCallRun, now: float, deadline: float) -> None:
        tool_call.start(now, deadline)
        for task in tool_call.tasks:
            self._background[task.run_id] = _Background(task, self._run_child(task, now, deadline), now, now)
        tool_call.close_started(now)

    def _wait_for_children(self, until: float, runs: Sequence[str], cancel: bool) -> None:
        """Let child runs in the background work until they end. The time stops there, or at `until`."""
        waited = [self._background[run_id] for run_id in runs if run_id in self._background]
        for child in waited:
            if cancel and child.task.run_id in self._runners:
                self._runners[child.task.run_id].is_cancelled = True
            while child.ended_at is None and (cancel or child.at < until):
                child.step()
        ends = [until if child.ended_at is None else child.ended_at for child in waited]
        if not cancel:
            self.advance_to(min(until, max(ends, default=0.0)))
        for child in waited if cancel else ():
            child.ended_at = self.clock.now()

    def take_signals(self) -> list[ChildDone]:
        """Return the results of child runs in the background that have ended by now."""
        now, done = self.clock.now(), list[ChildDone]()
        for run_id, child in list(self._background.items()):
            while child.ended_at is None and child.at <= now:
                child.step()
            if child.ended_at is not None and child.ended_at <= now:
                assert child.task.own_result is not None, "a child run that has ended has its result"
                done.append(ChildDone(run_id, child.task.own_result))
                del self._background[run_id]
        return done

    def _start_child(self, place: tuple[ChildCallRun, int], started_at: float) -> StepGenerator[float]:
        """Return a generator for a child that starts at `started_at`.

        It yields the child's own time and returns its duration.
        """
        tool_call, n = place
        return self._run_child(tool_call.tasks[n], started_at, tool_call.deadline)

    def _run_delegated(self, tool_call: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """Run a child that a tool started.

        It takes none of the call's time.
        """
        task = self._child_budgets.claim_child(tool_call, child, goal, context)
        for _ in self._run_child(task, self.clock.now(), tool_call.deadline):
            pass
        assert task.own_result is not None, "a child that was driven has ended"
        self._child_budgets.add_result(tool_call, task, task.own_result, self.clock.now())
        return task.own_result

    def _run_child(self, task: ChildTask, started_at: float, deadline: float) -> StepGenerator[float]:
        clock = ManualClock(started_at, wall=self.clock.wall() + started_at - self.clock.now())
        try:
            plan, within = self._child_budgets.build_plan(task, clock, deadline)
        except Exception as error:
            task.own_result = self._child_budgets.build_unstarted_result(
                task, clock.wall(), End(Stop.FAILED, error=describe_error(error))
            )
            return 0.0
        recorder, resolve_child = self._child_budgets.build_recorder(task, plan), plan.spec.children.resolve
        child_budgets = ChildBudgets(
            recorder=recorder,
            shared_budget=within,
            tree_budget=self._child_budgets.tree_budget,
            resolve_child=resolve_child,
        )
        runner = self._runners[task.run_id] = EffectRunner(plan, child_budgets, self._script_plan.for_child(task))
        task.own_result = yield from runner.run_to_end(plan)
        return runner.clock.now()

    def run_to_end(self, plan: Plan) -> StepGenerator[Result]:
        """Run a child to its end, yielding its time before each effect."""
        player = LoopPlayer(plan, self._recorder)
        self._script_plan.children.append((replace(plan, state=dict(plan.state)), player))
        effect = player.start()
        while effect is not None:
            yield self.clock.now()
            signals: list[Signal] = [Cancel("parent")] if self.is_cancelled else []
            value = interrupt_effect(effect) if signals else (yield from self.execute_effect(effect))
            effect = player.send(Answer(value, self.clock.now(), (*signals, *self.take_signals())))
        self.close()
        assert player.result is not None, "a loop that has ended has its result"
        return player.result

    def _make_call(self, tool_call: ToolCallRun, now: float, deadline: float) -> float:
        tool_call.start(now, deadline)
        ends_at = now + self._script_plan.seconds.get(tool_call.tool.name, 0.0)
        if ends_at >= tool_call.deadline:
            tool_call.time_out(tool_call.deadline)
            return tool_call.deadline
        try:
            value = self._performer.bind(tool_call)()
            if tool_call.tool.is_async:
                value = run_coroutine(value, "an async tool")
            tool_call.succeed(value, ends_at, self._performer.run_id)
        except BaseException as error:
            tool_call.fail(error, ends_at, self._performer.run_id)
        return ends_at

    def advance_to(self, at: float) -> None:
        """Advance the clock, which never goes back."""
        self.clock.move(max(0.0, at - self.clock.now()))
        self._recorder.at = self.clock.now()

    def _emit_delta(self, text: str) -> None:
        self._recorder.stream(Delta, text)

    def on_report(self, tool_call: ToolCallRun, text: str) -> None:
        """Record a progress report of a tool."""
        self._recorder.stream(ToolReported, tool_call.call.id, tool_call.tool.name, text)

    def on_started(self, tool_call: ToolCallRun) -> None:
        """Do nothing: the loop emits the event."""

    def on_ended(self, tool_call: ToolCallRun) -> None:
        """Do nothing: the loop emits the event."""

    def on_late_result(self, tool_call: ToolCallRun) -> None:
        """Do nothing: no result is late here."""


@dataclass(slots=True)
class _Background:
    """Child run in the background."""

    task: ChildTask
    steps: StepGenerator[float]
    started_at: float
    at: float
    ended_at: float | None = None

    def step(self) -> None:
        try:
            self.at = self.started_at + next(self.steps)
        except StopIteration as end:
            self.ended_at = self.started_at + end.value


def interrupt_effect(effect: Effect[Any]) -> Any:
    """Return the answer to an effect that a cancel interrupts."""
    match effect:
        case Ask():
            return Reply(usage=Usage(), finish=Finish.CUT)
        case Act(acts):
            for call in cast("Sequence[ToolCallRun]", acts):
                call.cancel(call.started_at)
            return [call.outcome for call in cast("Sequence[ToolCallRun]", acts)]
        case Decide():
            return Verdict(None)
        case _:
            return None


@dataclass(slots=True, kw_only=True, eq=False)
class ScriptPerformer(ToolRunner):
    """Tool runner that runs children of tools to their end at once."""

    run_child: Callable[[ToolCallRun, object, str, str], Result]

    async def delegate(self, tool_call: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """Run a child's task for a tool."""
        return self.run_child(tool_call, child, goal, context)


class ScriptedApprover:
    """Approver that answers by question id, in order, or by the agent's approver."""

    def __init__(self, answers: dict[str, Verdict], verdicts: list[Verdict], approver: Approver | None) -> None:
        self._answers = answers
        self._verdicts = verdicts
        self._approver = approver

    def __call__(self, question: Question) -> Verdict:
        """Return the verdict for a question."""
        if question.id in self._answers:
            return self._answers.pop(question.id)
        if self._verdicts:
            return self._verdicts.pop(0)
        if self._approver is None:
            return Verdict(None)
        try:
            answer: Any = self._approver(question)
            return to_verdict(run_coroutine(answer, "an approver") if inspect.iscoroutine(answer) else answer)
        except Exception as error:
            return Verdict(False, f"the approver failed ({type(error).__name__})")


@dataclass(slots=True)
class ScriptPlan:
    """Script for a run and its children."""

    seconds: Mapping[str, float]
    decided: ScriptedApprover
    order: Random | None
    """Random order in which children advance. None means by their time."""
    children: list[tuple[Plan, LoopPlayer]]
    """Plan and player of each child."""

    def for_child(self, task: ChildTask) -> ScriptPlan:
        """Return the script for a child, which may have its own approver."""
        approver = task.spec.approver
        return self if approver is None else replace(self, decided=ScriptedApprover({}, [], approver))


def run_siblings(
    places: Sequence[Place],
    now: float,
    max_parallel: int,
    start: Callable[[Place, float], StepGenerator[float]],
    order: Random | None = None,
) -> StepGenerator[dict[Place, float]]:
    """Run all siblings to their ends, and return when each ended.

    At most `max_parallel` run at a time, and they start in the order of `places`. `start` returns a sibling that starts
    at a given time. It yields seconds since that start and returns its duration. The next step is that of the sibling
    whose time is lowest, and of several the one that has waited longest, or as `order` chooses.
    """
    pending, free_at = deque(places), [now] * max_parallel
    heapify(free_at)
    running: dict[Place, _Sibling] = {}
    ended: dict[Place, float] = {}
    steps = 0
    while pending or running:
        while pending and free_at:
            place, started_at = pending.popleft(), heappop(free_at)
            running[place] = _Sibling(start(place, started_at), started_at, started_at)
        keys = list(running)
        chosen = order.choice(keys) if order else min(keys, key=lambda key: (running[key].at, running[key].last_step))
        child, steps = running[chosen], steps + 1
        child.last_step = steps
        try:
            child.at = child.started_at + next(child.steps)
            yield child.at
        except StopIteration as end:
            ended[chosen] = child.started_at + end.value
            heappush(free_at, ended[chosen])
            del running[chosen]
    return ended


@dataclass(slots=True)
class _Sibling:
    steps: StepGenerator[float]
    started_at: float
    at: float
    last_step: int = 0
    """Number of its last step, counted over all siblings."""


def run_to_end(steps: StepGenerator[Any]) -> Any:
    """Run a generator to its end and return its value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def run_coroutine(coroutine: Any, who: str) -> Any:
    """Return the value of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError(f"{who} that waits for I/O cannot run in a script: use run() or arun()")
