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
from ..loop.children import own_tasks
from ..loop.ending import described
from ..loop.plan import Plan
from ..outcome import Outcome
from ..recorder import Recorder
from ..result import Result, Stop
from ..tools.call import ToolCallRun
from ..tools.runner import Performer
from .approval import Person
from .child_budget import ChildBudgets
from .child_call import ChildAct
from .driver import Driver
from .journal import RunJournal
from .runner import Mailbox, Runner
from .tool_sources import SourcedDriver


def driver_of(
    plan: Plan,
    recorder: Recorder,
    *,
    clock: Clock = SYSTEM,
    within: TurnBudget | None = None,
    ceiling: TurnBudget | None = None,
    person: Person | None = None,
    keeper: RunJournal | None = None,
) -> Driver:
    """The driver of a run: one that opens sources where it has some, and drives children where it delegates.

    `within` is what the run shares with others; `ceiling` what its whole tree does, which is the same for the root.
    """
    person = person or Person()
    kind = SourcedDriver if plan.shared.sources else Driver
    shared, mailbox, performing = plan.shared, Mailbox(), Performer
    if shared.may_delegate:
        ceiling = within if plan.parent_run_id is None else ceiling
        performing = partial(
            ChildRunner,
            kin=ChildBudgets(recorder=recorder, within=within, ceiling=ceiling, hire=shared.hire),
            outer=clock,
            person=person,
            most_at_once=shared.children_at_once,
            stall_s=shared.children_stall_s,
            mailbox=mailbox,
            keeper=keeper,
        )
    driver = kind(plan, recorder, mailbox, clock=clock, within=within, person=person, performing=performing)
    if keeper is not None:
        driver.keep(keeper)
    return driver


