"""A call that is handed to children: one outcome, made of one or several runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..budget.run_budget import TurnBudget
from ..errors import RemoteRefused
from ..loop.child_task import ChildTask
from ..loop.children import own_tasks
from ..outcome import Denied, Failure, Reason, Success
from ..request import Call
from ..result import Result, Stop
from ..tools.call import ToolCallRun
from ..tools.excerpt import MOST_CHARACTERS
from ..tools.tool import Tool

_ORDER = list(Stop)
_FRAME = 500
"""Characters that are kept free for what is told of a child beside its words, which seldom takes as many."""


class ChildAct(ToolCallRun):
    """A call of `delegate` that was admitted. Each of its tasks is a run, and has a result when it is closed."""

    __slots__ = ("counts", "tasks")

    def __init__(
        self, call: Call, tool: Tool, values: dict[str, Any], tasks: Sequence[ChildTask], envelope: TurnBudget | None
    ) -> None:
        super().__init__(call, tool, values, math.inf, envelope)
        self.tasks: Sequence[ChildTask] = tasks
        self.counts = {"tool_calls": 1, "children": self.size}

    @property
    def size(self) -> int:
        """How many children it has: tasks that join in an equal one are none."""
        return len(own_tasks(self.tasks))

    @property
    def whole(self) -> bool:
        """Whether all its tasks have come to their results."""
        return all(task.result is not None for task in self.tasks)

    def end(self, now: float) -> bool:
        """Close it, as all its children have ended: done if all of them completed."""
        results = [task.result for task in self.tasks if task.result is not None]
        assert len(results) == len(self.tasks), "every task has its result"
        header, text = self._header(now), _told(self.tasks, results)
        if all(result.completed for result in results):
            value = [_row(task, result) for task, result in zip(self.tasks, results, strict=True)]
            return self.gate.close(Success(content=text, value=value, **header))
        if all(_refused(result) for result in results):
            return self.gate.close(Denied(reason=Reason.REFUSED, message=text, **header))
        kind = min((result.stop for result in results), key=_ORDER.index)
        return self.gate.close(Failure(kind=kind.value, error=text, **header))

    def _header(self, now: float) -> dict[str, Any]:
        ended = (task.ended for task in own_tasks(self.tasks))
        return {**super()._header(now), "children": tuple(result for result in ended if result is not None)}


def _refused(result: Result) -> bool:
    """Whether a remote agent said no, so that nothing was run."""
    return result.error is not None and result.error.get("code") == RemoteRefused.code


def _told(tasks: Sequence[ChildTask], results: Sequence[Result]) -> str:
    """What the parent's model reads of them, each with its share of the room."""
    room = max(_FRAME, MOST_CHARACTERS // len(results) - _FRAME)
    accounts = [_account(task, result, room) for task, result in zip(tasks, results, strict=True)]
    if len(accounts) == 1:
        return accounts[0]
    return "\n\n".join(f"[{n}] {account}" for n, account in enumerate(accounts, 1))


def _account(task: ChildTask, result: Result, room: int) -> str:
    """Why a child ended, what it used of what, what it did, and its words."""
    flags = f" ({', '.join(result.flags)})" if result.flags else ""
    calls = _calls(result)
    made = f" Its calls: {calls}." if calls else ""
    head = _cut(f"{task.edge.name}: {result.stop.value}{flags}. {result.explain()}{made}", 2 * _FRAME)
    return f"{head}\n{_cut(result.text.strip() or 'It said nothing.', room)}"


def _cut(text: str, most: int) -> str:
    """A text as long as it may be: a remote agent may write whatever it likes, also where ours are brief."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters; the rest is not shown)"


def _calls(result: Result) -> str:
    """A short trace: how often each tool was called, and how often that did not help."""
    made = Counter(outcome.tool for outcome in result.tool_results)
    failed = Counter(outcome.tool for outcome in result.tool_results if not outcome.ok)
    rows = [f"{tool} {n}" + (f" ({failed[tool]} failed)" if failed[tool] else "") for tool, n in made.items()]
    return ", ".join(rows[:10]) + (", …" if len(rows) > 10 else "")


def _row(task: ChildTask, result: Result) -> dict[str, Any]:
    """The same for programs."""
    return {
        "child": task.edge.name,
        "run_id": result.run_id,
        "stop": result.stop.value,
        "flags": list(result.flags),
        "text": result.text,
        "seconds": result.seconds,
        "budgets": {name: [one.used, one.ceiling] for name, one in result.budgets.items() if one.used},
    }
