"""Child runs, as the parent's loop sees them: before they start, and after they have ended.

What a child may use of its parent's budgets is reserved there before it starts, and settled when it has ended. In
between only drivers count. So a replay of the parent decides the same, in whatever order its children ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..event import ChildEnded, ChildStarted
from ..outcome import Outcome, Success
from ..result import Result
from .child_task import CARVED_BUDGETS, SHARED_BUDGETS, ChildTask, Mode
from .plan import Prepared
from .state import RunState


def start_children(run: RunState, tool_calls: Sequence[Prepared]) -> None:
    """Give child runs their ids, record that they start, and reserve what they share."""
    plan, depth = run.plan, run.budget.budgets["depth"]
    sharing: list[ChildTask] = []
    _number_duplicates([task for call in tool_calls for task in distinct_tasks(call.tasks)])
    for call in tool_calls:
        for n, task in enumerate(call.tasks):
            if task.duplicate_of is not None:
                task.run_id = task.duplicate_of.run_id
                continue
            task.run_id = f"{plan.run_id}.{call.call.id}" + (f".{n}" if len(call.tasks) > 1 else "")
            task.parent_run_id, task.level = plan.run_id, plan.level + 1
            if depth.ceiling is not None:
                task.max_amounts["depth"] = depth.ceiling
            if task.spec.mode is Mode.SHARED:
                sharing.append(task)
            run.recorder.emit(ChildStarted, task.run_id, task.spec.name)
    if sharing:
        _reserve_pool(run, sharing)


def _number_duplicates(tasks: Sequence[ChildTask]) -> None:
    """Number equal tasks, so that their child runs know of each other."""
    alike: dict[object, list[ChildTask]] = {}
    for task in tasks:
        alike.setdefault(task.duplicate_key, []).append(task)
    for equal in alike.values():
        for n, task in enumerate(equal, 1):
            task.position = n, len(equal)


def _reserve_pool(run: RunState, tasks: Sequence[ChildTask]) -> None:
    """Reserve everything that is left for all of them together. The first task holds the reservation."""
    pool: dict[str, int | None] = {}
    for name in SHARED_BUDGETS:
        budget = run.budget.budgets[name]
        pool[name] = None if budget.ceiling is None else int(budget.available)
        if pool[name]:
            tasks[0].reserved[name] = budget.hold(int(budget.available))
    for task in tasks:
        task.pool = pool


def settle_children(run: RunState, tool_calls: Sequence[Prepared], outcomes: Iterable[Outcome]) -> None:
    """Record the results of child runs, and settle their usage."""
    shared: list[tuple[ChildTask, Result]] = []
    for call, outcome in zip(tool_calls, outcomes, strict=True):
        if call.in_background and run.background is not None and isinstance(outcome, Success):
            run.background.start(call.tasks)
            continue
        run.children = [*run.children, *outcome.children]
        if not call.tasks and outcome.children:  # the tool started them itself, and the driver counted them
            run.budget.budgets["children"].increment(len(outcome.children))
            continue
        for task, result in zip(distinct_tasks(call.tasks), outcome.children, strict=True):
            run.recorder.emit(ChildEnded, task.run_id, task.spec.name, result.stop.value)
            if task.spec.mode is Mode.SHARED:
                shared.append((task, result))
            elif task.spec.mode is Mode.CARVED:
                _settle_reserved(run, task, CARVED_BUDGETS, [result])
    if shared:
        _settle_reserved(run, shared[0][0], SHARED_BUDGETS, [result for _, result in shared])


def end_child(run: RunState, task: ChildTask, result: Result) -> None:
    """Record the end of a child run in the background, and settle what it used."""
    run.recorder.emit(ChildEnded, task.run_id, task.spec.name, result.stop.value)
    if task.spec.mode is Mode.CARVED:
        _settle_reserved(run, task, CARVED_BUDGETS, [result])


def distinct_tasks(tasks: Sequence[ChildTask]) -> list[ChildTask]:
    """Return the tasks that are runs of their own."""
    return [task for task in tasks if task.duplicate_of is None]


def _settle_reserved(run: RunState, holder: ChildTask, names: Iterable[str], results: Sequence[Result]) -> None:
    """Settle reservations to the actual use. A crashed child run counts with its whole reservation."""
    for name in names:
        hold = holder.reserved.get(name)
        used = [_used_amount(result, name) for result in results]
        known = sum(amount for amount in used if amount is not None)
        if hold is not None:
            hold.settle(known if None not in used else max(known, hold.amount))
        elif known:
            run.budget.budgets[name].increment(known)


def _used_amount(result: Result, name: str) -> int | None:
    snapshot: Any = result.budgets.get(name)
    return None if snapshot is None else snapshot.used
