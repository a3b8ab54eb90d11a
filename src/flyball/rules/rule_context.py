"""The context that rules see of a run. A field is computed when a rule first reads it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from .._internal.jsonable import to_jsonable
from ..outcome import BaseOutcome, Failure, Success, Timeout
from ..progress import Progress
from ..request import Call
from .view import Lazy, Table, View, get_field
from .vocabulary import BUDGETS, READINGS


class RuleEvent:
    """A custom event, as the subject of `on_event` rules."""

    __slots__ = ("data", "name")

    def __init__(self, name: str, data: Mapping[str, Any]) -> None:
        self.name = name
        self.data = data


class RuleContext(View):
    """View of a run at one moment, with the subject of that moment.

    The subject is a call, an outcome, an event or None. Most rules read a number or two in each turn. So numbers and
    names are looked up by their whole dotted name; tables are built only for fields that have parts.
    """

    __slots__ = ("changes", "progress", "subject")

    def __init__(self, progress: Progress, about: object, changes: dict[str, object] | None = None) -> None:
        self.progress = progress
        self.subject = about
        self.changes = {} if changes is None else changes
        """State that the rules of this moment have set so far. A value of None means deleted."""

    def set_state(self, key: str, value: object) -> None:
        """Make a state change visible to the next rule."""
        self.changes[key] = value
        for name in [name for name in self if name == "context" or name.startswith("context.state")]:
            del self[name]

    def __missing__(self, name: str) -> object:
        read = _FIELD_READERS.get(name)
        if read is not None:
            self[name] = value = read(self)
            return value
        if name == "context":
            self[name] = context = Table(_build_parts(self), "context")
            return context
        return super().__missing__(name)


_RESERVED_BUDGETS = frozenset({"tokens", "usd"})
"""Budgets that keep a reserve for the final report."""


class _Budget:
    """Readings of one budget. Work cannot use the reserve for the report."""

    __slots__ = ("_name", "_reserved")

    def __init__(self, name: str) -> None:
        self._name = name
        self._reserved = name in _RESERVED_BUDGETS

    def _work_ceiling(self, context: RuleContext) -> int | None:
        """Return the units that work may use. None means no ceiling."""
        envelope = context.progress.envelope
        budget = envelope.budgets.get(self._name)
        if budget is None or budget.ceiling is None:
            return None
        return budget.ceiling - envelope.reserved(self._name) if self._reserved else budget.ceiling

    def used(self, context: RuleContext) -> object:
        budget = context.progress.envelope.budgets.get(self._name)
        return None if budget is None else budget.unit.outer(budget.used)

    def ceiling(self, context: RuleContext) -> object:
        budget = context.progress.envelope.budgets.get(self._name)
        return None if budget is None else budget.unit.outer(budget.ceiling)

    def remaining(self, context: RuleContext) -> object:
        ceiling = self._work_ceiling(context)
        if ceiling is None:
            return None
        budget = context.progress.envelope.budgets[self._name]
        return budget.unit.outer(max(0, ceiling - budget.used))

    def ratio(self, context: RuleContext) -> float:
        envelope = context.progress.envelope
        budget = envelope.budgets.get(self._name)
        if budget is None or (ceiling := budget.ceiling) is None:
            return 0.0
        if self._reserved:
            ceiling -= envelope.reserved(self._name)
        return budget.used / ceiling if ceiling > 0 else 1.0


class _Time:
    """Readings of the time for work, in seconds."""

    __slots__ = ()

    def used(self, context: RuleContext) -> float:
        return _elapsed_seconds(context.progress)

    def ceiling(self, context: RuleContext) -> float | None:
        total = _elapsed_seconds(context.progress) + context.progress.envelope.remaining_s()
        return None if total == inf else total

    def remaining(self, context: RuleContext) -> float | None:
        remaining = context.progress.envelope.remaining_s()
        return None if remaining == inf else remaining

    def ratio(self, context: RuleContext) -> float:
        envelope = context.progress.envelope
        remaining = max(0.0, envelope.work_at - envelope.clock.now())
        if remaining == inf:
            return 0.0
        total = max(remaining, envelope.seconds + envelope.postponed_s - envelope.reserve_s)
        return (total - remaining) / total if total > 0 else 1.0


def _build_readings(name: str) -> dict[str, Callable[[RuleContext], object]]:
    source = _Time() if name == "seconds" else _Budget(name)
    return {reading: getattr(source, reading) for reading in READINGS}


def _elapsed_seconds(progress: Progress) -> float:
    envelope = progress.envelope
    return max(0.0, envelope.seconds + envelope.postponed_s - envelope.reserve_s - envelope.remaining_s())


def _context_usage(context: RuleContext) -> float:
    max_tokens = context.progress.envelope.context_tokens
    return context.progress.input_tokens / max_tokens if max_tokens else 0.0


def _count_calls(context: RuleContext) -> int:
    return len(context.progress.results)


def _count_all_failures(context: RuleContext) -> int:
    return len(_list_failures(context.progress))


def _tool_name(context: RuleContext) -> object:
    about = context.subject
    if isinstance(about, BaseOutcome):
        return about.tool
    return about.name if isinstance(about, Call) else get_field(context["context.result"], "tool_name")


def _read_forecast(context: RuleContext, field: str) -> object:
    return getattr(context.progress.forecast, field, None)


def _characters(context: RuleContext) -> int | None:
    about = context.subject
    if not isinstance(about, BaseOutcome):
        return None
    return len(about.text_without_note) if about.artifact is None else about.artifact.size


_FIELD_READERS: dict[str, Callable[[RuleContext], object]] = {
    "context.turn.number": lambda context: context.progress.number,
    "context.turn.iteration_count": lambda context: context.progress.envelope.budgets["turns"].used,
    "context.turn.max_iterations": lambda context: context.progress.envelope.budgets["turns"].ceiling,
    "context.turn.token_usage": _Budget("tokens").ratio,
    "context.turn.tokens": _Budget("tokens").used,
    "context.turn.context_usage": _context_usage,
    "context.forecast.limit": lambda context: _read_forecast(context, "limit"),
    "context.forecast.turns_left": lambda context: _read_forecast(context, "turns_left"),
    "context.run.elapsed": lambda context: _elapsed_seconds(context.progress),
    "context.run.remaining": lambda context: context.progress.envelope.remaining_s(),
    "context.history.total_tool_calls": _count_calls,
    "context.history.tool_count": _count_calls,
    "context.history.total_failures": _count_all_failures,
    "context.history.failure_count": _count_all_failures,
    "context.history.completed": lambda context: Table(context.progress.successes, "context.history.completed"),
    "context.history.failed": lambda context: Table(_count_failures(context.progress), "context.history.failed"),
    "context.result.tool_name": _tool_name,
    "context.result.characters": _characters,
    **{f"context.budget.{name}.{reading}": read for name in BUDGETS for reading, read in _build_readings(name).items()},
}
"""Readers of fields that need no tables: numbers, and fields that helpers use."""


def _build_parts(context: RuleContext) -> dict[str, object]:
    """Return the lazy tables for fields without a reader, and for whole parts."""
    progress, about = context.progress, context.subject
    parts: dict[str, object] = {
        "run": Lazy(lambda: _run(progress)),
        "history": Lazy(lambda: _history(progress)),
        "call": Lazy(lambda: _call(about)),
        "result": Lazy(lambda: _result(about)),
        "event": Lazy(lambda: _event(about)),
        "state": Lazy(lambda: _read_state(context)),
        "user": Lazy(lambda: _read_identity(progress, "user")),
        "project": Lazy(lambda: _read_identity(progress, "project")),
        "turn": Lazy(lambda: _read_fields(context, "context.turn.")),
        "forecast": Lazy(lambda: _read_fields(context, "context.forecast.")),
    }
    names = dict.fromkeys([*BUDGETS, *progress.envelope.budgets])
    parts["budget"] = {name: Lazy(lambda name=name: _read_budget(context, name)) for name in names}
    return parts


def _read_fields(context: RuleContext, prefix: str) -> dict[str, object]:
    return {
        name.removeprefix(prefix): read(context) for name, read in _FIELD_READERS.items() if name.startswith(prefix)
    }


def _read_budget(context: RuleContext, name: str) -> dict[str, object]:
    """Return the readings of any budget, also of one like `calls.search`."""
    return {reading: read(context) for reading, read in _build_readings(name).items()}


def _read_state(context: RuleContext) -> dict[str, Any]:
    deleted = {key for key, value in context.changes.items() if value is None}
    state = {**context.progress.state, **context.changes}
    return to_jsonable({key: value for key, value in state.items() if key not in deleted})


def _run(progress: Progress) -> dict[str, Any]:
    return {
        "id": progress.run_id,
        "mode": str(progress.metadata.get("mode", "")),
        "agent": progress.agent,
        "metadata": to_jsonable(dict(progress.metadata)),
        "elapsed": _elapsed_seconds(progress),
        "remaining": progress.envelope.remaining_s(),
    }


def _list_failures(progress: Progress) -> list[Failure | Timeout]:
    """Return the calls that failed or timed out. A denied or cancelled call is no failure."""
    return [outcome for outcome in progress.results if isinstance(outcome, Failure | Timeout)]


def _count_failures(progress: Progress) -> dict[str, int]:
    """Count failures and timeouts by tool."""
    return dict(Counter([outcome.tool for outcome in _list_failures(progress)]))


def _history(progress: Progress) -> dict[str, Any]:
    results = progress.results
    return {
        "messages": Lazy(
            lambda: [
                {"role": message.role.value, "type": message.type.value, "content": message.content}
                for message in progress.messages
            ]
        ),
        "tools": Lazy(lambda: [outcome.tool for outcome in results]),
        "failures": Lazy(
            lambda: [{"tool": outcome.tool, "error": outcome.text} for outcome in _list_failures(progress)]
        ),
        "completed": dict(progress.successes),
        "failed": _count_failures(progress),
        "total_tool_calls": len(results),
        "tool_count": len(results),
        "total_failures": len(_list_failures(progress)),
        "failure_count": len(_list_failures(progress)),
    }


def _call(about: object) -> dict[str, Any]:
    if not isinstance(about, Call):
        return {}
    return {"tool_name": about.name, "arguments": _parse_arguments(about)}


def _parse_arguments(call: Call) -> Any:
    """Return the call's arguments. Empty if they are not valid JSON."""
    if not isinstance(call.arguments, str):
        return to_jsonable(dict(call.arguments))
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}


