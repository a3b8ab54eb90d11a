"""Kin: what the children of a run have of it, whoever drives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .._internal import validation
from ..budget.budget import IterationBudget
from ..budget.deadline import Clock, Deadline
from ..budget.run_budget import TurnBudget
from ..errors import BudgetExceeded
from ..event import ChildEnded, ChildStarted, Event, Header
from ..loop.child_task import ChildSpec, ChildTask, Mode
from ..loop.loop import converse
from ..loop.plan import Plan
from ..recorder import Fields, Recorder
from ..result import Result
from ..tools.call import ToolCallRun
from ..unit import Unit
from .shared_budget import left_of


@dataclass(slots=True, kw_only=True)
class ChildBudgets:
    """The budgets in which the children of one run count beside their own, and who hears of them."""

    recorder: Recorder
    """The parent's: whoever hears of it hears of its children too."""
    within: TurnBudget | None
    """What the parent shares with others."""
    ceiling: TurnBudget | None
    """What the whole tree shares."""
    hire: Callable[[object], ChildSpec] | None = None
    """The edge to a child that a tool wants."""
    hired_now: int = 0
    """How many children tools have found themselves since the loop counted last."""
    _pool: tuple[object, TurnBudget] | None = field(default=None, init=False)
    """What is shared in the batch that is under way."""

    def plan(self, task: ChildTask, clock: Clock, until: float) -> tuple[Plan, TurnBudget | None]:
        """The plan of a child that begins now, and what it shares; ConfigError where a limit cannot be held.

        `clock` is the parent's own time, and `until` when its work ends.
        """
        within = self._shared_by(task, Deadline(until, clock))
        task.edge.guard(_money(task, within))
        left_s = until - clock.now()
        if within is None:
            return task.plan(left_s, clock.wall()), None
        return task.plan(min(left_s, within.remaining_s()), clock.wall(), left_of(within)), within

    def hired(self, act: ToolCallRun, child: object, goal: str, context: str) -> ChildTask:
        """The task of a child that a tool has found itself; BudgetExceeded where no more may be.

        It is counted here and in what the run shares; the loop counts it when the call has ended.
        """
        assert self.hire is not None, "an agent's run"
        assert act.envelope is not None, "an agent's run"
        task = ChildTask(edge=self.hire(child), goal=validation.text("ctx.delegate, goal", goal), context=context)
        depth, children = act.envelope.budgets["depth"], act.envelope.budgets["children"]
        left = children.available - self.hired_now
        for budget, available in ((depth, depth.available), (children, left)):
            if available < 1:
                raise BudgetExceeded(budget.name, 1, available, budget.ceiling)
        above = None if self.within is None else self.within.budgets.get("children")
        if above is not None:
            above.spend()
        run_id = self.recorder.header.run_id
        task.run_id, task.parent_run_id = f"{run_id}.{act.call.id}.{self.hired_now}", run_id
        task.level, self.hired_now = int(depth.used) + 1, self.hired_now + 1
        if depth.ceiling is not None:
            task.most["depth"] = depth.ceiling
        self._tell(ChildStarted, task.run_id, task.edge.name)
        return task

    def part(self, act: ToolCallRun, task: ChildTask, result: Result, now: float) -> None:
        """What it came to is part of the tool's call."""
        act.children = (*act.children, result)
        if not self.recorder.ended:
            self.recorder.at = now
            self._tell(ChildEnded, task.run_id, task.edge.name, result.stop.value)

    def _tell(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        self.recorder.aside += 1
        self.recorder.emit(kind, *fields)

    def recorder_of(self, task: ChildTask, plan: Plan) -> Recorder:
        """Who records a child: its own sinks hear of it, and its parent's."""
        own = task.edge.sinks
        inherited = [sink for sink in self.recorder.sinks if sink not in own]
        return Recorder(plan.header, (*own, *inherited), task.edge.events_kept)

    def not_begun(
        self, task: ChildTask, wall: float, called_off: str | None = None, obstacle: Mapping[str, Any] | None = None
    ) -> Result:
        """The end of a child that could not begin: a run like every other, in which nothing happened."""
        plan = replace(task.plan(0.0, wall), called_off=called_off, obstacle=obstacle)
        try:
            next(converse(plan, self.recorder_of(task, plan)))
        except StopIteration as end:
            return end.value
        raise AssertionError("a run that cannot begin wants nothing done")

    def _shared_by(self, task: ChildTask, until: Deadline) -> TurnBudget | None:
        if task.edge.mode is Mode.INDEPENDENT:
            return self.ceiling
        if task.pool is None:
            return self.within
        if self._pool is None or self._pool[0] is not task.pool:
            self._pool = task.pool, pool_of(task.pool, self.within, until)
        return self._pool[1]


def pool_of(amounts: Mapping[str, int | None], within: TurnBudget | None, until: Deadline) -> TurnBudget:
    """Amounts that runs share; what they take counts also in an envelope that these are within."""
    above = {} if within is None else within.budgets
    turns = IterationBudget("shared_turns", amounts["turns"], parent=above.get("turns"))
    budgets = {"turns": turns}
    for name in amounts:
        if name != "turns":
            unit = Unit.USD if name == "usd" else Unit.COUNT
            budgets[name] = IterationBudget(
                f"shared_{name}", amounts[name], parent=above.get(name), beside=turns, unit=unit
            )
    return TurnBudget(budgets, until)


def _money(task: ChildTask, within: TurnBudget | None) -> IterationBudget | None:
    """The limit of money that a child inherits, if it does."""
    if "usd" in task.most:
        return IterationBudget("cost_usd", task.most["usd"], unit=Unit.USD)
    return None if within is None else within.budgets.get("usd")
