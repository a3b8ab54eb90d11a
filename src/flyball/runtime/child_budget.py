"""Kin: what the children of a run have of it, whoever drives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from .._internal import validation
from ..budget.budget import IterationBudget
from ..budget.deadline import Clock, Deadline
from ..budget.run_budget import TurnBudget
from ..errors import BudgetExceeded
from ..event import ChildEnded, ChildStarted, Event, Header
from ..loop.child_task import ChildSpec, ChildTask, Mode
from ..loop.ending import End
from ..loop.loop import converse
from ..loop.plan import Plan
from ..recorder import Fields, Recorder
from ..result import Result
from ..tools.call import ToolCallRun
from ..unit import Unit
from .shared_budget import read_remaining


@dataclass(slots=True, kw_only=True)
class ChildBudgets:
    """The budgets in which the children of one run count beside their own, and who hears of them."""

    recorder: Recorder
    """The parent's: whoever hears of it hears of its children too."""
    shared_budget: TurnBudget | None
    """What the parent shares with others."""
    tree_budget: TurnBudget | None
    """What the whole tree shares."""
    resolve_child: Callable[[object], ChildSpec] | None = None
    """The edge to a child that a tool wants."""
    uncounted_children: int = 0
    """How many children tools have found themselves since the loop counted last."""
    _pool: tuple[object, TurnBudget] | None = field(default=None, init=False)
    """What is shared in the batch that is under way."""

    def build_plan(self, task: ChildTask, clock: Clock, until: float) -> tuple[Plan, TurnBudget | None]:
        """The plan of a child that begins now, and what it shares; ConfigError where a limit cannot be held.

        `clock` is the parent's own time, and `until` when its work ends.
        """
        within = self._find_shared_budget(task, Deadline(until, clock))
        task.spec.check_money_limit(_find_money_budget(task, within))
        left_s = until - clock.now()
        if within is None:
            return task.build_plan(left_s, clock.wall()), None
        return task.build_plan(min(left_s, within.remaining_s()), clock.wall(), read_remaining(within)), within

    def claim_child(self, tool_call: ToolCallRun, child: object, goal: str, context: str) -> ChildTask:
        """The task of a child that a tool has found itself; BudgetExceeded where no more may be.

        It is counted here and in what the run shares; the loop counts it when the call has ended.
        """
        assert self.resolve_child is not None, "an agent's run"
        assert tool_call.envelope is not None, "an agent's run"
        task = ChildTask(
            spec=self.resolve_child(child), goal=validation.check_text("ctx.delegate, goal", goal), context=context
        )
        depth, children = tool_call.envelope.budgets["depth"], tool_call.envelope.budgets["children"]
        left = children.available - self.uncounted_children
        for budget, available in ((depth, depth.available), (children, left)):
            if available < 1:
                raise BudgetExceeded(budget.name, 1, available, budget.ceiling)
        above = None if self.shared_budget is None else self.shared_budget.budgets.get("children")
        if above is not None:
            above.spend()
        run_id = self.recorder.header.run_id
        task.run_id, task.parent_run_id = f"{run_id}.{tool_call.call.id}.{self.uncounted_children}", run_id
        task.level, self.uncounted_children = int(depth.used) + 1, self.uncounted_children + 1
        if depth.ceiling is not None:
            task.max_amounts["depth"] = depth.ceiling
        self._emit(ChildStarted, task.run_id, task.spec.name)
        return task

    def add_result(self, tool_call: ToolCallRun, task: ChildTask, result: Result, now: float) -> None:
        """What it came to is part of the tool's call."""
        tool_call.children = (*tool_call.children, result)
        if not self.recorder.ended:
            self.recorder.at = now
            self._emit(ChildEnded, task.run_id, task.spec.name, result.stop.value)

    def _emit(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        self.recorder.other_event_count += 1
        self.recorder.emit(kind, *fields)

    def build_recorder(self, task: ChildTask, plan: Plan) -> Recorder:
        """Who records a child: its own sinks hear of it, and its parent's."""
        own = task.spec.sinks
        inherited = [sink for sink in self.recorder.sinks if sink not in own]
        return Recorder(plan.header, (*own, *inherited), task.spec.events_kept)

    def build_unstarted_result(self, task: ChildTask, now: float, not_started: End) -> Result:
        """Return the result of a child run that could not start."""
        plan = replace(task.build_plan(0.0, now), not_started=not_started)
        try:
            next(converse(plan, self.build_recorder(task, plan)))
        except StopIteration as end:
            return end.value
        raise AssertionError("a run that cannot begin wants nothing done")

    def _find_shared_budget(self, task: ChildTask, until: Deadline) -> TurnBudget | None:
        if task.spec.mode is Mode.INDEPENDENT:
            return self.tree_budget
        if task.pool is None:
            return self.shared_budget
        if self._pool is None or self._pool[0] is not task.pool:
            self._pool = task.pool, build_pool(task.pool, self.shared_budget, until)
        return self._pool[1]


def build_pool(amounts: Mapping[str, int | None], shared_budget: TurnBudget | None, until: Deadline) -> TurnBudget:
    """Amounts that runs share; what they take counts also in an envelope that these are within."""
    above = {} if shared_budget is None else shared_budget.budgets
    turns = IterationBudget("shared_turns", amounts["turns"], parent=above.get("turns"))
    budgets = {"turns": turns}
    for name in amounts:
        if name != "turns":
            unit = Unit.USD if name == "usd" else Unit.COUNT
            budgets[name] = IterationBudget(
                f"shared_{name}", amounts[name], parent=above.get(name), beside=turns, unit=unit
            )
    return TurnBudget(budgets, until)


def _find_money_budget(task: ChildTask, shared_budget: TurnBudget | None) -> IterationBudget | None:
    """The limit of money that a child inherits, if it does."""
    if "usd" in task.max_amounts:
        return IterationBudget("cost_usd", task.max_amounts["usd"], unit=Unit.USD)
    return None if shared_budget is None else shared_budget.budgets.get("usd")