def _result(about: object) -> dict[str, Any] | None:
    if isinstance(about, Call):
        return {"tool_name": about.name}
    if not isinstance(about, BaseOutcome):
        return None
    return {
        "tool_name": about.tool,
        "success": about.ok,
        "result": Lazy(lambda: to_jsonable(about.value) if isinstance(about, Success) else None),
        "error": None if about.ok else about.text,
        "duration_ms": about.seconds * 1_000,
        "characters": len(about.text_without_note) if about.artifact is None else about.artifact.size,
    }


def _event(about: object) -> dict[str, Any]:
    """Return the event of a moment. `type` and `payload` are other names of `name` and `data`."""
    name, data = _describe_event(about)
    named = {} if name is None else {"name": name, "type": name}
    return {**named, "data": data, "payload": data}


def _describe_event(about: object) -> tuple[str | None, dict[str, Any]]:
    match about:
        case RuleEvent():
            return about.name, dict(about.data)
        case str():
            return str(about), {}
        case Call():
            return "tool.call.pending", _call(about)
        case Success():
            return "tool.call.success", {"tool_name": about.tool}
        case Failure() | Timeout():
            name = "tool.call.timeout" if isinstance(about, Timeout) else "tool.call.failure"
            return name, {"tool_name": about.tool, "error": about.text, "error_message": about.text}
        case _:
            return None, {}


def _read_identity(progress: Progress, name: str) -> dict[str, Any]:
    """Return the user or the project of the metadata: a table, or a text that is its id."""
    value: Any = progress.metadata.get(name)
    given: dict[str, Any] = {"id": value} if isinstance(value, str) else {}
    if isinstance(value, Mapping):
        given = to_jsonable(dict(value))  # pyright: ignore[reportUnknownArgumentType]
    return {"id": "", "settings": {}, **given}
