"""The words of rules: what `context` has, and the helpers; so that a misspelt one is found when a file is read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from .view import Table, View
from .vocabulary import Helper, Vocabulary

BUDGETS = (
    "turns", "tool_calls", "reflections", "nudges", "retries", "tokens", "usd", "children", "depth", "seconds",
)  # fmt: skip
"""What every run counts; `turns` is always the run's own, and `seconds` is its time for work."""
READING = ("used", "ceiling", "remaining", "ratio")

_FIELDS = {
    "turn": ("number", "iteration_count", "max_iterations", "token_usage", "context_usage"),
    "run": ("id", "mode", "agent", "metadata.*", "elapsed", "remaining"),
    "history": ("messages", "tools", "failures", "completed.*", "failed.*", "total_tool_calls", "total_failures"),
    "call": ("tool_name", "arguments.*"),
    "result": ("tool_name", "success", "result.*", "error", "duration_ms", "characters"),
    "event": ("name", "data.*"),
    "state": ("*",),
    "user": ("*",),
    "project": ("*",),
    "budget": tuple(f"{name}.{reading}" for name in BUDGETS for reading in READING),
}
FIELDS = tuple(f"context.{part}.{field}" for part, fields in _FIELDS.items() for field in fields)


def vocabulary(params: Collection[str] = ()) -> Vocabulary:
    """The names that the expressions of one rule may use; `params` are its own."""
    own = tuple(f"params.{name}" for name in params)
    return Vocabulary({"context", *(["params"] if params else [])}, (*FIELDS, *own), _HELPERS)


def _tool_completed(view: View, name: str) -> bool:
    return _times(view, "context.history.completed", name) > 0


def _tool_failed(view: View, name: str) -> bool:
    return _times(view, "context.history.failed", name) > 0


def _failure_count(view: View, name: str) -> int:
    return _times(view, "context.history.failed", name)


def _times(view: View, table: str, name: str) -> int:
    counts = cast("Table", view[table])
    return cast("int", counts[name]) if name in counts else 0


def _context_above(view: View, share: Any) -> bool:
    return cast("float", view["context.turn.context_usage"]) > share


def _messages_above(view: View, count: Any) -> bool:
    return len(cast("list[object]", view["context.history.messages"])) > count


def _budget(view: View, name: str) -> object:
    return cast("Table", view["context.budget"])[name]


_HELPERS = {
    "tool_completed": Helper(_tool_completed),
    "tool_failed": Helper(_tool_failed),
    "failure_count": Helper(_failure_count),
    "context_above_threshold": Helper(_context_above),
    "message_count_above": Helper(_messages_above),
    "budget": Helper(_budget, choices=BUDGETS, fields=READING),
}
