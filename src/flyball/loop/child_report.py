"""Results of child runs as text for the parent's model, and as rows for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..result import Result
from .child_task import ChildTask

_MAX_CHARACTERS = 12_000
"""Characters of all results together, as of any tool's result."""
_HEADER_CHARACTERS = 500
"""Characters reserved for the header of each child run, which rarely needs as many."""


def format_results(tasks: Sequence[ChildTask], results: Sequence[Result]) -> str:
    """Return the text for the parent's model. Each child run gets an equal share of the characters."""
    max_characters = max(_HEADER_CHARACTERS, _MAX_CHARACTERS // len(results) - _HEADER_CHARACTERS)
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


def to_row(task: ChildTask, result: Result) -> dict[str, Any]:
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
