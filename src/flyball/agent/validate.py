"""Checks of the options of an agent, of a task, and of a result to resume."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._internal import validation
from ..budget.limits import Limits, RunKind
from ..budget.price import Unpriced
from ..budget.registry import IterationBudgetRegistry
from ..errors import ConfigError, UsageError
from ..message import Message, MessageType, Role
from ..result import Result, Stop
from ..runtime import PausedRun
from ..steadiness import Duplicates, Reflection, Thresholds
from ..tools.excerpt import MIN_CHARACTERS, check_excerpt
from ..wire import normalize
from .options import AgentOptions

Task = str | Message | Mapping[str, Any] | Sequence[str | Message | Mapping[str, Any]]
"""Task of a run: a text, or messages that end with the task."""


def check_function(where: str, value: object) -> None:
    """Raise ConfigError unless the value is a sync function. The coroutine of an async one would count as true."""
    call = getattr(value, "__call__", None)  # noqa: B004
    if not callable(value) or inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call):
        raise ConfigError(where, value, "a function that is not async")


def get_pause(result: Result) -> PausedRun:
    """Return the pause of a paused result. Raise if it cannot be resumed."""
    if not isinstance(result, Result):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("resume", result, "the Result of a paused run")
    if isinstance(result.pause, PausedRun):
        return result.pause
    if result.stop is Stop.PAUSED:
        raise UsageError(
            "a copy of a paused result cannot be resumed: pass the Result that the run returned in this process, "
            "or use a store and resume the run by its id"
        )
    raise UsageError(f"only a paused run can be resumed, and this run is {result.stop.value}: start a new run")


def normalize_task(task: Task, run_id: str, at: float) -> list[Message]:
    """Return the messages of a task."""
    if isinstance(task, str) and task.strip():
        return [Message(run_id, 0, at, MessageType.TEXT, Role.USER, task)]
    messages = (
        []
        if isinstance(task, str)
        else normalize([task] if isinstance(task, Message | Mapping) else task, run=run_id, at=at)
    )
    if not messages:
        raise ConfigError("run, task", task, "a non-empty string, or messages that end with the task")
    return messages


def check_agent(options: AgentOptions) -> None:
    """Raise ConfigError or UsageError for the first invalid option of an agent."""
    validation.check_type("agent, limits", options.limits, Limits)
    validation.check_text("agent, name", options.name)
    validation.check_type("agent, description", options.description, str)
    _check_optional("instructions", options.instructions, str)
    validation.check_type("agent, metadata", options.metadata, Mapping)
    validation.check_type("agent, models", options.models, Mapping)
    validation.check_optional_int("agent, max_output_tokens", options.max_output_tokens)
    validation.check_int("agent, events_kept", options.events_kept)
    validation.check_optional_int(
        "agent, max_result_characters", options.max_result_characters, min_value=MIN_CHARACTERS
    )
    if options.excerpt is not None:
        check_excerpt("agent, excerpt", options.excerpt)
    validation.parse_enum("agent, kind", options.kind, RunKind)
    validation.parse_enum("agent, unpriced", options.unpriced, Unpriced)
    validation.parse_timeout("agent, approver_seconds", options.approver_seconds)
    for name, value in (
        ("tools", options.tools), ("children", options.children), ("hooks", options.hooks), ("sinks", options.sinks),
        ("fallback_models", options.fallback_models),
    ):  # fmt: skip
        if isinstance(value, str) or not isinstance(value, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"agent, {name}", value, "a list")
    _check_behaviour(options)
    _check_functions(options)
    _check_optional("registry", options.registry, IterationBudgetRegistry)
    if options.registry is not None and options.settings is not None:
        raise UsageError("pass settings= or registry= to Agent, not both: a registry has its own settings")


def _check_behaviour(options: AgentOptions) -> None:
    validation.check_type("agent, grace", options.grace, bool)
    validation.check_type("agent, recall", options.recall, bool)
    validation.check_type("agent, announce_limits", options.announce_limits, bool)
    validation.check_type("agent, check_report", options.check_report, bool)
    validation.check_type("agent, background_children", options.background_children, bool)
    if options.background_children and not options.children:
        raise UsageError("background_children=True needs children=[...]")
    validation.check_type("agent, single_turn", options.single_turn, bool)
    validation.check_type("agent, reload_rules", options.reload_rules, bool)
    if options.on_exhausted not in ("grace", "ask"):
        raise ConfigError("agent, on_exhausted", options.on_exhausted, "one of grace, ask")
    validation.parse_enum("agent, duplicates", options.duplicates, Duplicates)
    _check_optional("repetition", options.repetition, Thresholds)
    _check_optional("reflection", options.reflection, Reflection)


def _check_functions(options: AgentOptions) -> None:
    if options.compact is not None and not callable(options.compact):
        raise ConfigError("agent, compact", options.compact, "a function that takes messages and returns a string")
    if options.approver is not None and not callable(options.approver):
        raise ConfigError("agent, approver", options.approver, "a function that takes a Question, sync or async")
    if options.should_continue is not None:
        check_function("agent, should_continue", options.should_continue)
    if callable(options.completion):
        check_function("agent, completion", options.completion)
    for hook in options.hooks:
        check_function("agent, hooks", hook)
    for sink in options.sinks:
        check_function("agent, sinks", sink)


def _check_optional(name: str, value: object, kind: type) -> None:
    if value is not None:
        validation.check_type(f"agent, {name}", value, kind)
