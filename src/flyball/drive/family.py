"""A family: a run and its children, all driven in one event loop. No thread waits for a child."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio

from ..clock import SYSTEM, Clock
from ..envelope import TurnBudget
from ..loop.child import ChildTask
from ..loop.end import described
from ..loop.plan import Plan
from ..recorder import Recorder
from ..result import Result, Stop
from ..tools.act import ToolAct
from ..tools.performer import Performer
from ..worker import loop_time
from .child import ChildAct
from .driver import Driver, Person
from .kin import Kin
from .sourced import SourcedDriver


def driver_of(
    plan: Plan,
    recorder: Recorder,
    *,
    clock: Clock = SYSTEM,
    within: TurnBudget | None = None,
    ceiling: TurnBudget | None = None,
    person: Person | None = None,
) -> Driver:
    """The driver of a run: one that opens sources where it has some, and drives children where it delegates.

    `within` is what the run shares with others; `ceiling` what its whole tree does, which is the same for the root.
    """
    person = person or Person()
    kind = SourcedDriver if plan.shared.sources else Driver
    if not plan.shared.children:
        return kind(plan, recorder, clock=clock, within=within, person=person)
    kin = Kin(recorder=recorder, within=within, ceiling=within if plan.parent_run_id is None else ceiling)
    at_once, stall_s = plan.shared.children_at_once, plan.shared.children_stall_s
    performing = partial(Family, kin=kin, outer=clock, person=person, most_at_once=at_once, stall_s=stall_s)
    return kind(plan, recorder, clock=clock, within=within, person=person, performing=performing)


@dataclass(slots=True, kw_only=True, eq=False)
class Family(Performer):
    """Makes the calls of a run that has children. Each of those has a result when its call is closed."""

    kin: Kin
    outer: Clock
    """The clock of the whole family; `clock` is the parent's own time."""
    person: Person
    most_at_once: int
    stall_s: float
    """How long a child may go on without anything coming of it."""
    _under_way: dict[str, Driver] = field(default_factory=dict[str, Driver])

    @property
    def under_way(self) -> Mapping[str, Driver]:
        """The drivers of children that go on now, by the ids of their runs."""
        return self._under_way

    def make(self, act: ToolAct) -> Awaitable[None]:
        """Make one call that has begun; whoever awaits it keeps its time."""
        return self._delegate([act]) if isinstance(act, ChildAct) else Performer.make(self, act)

    async def perform(self, acts: Sequence[ToolAct], deadline: float) -> None:
        """Make calls side by side, children beside tools. All have their outcome then, also after a cancel."""
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

    def cut(self, acts: Sequence[ToolAct], *, timed_out: bool = False) -> None:
        """Close what is still open; a child that never began ends as one that was called off."""
        for act in acts:
            if isinstance(act, ChildAct) and act.outcome is None:
                for n, result in enumerate(act.results):
                    act.results[n] = result or self.kin.not_begun(act.tasks[n], self.outer.wall(), "parent")
        Performer.cut(self, acts, timed_out=timed_out)

    async def _delegate(self, acts: Sequence[ChildAct]) -> None:
        """Have all tasks done, so many at a time, begun in the order asked."""
        waiting = deque((act, n) for act in acts for n in range(len(act.tasks)))

        async def work() -> None:
            while waiting:
                act, n = waiting.popleft()
                await self._drive(act, n)
                if None not in act.results:
                    act.end(self.clock.now())

        async with anyio.create_task_group() as watching:
            if self.stall_s < math.inf:
                watching.start_soon(self._watch)
            async with anyio.create_task_group() as tasks:
                for _ in range(min(len(waiting), self.most_at_once)):
                    tasks.start_soon(work)
            watching.cancel_scope.cancel()

    async def _watch(self) -> None:
        """Cut children of which nothing comes: they report then, as those do that meet a limit."""
        while True:
            idle = {driver: driver.idle_s for driver in self._under_way.values()}
            for driver, idle_s in idle.items():
                if idle_s >= self.stall_s:
                    driver.stall(self.stall_s)
            await anyio.sleep(max(self.stall_s / 20, self.stall_s - max(idle.values(), default=0.0)))

    async def _drive(self, act: ChildAct, n: int) -> None:
        """Drive one child to its end. What goes wrong with it is its result, and never its parent's exception."""
        task = act.tasks[n]
        try:
            driver = self._driver(task, act.until)
        except Exception as error:
            act.results[n] = self.kin.not_begun(task, self.outer.wall(), obstacle=described(error))
            return
        self._under_way[task.run_id] = driver
        try:
            act.results[n] = await driver.drive()
        except Exception as error:
            act.results[n] = Result(stop=Stop.FAILED, error=described(error), run_id=task.run_id)
        finally:
            del self._under_way[task.run_id]
            act.results[n] = act.results[n] or driver.result

    def _driver(self, task: ChildTask, until: float) -> Driver:
        plan, within = self.kin.plan(task, self.clock, until)
        own = task.edge.approver is not None
        person = Person(task.edge.approver, task.edge.patience_s) if own else self.person
        return driver_of(
            plan,
            self.kin.recorder_of(task, plan),
            clock=self.outer,
            within=within,
            ceiling=self.kin.ceiling,
            person=Person(person.approver, person.seconds),
        )
