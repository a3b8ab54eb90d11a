"""Tool call that delegates to child runs: one outcome for one or several runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..budget.run_budget import TurnBudget
from ..errors import RemoteRefused
from ..loop.child_report import format_results, to_row
from ..loop.child_task import ChildTask
from ..loop.children import distinct_tasks
from ..outcome import Denied, Failure, Reason, Success
from ..request import Call
from ..result import Result, Stop
from ..tools.call import ToolCallRun
from ..tools.definition import Tool

_STOP_ORDER = list(Stop)


class ChildCallRun(ToolCallRun):
    """Admitted call of `delegate`. Each of its tasks is a child run, and has a result when the call is closed."""

    __slots__ = ("counts", "tasks")

    def __init__(
        self, call: Call, tool: Tool, values: dict[str, Any], tasks: Sequence[ChildTask], envelope: TurnBudget | None
    ) -> None:
        super().__init__(call, tool, values, math.inf, envelope)
        self.tasks: Sequence[ChildTask] = tasks
        self.counts = {"tool_calls": 1, "children": self.child_count}

    @property
    def child_count(self) -> int:
        """Number of child runs. Tasks that share the run of an equal task do not count."""
        return len(distinct_tasks(self.tasks))

    @property
    def is_complete(self) -> bool:
        """True if all tasks have their results."""
        return all(task.result is not None for task in self.tasks)

    def close_finished(self, now: float) -> bool:
        """Close the call after all child runs have ended. It is done if all of them completed."""
        results = [task.result for task in self.tasks if task.result is not None]
        assert len(results) == len(self.tasks), "every task has its result"
        header, text = self._outcome_fields(now), format_results(self.tasks, results)
        if all(result.completed for result in results):
            value = [to_row(task, result) for task, result in zip(self.tasks, results, strict=True)]
            return self.close(Success(content=text, value=value, **header))
        if all(_is_refused(result) for result in results):
            return self.close(Denied(reason=Reason.REFUSED, message=text, **header))
        kind = min((result.stop for result in results), key=_STOP_ORDER.index)
        return self.close(Failure(kind=kind.value, error=text, **header))

    def _outcome_fields(self, now: float) -> dict[str, Any]:
        ended = (task.own_result for task in distinct_tasks(self.tasks))
        return {**super()._outcome_fields(now), "children": tuple(result for result in ended if result is not None)}


class BackgroundCallRun(ChildCallRun):
    """Call of `delegate` whose child runs work in the background. It is done when they have started."""

    __slots__ = ()

    in_background = True

    def close_started(self, now: float) -> bool:
        """Close the call with the handles of its child runs."""
        rows = [
            {"child": task.spec.name, "handle": task.handle, "run_id": task.run_id}
            for task in distinct_tasks(self.tasks)
        ]
        lines = [f"- {row['handle']}: {row['child']}" for row in rows]
        text = "\n".join([f"{_STARTED}", *lines])
        return self.close(Success(content=text, value=rows, **super()._outcome_fields(now)))


_STARTED = (
    "Started in the background. A message will tell each result; until then do other work. The tool collect waits for "
    "results. The handles:"
)


def _is_refused(result: Result) -> bool:
    """Return True if a remote agent refused the run, so that nothing happened."""
    return result.error is not None and result.error.get("code") == RemoteRefused.code
