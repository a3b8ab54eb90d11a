"""Child runs: driven in the event loop of their parent. No thread waits for a child run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup

from .._internal.workers import get_call_soon, loop_time
from ..budget.deadline import SYSTEM, Clock
from ..budget.run_budget import TurnBudget
from ..chain.caller import POSITION, find_position
from ..errors import DelegationPaused, describe_error
from ..loop.child_task import ChildTask
from ..loop.children import distinct_tasks
from ..loop.effects import ChildDone
from ..loop.ending import End
from ..loop.plan import Plan
from ..outcome import Outcome
from ..recorder import Recorder
from ..result import Result, Stop
from ..tools.call import ToolCallRun
from ..tools.runner import ToolRunner
from .approval import Person
from .child_budget import ChildBudgets
from .child_call import BackgroundCallRun, ChildCallRun
from .driver import RunDriver
from .effect_journal import EffectJournal
from .runner import Runner, SignalQueue


def build_driver(
    plan: Plan,
    recorder: Recorder,
    *,
    clock: Clock = SYSTEM,
    shared_budget: TurnBudget | None = None,
    tree_budget: TurnBudget | None = None,
    person: Person | None = None,
    journal: EffectJournal | None = None,
    parent_signals: SignalQueue | None = None,
) -> RunDriver:
    """Return the driver of a run. If the agent can delegate, it also drives child runs.

    `shared_budget` is shared with other runs, `tree_budget` by the whole tree. They are the same for the top run.
    """
    person = person or Person()
    spec, signals, make_tool_runner = plan.spec, SignalQueue(), ToolRunner
    if spec.tools.may_delegate:
        tree_budget = shared_budget if plan.parent_run_id is None else tree_budget
        make_tool_runner = partial(
            ChildRunner,
            budgets=ChildBudgets(
                recorder=recorder,
                shared_budget=shared_budget,
                tree_budget=tree_budget,
                resolve_child=spec.children.resolve,
            ),
            tree_clock=clock,
            person=person,
            max_concurrent=spec.children.max_concurrent,
            stall_s=spec.children.stall_s,
            parent_signals=signals,
            journal=journal,
        )
    return RunDriver(
        plan,
        recorder,
        signals,
        clock=clock,
        shared_budget=shared_budget,
        person=person,
        journal=journal,
        parent_signals=parent_signals,
        make_tool_runner=make_tool_runner,
    )


@dataclass(slots=True, eq=False)
class _BackgroundTask:
    """Child run in the background."""

    scope: anyio.CancelScope
    done: anyio.Event


@dataclass(slots=True, kw_only=True, eq=False)
class ChildRunner(ToolRunner):
    """Makes the calls of a run that can delegate. Each child run has a result when its call is closed."""

    budgets: ChildBudgets
    tree_clock: Clock
    """Clock of the whole tree. `clock` is the parent's own time."""
    person: Person
    max_concurrent: int
    stall_s: float
    """Seconds without progress after which a child run is interrupted."""
    parent_signals: SignalQueue
    """Signals of the parent, which receives late results of child runs that have ended."""
    journal: EffectJournal | None
    _running: dict[str, Runner] = field(default_factory=dict[str, Runner])
    _semaphore: anyio.Semaphore | None = None
    _background: TaskGroup | None = None
    """Tasks of child runs in the background, while the run is driven. None if the agent has none."""
    _open: dict[str, _BackgroundTask] = field(default_factory=dict[str, "_BackgroundTask"])
    """Child runs in the background that have not ended, by run id."""
    _launched: deque[tuple[ChildTask, float, _BackgroundTask]] = field(
        default_factory=deque["tuple[ChildTask, float, _BackgroundTask]"]
    )
    """Child runs in the background whose task has not started, with the time by which each ends."""

    @property
    def running_children(self) -> Mapping[str, Runner]:
        """Runners of the child runs in progress, by run id."""
        return self._running

    def run_call(self, tool_call: ToolCallRun) -> Awaitable[Sequence[Outcome | None]]:
        """Make one call that has started. The caller enforces its deadline."""
        self.budgets.uncounted_children = 0
        if isinstance(tool_call, BackgroundCallRun):
            return self._start_call(tool_call)
        return (
            self._run_tasks([tool_call])
            if isinstance(tool_call, ChildCallRun)
            else ToolRunner.run_call(self, tool_call)
        )

    async def perform(self, tool_calls: Sequence[ToolCallRun], deadline: float) -> None:
        """Make tool calls and child runs in parallel. All have their outcome afterwards, even on a cancel."""
        self.budgets.uncounted_children = 0
        for one in tool_calls:
            if isinstance(one, BackgroundCallRun):
                one.start(self.clock.now(), deadline)
                self.launch(one, deadline)
                one.close_started(self.clock.now())
        tool_calls = [one for one in tool_calls if not isinstance(one, BackgroundCallRun)]
        children = [one for one in tool_calls if isinstance(one, ChildCallRun)]
        if not children:
            await ToolRunner.perform(self, tool_calls, deadline)
            return
        others, now = [one for one in tool_calls if not isinstance(one, ChildCallRun)], self.clock.now()
        for child_call in children:
            child_call.start(now, deadline)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ToolRunner.perform, self, others, deadline)
                with anyio.CancelScope(deadline=loop_time() + deadline - now) as scope:
                    await self._run_tasks(children)
                if scope.cancelled_caught:
                    self.interrupt(children, timed_out=True)
        finally:
            self.interrupt(tool_calls)

    async def _start_call(self, tool_call: BackgroundCallRun) -> Sequence[Outcome | None]:
        self.launch(tool_call, tool_call.deadline)
        tool_call.close_started(self.clock.now())
        return [tool_call.outcome]

    def open_background(self, tasks: TaskGroup) -> None:
        """Drive child runs in the background in this task group from now on."""
        self._background = tasks
        if self.stall_s < math.inf:
            tasks.start_soon(self._watch_stalls)

    def launch(self, tool_call: BackgroundCallRun, deadline: float, ended: Collection[str] = ()) -> None:
        """Start the child runs of a call in the background, except those that have `ended`."""
        assert self._background is not None, "the driver has opened the background"
        for task in distinct_tasks(tool_call.tasks):
            if task.run_id not in ended:
                entry = self._open[task.run_id] = _BackgroundTask(anyio.CancelScope(), anyio.Event())
                self._launched.append((task, deadline, entry))
                self._background.start_soon(self._drive_next)

    async def _drive_next(self) -> None:
        """Drive the child run that was launched next to its end, and signal its result to the run."""
        task, until, entry = self._launched.popleft()  # in order, although trio starts its tasks in any order
        try:
            with entry.scope as scope:
                scope.deadline = min(scope.deadline, loop_time() + until - self.clock.now())
                if task.own_result is None:
                    await self._drive_when_free(task, until)
        finally:
            result = task.own_result or self.budgets.build_unstarted_result(
                task, self.tree_clock.wall(), End(Stop.CANCELLED, by="parent")
            )
            task.own_result = result
            self._open.pop(task.run_id, None)
            self.parent_signals.send(ChildDone(task.run_id, result))
            entry.done.set()

    async def wait_for_children(self, run_ids: Sequence[str], seconds: float, *, cancel: bool = False) -> None:
        """Wait until these child runs in the background have ended, for limited seconds."""
        entries = [self._open[run_id] for run_id in run_ids if run_id in self._open]
        for entry in entries if cancel else ():
            entry.scope.cancel()
        with anyio.move_on_after(max(0.0, seconds)):
            for entry in entries:
                await entry.done.wait()

    async def close_background(self) -> None:
        """Cancel all child runs in the background, and wait for their end."""
        await self.wait_for_children(tuple(self._open), math.inf, cancel=True)

    def interrupt(self, tool_calls: Sequence[ToolCallRun], *, timed_out: bool = False, hung: bool = False) -> None:
        """Close calls that are still open. A child run that did not start ends as cancelled by its parent."""
        for tool_call in tool_calls:
            if isinstance(tool_call, ChildCallRun) and tool_call.outcome is None:
                for task in distinct_tasks(tool_call.tasks):
                    task.own_result = task.own_result or self.budgets.build_unstarted_result(
                        task, self.tree_clock.wall(), End(Stop.CANCELLED, by="parent")
                    )
        ToolRunner.interrupt(self, tool_calls, timed_out=timed_out, hung=hung)

    async def delegate(self, tool_call: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """Drive a child run for a tool, as part of that tool's call."""
        tool_call.commit()  # a call that was left behind starts no child run
        if not tool_call.tool.is_async:
            return await ToolRunner.delegate(self, tool_call, child, goal, context)
        if self.parent_signals.paused_children is not None:
            raise DelegationPaused(self.parent_signals.paused_children.by)
        task = self.budgets.claim_child(tool_call, child, goal, context)
        try:
            await self._run_watched(partial(self._drive_when_free, task, tool_call.deadline))
        finally:
            task.own_result = task.own_result or self.budgets.build_unstarted_result(
                task, self.tree_clock.wall(), End(Stop.CANCELLED, by="parent")
            )
            self.budgets.add_result(tool_call, task, task.own_result, self.clock.now())
        return task.own_result

    async def _run_tasks(self, tool_calls: Sequence[ChildCallRun]) -> Sequence[Outcome | None]:
        """Drive all tasks, at most `max_concurrent` at a time. They start in the order of the calls."""
        waiting = deque(
            (one, task) for one in tool_calls for task in distinct_tasks(one.tasks) if task.own_result is None
        )

        def close_finished_calls() -> None:
            for tool_call in tool_calls:
                if tool_call.outcome is None and tool_call.is_complete:
                    tool_call.close_finished(self.clock.now())

        async def work() -> None:
            while waiting:
                tool_call, task = waiting.popleft()
                await self._drive_when_free(task, tool_call.deadline)
                close_finished_calls()

        async def run_workers() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(min(len(waiting), self.max_concurrent)):
                    tasks.start_soon(work)

        close_finished_calls()
        await self._run_watched(run_workers)
        return [one.outcome for one in tool_calls]

    async def _run_watched(self, work: Callable[[], Awaitable[None]]) -> None:
        """Await the work, and interrupt child runs that stall meanwhile."""
        async with anyio.create_task_group() as watching:
            if self.stall_s < math.inf and self._background is None:
                watching.start_soon(self._watch_stalls)
            await work()
            watching.cancel_scope.cancel()

    async def _watch_stalls(self) -> None:
        """Interrupt child runs without progress. They then report, as at a limit."""
        while True:
            idle = {driver: driver.idle_s for driver in self._running.values()}
            for driver, idle_s in idle.items():
                if idle_s >= self.stall_s:
                    driver.stall(self.stall_s)
            await anyio.sleep(max(self.stall_s / 20, self.stall_s - max(idle.values(), default=0.0)))

    async def _drive_when_free(self, task: ChildTask, until: float) -> None:
        """Drive one child run to its end, as soon as fewer than `max_concurrent` are in progress and no pause lasts."""
        # With `fast_acquire` no other task runs in between, so child runs start in their order.
        self._semaphore = self._semaphore or anyio.Semaphore(self.max_concurrent, fast_acquire=True)
        async with self._semaphore:
            await self._wait_while_paused()  # in its place, because the pause may begin while it waits for one
            await self._drive_child(task, until)

    async def _wait_while_paused(self) -> None:
        """Wait until child runs may start. The deadline of the call ends the wait."""
        signals = self.parent_signals
        while signals.find_pause() is not None:
            resumed, call_soon = anyio.Event(), get_call_soon()
            with signals.lock:
                signals.resume_waiters = [*(signals.resume_waiters or ()), partial(call_soon, resumed.set)]
                is_paused = signals.find_pause() is not None
            if is_paused:
                await resumed.wait()

    async def _drive_child(self, task: ChildTask, until: float) -> None:
        """Drive one child run to its end. Its failure is its result, never an exception of its parent."""
        try:
            driver = self._build_runner(task, until)
        except Exception as error:
            task.own_result = self.budgets.build_unstarted_result(
                task, self.tree_clock.wall(), End(Stop.FAILED, error=describe_error(error))
            )
            return
        self._running[task.run_id] = driver
        if self.parent_signals.paused_children is not None:  # while it was being built
            driver.signals.send(self.parent_signals.paused_children)
        token = POSITION.set(find_position().for_children(self.run_id))
        try:
            task.own_result = await driver.drive()
        except Exception as error:
            task.own_result = Result(stop=Stop.FAILED, error=describe_error(error), run_id=task.run_id)
        finally:
            POSITION.reset(token)
            del self._running[task.run_id]
            task.own_result = task.own_result or driver.result

    def _build_runner(self, task: ChildTask, until: float) -> Runner:
        plan, shared_budget = self.budgets.build_plan(task, self.clock, until)
        recorder = self.budgets.build_recorder(task, plan)
        if task.spec.make_runner is not None:
            return task.spec.make_runner(task, plan, recorder, self.tree_clock, shared_budget)
        has_approver = task.spec.approver is not None
        person = Person(task.spec.approver, task.spec.approver_seconds) if has_approver else self.person
        return build_driver(
            plan,
            recorder,
            clock=self.tree_clock,
            shared_budget=shared_budget,
            tree_budget=self.budgets.tree_budget,
            person=Person(person.approver, person.seconds),
            journal=None if self.journal is None else self.journal.for_child(),
            parent_signals=self.parent_signals,
        )
