"""Tool call that delegates to child runs: one outcome for one or several runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..budget.run_budget import TurnBudget
from ..errors import RemoteRefused
from ..loop.child_task import ChildTask
from ..loop.children import distinct_tasks
from ..outcome import Denied, Failure, Reason, Success
from ..request import Call
from ..result import Result, Stop
from ..tools.call import ToolCallRun
from ..tools.definition import Tool
from ..tools.excerpt import MAX_CHARACTERS

_STOP_ORDER = list(Stop)
_HEADER_CHARACTERS = 500
"""Characters reserved for the header of each child run, which rarely needs as many."""


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
        header, text = self._outcome_fields(now), _format_results(self.tasks, results)
        if all(result.completed for result in results):
            value = [_to_row(task, result) for task, result in zip(self.tasks, results, strict=True)]
            return self.close(Success(content=text, value=value, **header))
        if all(_is_refused(result) for result in results):
            return self.close(Denied(reason=Reason.REFUSED, message=text, **header))
        kind = min((result.stop for result in results), key=_STOP_ORDER.index)
        return self.close(Failure(kind=kind.value, error=text, **header))

    def _outcome_fields(self, now: float) -> dict[str, Any]:
        ended = (task.own_result for task in distinct_tasks(self.tasks))
        return {**super()._outcome_fields(now), "children": tuple(result for result in ended if result is not None)}


def _is_refused(result: Result) -> bool:
    """Return True if a remote agent refused the run, so that nothing happened."""
    return result.error is not None and result.error.get("code") == RemoteRefused.code


def _format_results(tasks: Sequence[ChildTask], results: Sequence[Result]) -> str:
    """Return the text for the parent's model. Each child run gets an equal share of the characters."""
    max_characters = max(_HEADER_CHARACTERS, MAX_CHARACTERS // len(results) - _HEADER_CHARACTERS)
    texts = [_format_result(task, result, max_characters) for task, result in zip(tasks, results, strict=True)]
    if len(texts) == 1:
        return texts[0]
    return "\n\n".join(f"[{n}] {text}" for n, text in enumerate(texts, 1))


def _format_result(task: ChildTask, result: Result, max_characters: int) -> str:
    """Return why a child run ended, its calls, and its text."""
    flags = f" ({', '.join(result.flags)})" if result.flags else ""
    calls = _format_calls(result)
    made = f" Its calls: {calls}." if calls else ""
    head = _truncate(f"{task.spec.name}: {result.stop.value}{flags}. {result.explain()}{made}", 2 * _HEADER_CHARACTERS)
    return f"{head}\n{_truncate(result.text.strip() or 'It returned no text.', max_characters)}"


def _truncate(text: str, max_characters: int) -> str:
    """Return at most so many characters. A remote agent may write long texts where ours are short."""
    return (
        text
        if len(text) <= max_characters
        else f"{text[:max_characters]}… ({len(text)} characters; the rest is not shown)"
    )


def _format_calls(result: Result) -> str:
    """Return how often each tool was called, and how often it failed."""
    made = Counter(outcome.tool for outcome in result.tool_results)
    failed = Counter(outcome.tool for outcome in result.tool_results if not outcome.ok)
    rows = [f"{tool} {n}" + (f" ({failed[tool]} failed)" if failed[tool] else "") for tool, n in made.items()]
    return ", ".join(rows[:10]) + (", …" if len(rows) > 10 else "")


def _to_row(task: ChildTask, result: Result) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "child": task.spec.name,
        "run_id": result.run_id,
        "stop": result.stop.value,
        "flags": list(result.flags),
        "text": result.text,
        "seconds": result.seconds,
        "budgets": {name: [one.used, one.ceiling] for name, one in result.budgets.items() if one.used},
    }
