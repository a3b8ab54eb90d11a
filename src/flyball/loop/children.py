"""The children of a run: what the loop knows of them before they begin, and learns when they have ended.

Whatever a child may take of its parent's budgets is set aside there before it begins, and settled to the fact when it
has ended. In between only drivers count, so the parent decides the same when it is played again, whatever the order in
which its children went on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..event import ChildEnded, ChildStarted
from ..outcome import Outcome
from ..result import Result
from .child_task import POOLED, SLICED, ChildTask, Mode
from .plan import Prepared
from .state import RunState


def begin(course: RunState, acts: Sequence[Prepared]) -> None:
    """Name the children that are about to begin, tell of them, and set aside what they share."""
    plan, depth = course.plan, course.envelope.budgets["depth"]
    sharing: list[ChildTask] = []
    _tell_apart([task for act in acts for task in own_tasks(act.tasks)])
    for act in acts:
        for n, task in enumerate(act.tasks):
            if task.twin is not None:
                task.run_id = task.twin.run_id
                continue
            task.run_id = f"{plan.run_id}.{act.call.id}" + (f".{n}" if len(act.tasks) > 1 else "")
            task.parent_run_id, task.level = plan.run_id, plan.level + 1
            if depth.ceiling is not None:
                task.most["depth"] = depth.ceiling
            if task.edge.mode is Mode.SHARED:
                sharing.append(task)
            course.recorder.emit(ChildStarted, task.run_id, task.edge.name)
    if sharing:
        _pool(course, sharing)


def _tell_apart(tasks: Sequence[ChildTask]) -> None:
    """Let those with equal tasks know of each other, or they would do the same."""
    alike: dict[object, list[ChildTask]] = {}
    for task in tasks:
        alike.setdefault(task.sameness, []).append(task)
    for equal in alike.values():
        for n, task in enumerate(equal, 1):
            task.place = n, len(equal)


def _pool(course: RunState, tasks: Sequence[ChildTask]) -> None:
    """Set aside all that is left, for all of them together; the first keeps it."""
    pool: dict[str, int | None] = {}
    for name in POOLED:
        budget = course.envelope.budgets[name]
        pool[name] = None if budget.ceiling is None else int(budget.available)
        if pool[name]:
            tasks[0].slice[name] = budget.hold(int(budget.available))
    for task in tasks:
        task.pool = pool


def ended(course: RunState, acts: Sequence[Prepared], outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """The same outcomes, when what their children have come to is kept and booked."""
    made = list(outcomes)
    shared: list[tuple[ChildTask, Result]] = []
    for act, outcome in zip(acts, made, strict=True):
        course.children = [*course.children, *outcome.children]
        if not act.tasks and outcome.children:  # the tool has found them itself, and whoever made the call counted them
            course.envelope.budgets["children"].increment(len(outcome.children))
            continue
        for task, result in zip(own_tasks(act.tasks), outcome.children, strict=True):
            course.recorder.emit(ChildEnded, task.run_id, task.edge.name, result.stop.value)
            if task.edge.mode is Mode.SHARED:
                shared.append((task, result))
            elif task.edge.mode is Mode.CARVED:
                _book(course, task, SLICED, [result])
    if shared:
        _book(course, shared[0][0], POOLED, [result for _, result in shared])
    return iter(made)


def own_tasks(tasks: Sequence[ChildTask]) -> list[ChildTask]:
    """Those that are runs of their own."""
    return [task for task in tasks if task.twin is None]


def _book(course: RunState, keeper: ChildTask, names: Iterable[str], results: Sequence[Result]) -> None:
    """Settle what was set aside to what they have used; of one that crashed nobody knows, and the worst is assumed."""
    for name in names:
        hold = keeper.slice.get(name)
        used = [_used(result, name) for result in results]
        known = sum(amount for amount in used if amount is not None)
        if hold is not None:
            hold.settle(known if None not in used else max(known, hold.amount))
        elif known:
            course.envelope.budgets[name].increment(known)


def _used(result: Result, name: str) -> int | None:
    snapshot: Any = result.budgets.get(name)
    return None if snapshot is None else snapshot.used
