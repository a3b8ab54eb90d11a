"""Budgets, plans and recorders that child runs get from their parent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .._internal import validation
from ..budget.budget import IterationBudget
from ..budget.deadline import Clock, Deadline
from ..budget.run_budget import TurnBudget
from ..errors import BudgetExceeded
from ..event import ChildEnded, ChildStarted, Event, Header
from ..loop.child_task import SHARED_BUDGETS, ChildSpec, ChildTask, Mode
from ..loop.ending import End
from ..loop.plan import Plan
from ..loop.player import LoopPlayer
from ..recorder import Fields, Recorder
from ..result import Result
from ..tools.call import ToolCallRun
from ..unit import Unit

HELD_BUDGETS = ("tokens", "usd")
"""Shared budgets that cap a run's own: it must not reserve more for a request than is left there."""

CLAIMED_BUDGETS = (*SHARED_BUDGETS, "tool_calls")
"""Budgets that runs claim from a shared budget. A pool needs all of them, so that claims also count above it."""


@dataclass(slots=True, kw_only=True)
class ChildBudgets:
    """Budgets that the child runs of one run draw from, and the recorder that their events reach."""

    recorder: Recorder
    """Recorder of the parent. Its sinks also receive the events of child runs."""
    shared_budget: TurnBudget | None
    """Budget that the parent shares with other runs. None if it shares none."""
    tree_budget: TurnBudget | None
    """Budget that the whole tree shares. None if there is none."""
    resolve_child: Callable[[object], ChildSpec] | None = None
    """Returns the spec of a child that a tool names."""
    uncounted_children: int = 0
    """Number of child runs that tools started since the loop last counted them."""
    _pool: tuple[object, TurnBudget] | None = field(default=None, init=False)
    """Amounts of the current batch, and the budget that its child runs share."""

    def build_plan(self, task: ChildTask, clock: Clock, until: float) -> tuple[Plan, TurnBudget | None]:
        """Return the plan of a child run that starts now, and its shared budget. Raises ConfigError.

        `clock` is the parent's own time. Its work ends at `until`.
        """
        shared = self._find_shared_budget(task, Deadline(until, clock))
        task.spec.check_money_limit(_find_money_budget(task, shared))
        remaining_s = until - clock.now()
        if shared is None:
            return task.build_plan(remaining_s, clock.wall()), None
        max_amounts = shared.remaining(*HELD_BUDGETS)
        return task.build_plan(min(remaining_s, shared.remaining_s()), clock.wall(), max_amounts), shared

    def claim_child(self, tool_call: ToolCallRun, child: object, goal: str, context: str) -> ChildTask:
        """Return the task of a child run that a tool starts. Raises BudgetExceeded.

        It is claimed here and in the shared budget. The loop counts it when the call has ended.
        """
        assert self.resolve_child is not None, "an agent's run"
        assert tool_call.envelope is not None, "an agent's run"
        task = ChildTask(
            spec=self.resolve_child(child), goal=validation.check_text("ctx.delegate, goal", goal), context=context
        )
        depth, children = tool_call.envelope.budgets["depth"], tool_call.envelope.budgets["children"]
        children_left = children.available - self.uncounted_children
        for budget, available in ((depth, depth.available), (children, children_left)):
            if available < 1:
                raise BudgetExceeded(budget.name, 1, available, budget.ceiling)
        if self.shared_budget is not None:
            self.shared_budget.budgets["children"].spend()
        run_id = self.recorder.header.run_id
        task.run_id, task.parent_run_id = f"{run_id}.{tool_call.call.id}.{self.uncounted_children}", run_id
        task.level, self.uncounted_children = int(depth.used) + 1, self.uncounted_children + 1
        if depth.ceiling is not None:
            task.max_amounts["depth"] = depth.ceiling
        self._emit(ChildStarted, task.run_id, task.spec.name)
        return task

    def add_result(self, tool_call: ToolCallRun, task: ChildTask, result: Result, now: float) -> None:
        """Add the result of a child run to the tool call that started it."""
        tool_call.children = (*tool_call.children, result)
        if not self.recorder.ended:
            self.recorder.at = now
            self._emit(ChildEnded, task.run_id, task.spec.name, result.stop.value)

    def _emit(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        self.recorder.other_event_count += 1
        self.recorder.emit(kind, *fields)

    def build_recorder(self, task: ChildTask, plan: Plan) -> Recorder:
        """Return the recorder of a child run, with its own sinks and those of its parent."""
        own = task.spec.sinks
        inherited = [sink for sink in self.recorder.sinks if sink not in own]
        return Recorder(plan.header, (*own, *inherited), task.spec.events_kept)

    def build_unstarted_result(self, task: ChildTask, now: float, not_started: End) -> Result:
        """Return the result of a child run that did not start. It has the events of every run, and no turns."""
        plan = replace(task.build_plan(0.0, now), not_started=not_started)
        player = LoopPlayer(plan, self.build_recorder(task, plan))
        player.start()
        assert player.result is not None, "a run that cannot start has no effects"
        return player.result

    def _find_shared_budget(self, task: ChildTask, until: Deadline) -> TurnBudget | None:
        if task.spec.mode is Mode.INDEPENDENT:
            return self.tree_budget
        if task.pool is None:
            return self.shared_budget
        if self._pool is None or self._pool[0] is not task.pool:
            ceilings = {**dict.fromkeys(CLAIMED_BUDGETS), **task.pool}
            self._pool = task.pool, TurnBudget.of(ceilings, until, prefix="shared_", parent=self.shared_budget)
        return self._pool[1]


def _find_money_budget(task: ChildTask, shared_budget: TurnBudget | None) -> IterationBudget | None:
    """Return the money limit that a child run inherits, or None."""
    if "usd" in task.max_amounts:
        return IterationBudget("cost_usd", task.max_amounts["usd"], unit=Unit.USD)
    return None if shared_budget is None else shared_budget.budgets["usd"]