@dataclass(slots=True, kw_only=True, eq=False)
class ChildRunner(Performer):
    """Makes the calls of a run that has children. Each of those has a result when its call is closed."""

    kin: ChildBudgets
    outer: Clock
    """The clock of the whole family; `clock` is the parent's own time."""
    person: Person
    most_at_once: int
    stall_s: float
    """How long a child may go on without anything coming of it."""
    mailbox: Mailbox
    """The parent's, which hears of what came too late for a child."""
    keeper: RunJournal | None
    _under_way: dict[str, Runner] = field(default_factory=dict[str, Runner])
    _places: anyio.Semaphore | None = None

    @property
    def under_way(self) -> Mapping[str, Runner]:
        """Who brings the children that go on now to their ends, by the ids of their runs."""
        return self._under_way

    def make(self, act: ToolCallRun) -> Awaitable[Sequence[Outcome | None]]:
        """Make one call that has begun; whoever awaits it keeps its time."""
        self.kin.hired_now = 0
        return self._delegate([act]) if isinstance(act, ChildAct) else Performer.make(self, act)

    async def perform(self, acts: Sequence[ToolCallRun], deadline: float) -> None:
        """Make calls side by side, children beside tools. All have their outcome then, also after a cancel."""
        self.kin.hired_now = 0
        children = [act for act in acts if isinstance(act, ChildAct)]
        if not children:
            await Performer.perform(self, acts, deadline)
            return
        others, now = [act for act in acts if not isinstance(act, ChildAct)], self.clock.now()
        for act in children:
            act.begin(now, deadline)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(Performer.perform, self, others, deadline)
                with anyio.CancelScope(deadline=loop_time() + deadline - now) as scope:
                    await self._delegate(children)
                if scope.cancelled_caught:
                    self.cut(children, timed_out=True)
        finally:
            self.cut(acts)

    def cut(self, acts: Sequence[ToolCallRun], *, timed_out: bool = False) -> None:
        """Close what is still open; a child that never began ends as one that was called off."""
        for act in acts:
            if isinstance(act, ChildAct) and act.outcome is None:
                for task in own_tasks(act.tasks):
                    task.ended = task.ended or self.kin.not_begun(task, self.outer.wall(), "parent")
        Performer.cut(self, acts, timed_out=timed_out)

    async def hired(self, act: ToolCallRun, child: object, goal: str, context: str) -> Result:
        """Have a child do a task for a tool, as part of that tool's call."""
        if not act.tool.is_async:
            return await Performer.hired(self, act, child, goal, context)
        task = self.kin.hired(act, child, goal, context)
        try:
            await self._watched(partial(self._drive, task, act.until))
        finally:
            task.ended = task.ended or self.kin.not_begun(task, self.outer.wall(), "parent")
            self.kin.part(act, task, task.ended, self.clock.now())
        return task.ended

    async def _delegate(self, acts: Sequence[ChildAct]) -> Sequence[Outcome | None]:
        """Have all tasks done, so many at a time, begun in the order asked."""
        waiting = deque((act, task) for act in acts for task in own_tasks(act.tasks) if task.ended is None)

        def end_those_that_are_whole() -> None:
            for act in acts:
                if act.outcome is None and act.whole:
                    act.end(self.clock.now())

        async def work() -> None:
            while waiting:
                act, task = waiting.popleft()
                await self._drive(task, act.until)
                end_those_that_are_whole()

        async def all_of_them() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(min(len(waiting), self.most_at_once)):
                    tasks.start_soon(work)

        end_those_that_are_whole()
        await self._watched(all_of_them)
        return [act.outcome for act in acts]

    async def _watched(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have it done, and cut children of which nothing comes meanwhile."""
        async with anyio.create_task_group() as watching:
            if self.stall_s < math.inf:
                watching.start_soon(self._watch)
            await work()
            watching.cancel_scope.cancel()

    async def _watch(self) -> None:
        """Cut children of which nothing comes: they report then, as those do that meet a limit."""
        while True:
            idle = {driver: driver.idle_s for driver in self._under_way.values()}
            for driver, idle_s in idle.items():
                if idle_s >= self.stall_s:
                    driver.stall(self.stall_s)
            await anyio.sleep(max(self.stall_s / 20, self.stall_s - max(idle.values(), default=0.0)))

    async def _drive(self, task: ChildTask, until: float) -> None:
        """Drive one child to its end, when there is a place for it."""
        # One with `fast_acquire` gives nobody else a turn, so those for whom there are places begin in their order.
        self._places = self._places or anyio.Semaphore(self.most_at_once, fast_acquire=True)
        async with self._places:
            await self._driven(task, until)

    async def _driven(self, task: ChildTask, until: float) -> None:
        """Drive one child to its end. What goes wrong with it is its result, and never its parent's exception."""
        try:
            driver = self._runner(task, until)
        except Exception as error:
            task.ended = self.kin.not_begun(task, self.outer.wall(), obstacle=described(error))
            return
        self._under_way[task.run_id] = driver
        here = POSITION.set(POSITION.get().below(self.run_id))
        try:
            task.ended = await driver.drive()
        except Exception as error:
            task.ended = Result(stop=Stop.FAILED, error=described(error), run_id=task.run_id)
        finally:
            POSITION.reset(here)
            del self._under_way[task.run_id]
            task.ended = task.ended or driver.result

    def _runner(self, task: ChildTask, until: float) -> Runner:
        plan, within = self.kin.plan(task, self.clock, until)
        recorder = self.kin.recorder_of(task, plan)
        if task.edge.runner is not None:
            return task.edge.runner(task, plan, recorder, self.outer, within)
        own = task.edge.approver is not None
        person = Person(task.edge.approver, task.edge.patience_s) if own else self.person
        driver = driver_of(
            plan,
            recorder,
            clock=self.outer,
            within=within,
            ceiling=self.kin.ceiling,
            person=Person(person.approver, person.seconds),
            keeper=None if self.keeper is None else self.keeper.child(),
        )
        driver.heir = self.mailbox
        return driver
