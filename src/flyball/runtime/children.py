"""A family: a run and its children, all driven in one event loop. No thread waits for a child."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio

from .._internal.workers import loop_time
from ..budget.deadline import SYSTEM, Clock
from ..budget.run_budget import TurnBudget
from ..chain.caller import POSITION
from ..loop.child_task import ChildTask
from ..loop.children import distinct_tasks
from ..loop.ending import End, describe_error
from ..loop.plan import Plan
from ..outcome import Outcome
from ..recorder import Recorder
from ..result import Result, Stop
from ..tools.call import ToolCallRun
from ..tools.runner import ToolRunner
from .approval import Person
from .child_budget import ChildBudgets
from .child_call import ChildCallRun
from .driver import Driver
from .journal import RunJournal
from .runner import Runner, SignalQueue
from .tool_sources import SourcedDriver


def build_driver(
    plan: Plan,
    recorder: Recorder,
    *,
    clock: Clock = SYSTEM,
    shared_budget: TurnBudget | None = None,
    tree_budget: TurnBudget | None = None,
    person: Person | None = None,
    journal: RunJournal | None = None,
) -> Driver:
    """The driver of a run: one that opens sources where it has some, and drives children where it delegates.

    `shared_budget` is what the run shares with others. `tree_budget` is what its whole tree shares; for the root it is
    the same.
    """
    person = person or Person()
    kind = SourcedDriver if plan.spec.tools.sources else Driver
    spec, signals, make_performer = plan.spec, SignalQueue(), ToolRunner
    if spec.tools.may_delegate:
        tree_budget = shared_budget if plan.parent_run_id is None else tree_budget
        make_performer = partial(
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
    driver = kind(
        plan,
        recorder,
        signals,
        clock=clock,
        shared_budget=shared_budget,
        person=person,
        make_performer=make_performer,
    )
    if journal is not None:
        driver.attach_journal(journal)
    return driver


@dataclass(slots=True, kw_only=True, eq=False)
class ChildRunner(ToolRunner):
    """Makes the calls of a run that has children. Each of those has a result when its call is closed."""

    budgets: ChildBudgets
    tree_clock: Clock
    """The clock of the whole family; `clock` is the parent's own time."""
    person: Person
    max_concurrent: int
    stall_s: float
    """How long a child may go on without anything coming of it."""
    parent_signals: SignalQueue
    """The parent's, which hears of what came too late for a child."""
    journal: RunJournal | None
    _running: dict[str, Runner] = field(default_factory=dict[str, Runner])
    _semaphore: anyio.Semaphore | None = None

    @property
    def running_children(self) -> Mapping[str, Runner]:
        """Who brings the children that go on now to their ends, by the ids of their runs."""
        return self._running

    def run_call(self, tool_call: ToolCallRun) -> Awaitable[Sequence[Outcome | None]]:
        """Make one call that has begun; whoever awaits it keeps its time."""
        self.budgets.uncounted_children = 0
        return (
            self._run_tasks([tool_call])
            if isinstance(tool_call, ChildCallRun)
            else ToolRunner.run_call(self, tool_call)
        )

    async def perform(self, tool_calls: Sequence[ToolCallRun], deadline: float) -> None:
        """Make calls side by side, children beside tools. All have their outcome then, also after a cancel."""
        self.budgets.uncounted_children = 0
        children = [act for act in tool_calls if isinstance(act, ChildCallRun)]
        if not children:
            await ToolRunner.perform(self, tool_calls, deadline)
            return
        others, now = [act for act in tool_calls if not isinstance(act, ChildCallRun)], self.clock.now()
        for act in children:
            act.start(now, deadline)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ToolRunner.perform, self, others, deadline)
                with anyio.CancelScope(deadline=loop_time() + deadline - now) as scope:
                    await self._run_tasks(children)
                if scope.cancelled_caught:
                    self.interrupt(children, timed_out=True)
        finally:
            self.interrupt(tool_calls)

    def interrupt(self, tool_calls: Sequence[ToolCallRun], *, timed_out: bool = False) -> None:
        """Close what is still open; a child that never began ends as one that was called off."""
        for act in tool_calls:
            if isinstance(act, ChildCallRun) and act.outcome is None:
                for task in distinct_tasks(act.tasks):
                    task.own_result = task.own_result or self.budgets.build_unstarted_result(
                        task, self.tree_clock.wall(), End(Stop.CANCELLED, by="parent")
                    )
        ToolRunner.interrupt(self, tool_calls, timed_out=timed_out)

    async def delegate(self, tool_call: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """Have a child do a task for a tool, as part of that tool's call."""
        if not tool_call.tool.is_async:
            return await ToolRunner.delegate(self, tool_call, child, goal, context)
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
        """Have all tasks done, so many at a time, begun in the order asked."""
        waiting = deque(
            (act, task) for act in tool_calls for task in distinct_tasks(act.tasks) if task.own_result is None
        )

        def close_finished_calls() -> None:
            for act in tool_calls:
                if act.outcome is None and act.is_complete:
                    act.close(self.clock.now())

        async def work() -> None:
            while waiting:
                act, task = waiting.popleft()
                await self._drive_when_free(task, act.deadline)
                close_finished_calls()

        async def run_workers() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(min(len(waiting), self.max_concurrent)):
                    tasks.start_soon(work)

        close_finished_calls()
        await self._run_watched(run_workers)
        return [act.outcome for act in tool_calls]

    async def _run_watched(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have it done, and cut children of which nothing comes meanwhile."""
        async with anyio.create_task_group() as watching:
            if self.stall_s < math.inf:
                watching.start_soon(self._watch_stalls)
            await work()
            watching.cancel_scope.cancel()

    async def _watch_stalls(self) -> None:
        """Cut children of which nothing comes: they report then, as those do that meet a limit."""
        while True:
            idle = {driver: driver.idle_s for driver in self._running.values()}
            for driver, idle_s in idle.items():
                if idle_s >= self.stall_s:
                    driver.stall(self.stall_s)
            await anyio.sleep(max(self.stall_s / 20, self.stall_s - max(idle.values(), default=0.0)))

    async def _drive_when_free(self, task: ChildTask, until: float) -> None:
        """Drive one child to its end, when there is a place for it."""
        # One with `fast_acquire` gives nobody else a turn, so those for whom there are places begin in their order.
        self._semaphore = self._semaphore or anyio.Semaphore(self.max_concurrent, fast_acquire=True)
        async with self._semaphore:
            await self._drive_child(task, until)

    async def _drive_child(self, task: ChildTask, until: float) -> None:
        """Drive one child to its end. What goes wrong with it is its result, and never its parent's exception."""
        try:
            driver = self._build_runner(task, until)
        except Exception as error:
            task.own_result = self.budgets.build_unstarted_result(
                task, self.tree_clock.wall(), End(Stop.FAILED, error=describe_error(error))
            )
            return
        self._running[task.run_id] = driver
        here = POSITION.set(POSITION.get().for_children(self.run_id))
        try:
            task.own_result = await driver.drive()
        except Exception as error:
            task.own_result = Result(stop=Stop.FAILED, error=describe_error(error), run_id=task.run_id)
        finally:
            POSITION.reset(here)
            del self._running[task.run_id]
            task.own_result = task.own_result or driver.result

    def _build_runner(self, task: ChildTask, until: float) -> Runner:
        plan, within = self.budgets.build_plan(task, self.clock, until)
        recorder = self.budgets.build_recorder(task, plan)
        if task.spec.make_runner is not None:
            return task.spec.make_runner(task, plan, recorder, self.tree_clock, within)
        own = task.spec.approver is not None
        person = Person(task.spec.approver, task.spec.approver_seconds) if own else self.person
        driver = build_driver(
            plan,
            recorder,
            clock=self.tree_clock,
            shared_budget=within,
            tree_budget=self.budgets.tree_budget,
            person=Person(person.approver, person.seconds),
            journal=None if self.journal is None else self.journal.for_child(),
        )
        driver.parent_signals = self.parent_signals
        return driver
