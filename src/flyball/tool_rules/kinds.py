"""The three kinds of tool rules, and the state that each keeps during a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from .._internal import validation
from .._internal.jsonable import parse_json_value
from .._internal.path import has_equal_value, is_path
from ..errors import ConfigError, truncate
from ..progress import Done


@runtime_checkable
class ToolRule(Protocol):
    """A tool rule, shared by all runs of an agent."""

    @property
    def name(self) -> str | None:
        """Name of the rule for messages.

        None means that its position is used.
        """
        ...

    @property
    def message(self) -> str | None:
        """Text for the model when a call is denied.

        None means the standard text.
        """
        ...

    @property
    def tools_named(self) -> Mapping[str, str]:
        """Tools that the rule names, by the key that names them."""
        ...

    def waits_for(self, tool: str) -> str | None:
        """Return the tool that must succeed before `tool`, or None."""
        ...

    def begin(self) -> RuleState:
        """Return the rule's state for a new run."""
        ...


class RuleState(Protocol):
    """State of a rule during one run.

    It must not block. If it raises, the call is denied.
    """

    def denial(self, tool: str, arguments: Mapping[str, Any], in_progress: Sequence[str]) -> str | None:
        """Return why the call is denied and what to do instead, or None.

        `in_progress` names the tools of the calls that were allowed and have not ended, in the order of the requests.
        The rule must hold whether they succeed or not.
        """
        ...

    def note(self, done: Done) -> None:
        """Record that a call succeeded."""
        ...


_MAX_QUOTED = 200
"""Maximum characters of a parameter value in a message to the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedRule:
    name: str | None = None
    message: str | None = None

    def check_texts(self) -> None:
        for key in ("name", "message"):
            if getattr(self, key) is not None:
                validation.check_text(f"tool_rule.{key}", getattr(self, key))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedTools(_NamedRule):
    """Rule that allows `max_calls` calls of some tools until another tool is called.

    The count starts once `after_tool` has succeeded, or with the run if it is None. Then the limited tools may succeed
    at most `max_calls` times in all. Further calls are denied until one of `then_require_one_of` has succeeded. Each
    success of one of those resets the count. The call that starts or resets a count is not counted.
    """

    max_calls: int
    """Maximum number of calls, at least 1: with 0, a reset would allow no call."""
    then_require_one_of: Sequence[str]
    after_tool: str | None = None
    limited_tools: Sequence[str] | None = None
    """Tools whose calls are counted. None means `after_tool` only."""

    def __post_init__(self) -> None:
        self.check_texts()
        if self.after_tool is not None:
            validation.check_text("tool_rule.after_tool", self.after_tool)
        elif self.limited_tools is None:
            raise ConfigError("tool_rule.limited_tools", None, "a list of tools, because after_tool is not set")
        validation.check_int("tool_rule.max_calls", self.max_calls, min_value=1)
        limited = _check_tools("limited_tools", [self.after_tool] if self.limited_tools is None else self.limited_tools)
        required = _check_tools("then_require_one_of", self.then_require_one_of)
        if set(required) <= set(limited):
            expected = "a tool that is not limited itself, because only such a tool can lift the limit"
            raise ConfigError("tool_rule.then_require_one_of", list(required), expected)
        object.__setattr__(self, "limited_tools", limited)
        object.__setattr__(self, "then_require_one_of", required)

    @property
    def tools_named(self) -> Mapping[str, str]:
        """Tools that the rule names, by the key that names them."""
        after = {} if self.after_tool is None else {"after_tool": self.after_tool}
        limited = _index_tools("limited_tools", self.limited_tools or ())
        return after | limited | _index_tools("then_require_one_of", self.then_require_one_of)

    def waits_for(self, tool: str) -> str | None:
        """Return None: the first calls are always allowed."""
        return None

    def begin(self) -> RuleState:
        """Return the call count of a new run."""
        return _CallCount(self)


class _CallCount:
    """Number of successful calls of limited tools since the last reset."""

    __slots__ = ("count", "counted", "lifting", "limited", "rule", "started")

    def __init__(self, rule: LimitedTools) -> None:
        self.rule = rule
        self.limited = frozenset(rule.limited_tools or ())
        self.lifting = frozenset(rule.then_require_one_of)
        self.counted = self.limited - self.lifting
        self.started = rule.after_tool is None
        self.count = 0

    def denial(self, tool: str, arguments: Mapping[str, Any], in_progress: Sequence[str]) -> str | None:
        if tool not in self.limited or self.compute_max_count(in_progress) < self.rule.max_calls:
            return None
        limited, lifting = _join_names(self.rule.limited_tools or ()), _join_names(sorted(self.lifting - self.limited))
        calls = "1 call" if self.rule.max_calls == 1 else f"{self.rule.max_calls} calls"
        used = f"{calls} of {limited} {'is' if self.rule.max_calls == 1 else 'are'} allowed before {lifting}"
        return f"{tool} may not be called now: {used}, and none is left. Call {lifting} first."

    def compute_max_count(self, in_progress: Sequence[str]) -> int:
        """Return the highest possible count after the calls in progress.

        It assumes that calls which add to the count succeed, and that calls which reset it fail.
        """
        started, count = self.started, self.count
        for tool in in_progress:
            if started:
                count += tool in self.counted
            else:
                started = tool == self.rule.after_tool
        return count

    def note(self, done: Done) -> None:
        if not self.started:
            self.started = done.tool == self.rule.after_tool
        elif done.tool in self.lifting:
            self.count = 0
        else:
            self.count += done.tool in self.counted


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirePriorTool(_NamedRule):
    """Rule that denies `tool` until a call of `require_prior_tool` has succeeded.

    With `with_parameters` (dotted paths and values), only a call with exactly these values counts.
    """

    tool: str
    require_prior_tool: str
    with_parameters: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.check_texts()
        validation.check_text("tool_rule.tool", self.tool)
        validation.check_text("tool_rule.require_prior_tool", self.require_prior_tool)
        if self.tool == self.require_prior_tool:
            raise ConfigError(
                "tool_rule.require_prior_tool", self.tool, "another tool, because a tool cannot come before itself"
            )
        if self.with_parameters is not None:
            object.__setattr__(self, "with_parameters", _check_parameters(self.with_parameters))

    @property
    def tools_named(self) -> Mapping[str, str]:
        """Tools that the rule names, by the key that names them."""
        return {"tool": self.tool, "require_prior_tool": self.require_prior_tool}

    def waits_for(self, tool: str) -> str | None:
        """Return the prior tool if this is the guarded tool."""
        return self.require_prior_tool if tool == self.tool else None

    def is_opened_by(self, done: Done) -> bool:
        """Check whether this call is the required prior call."""
        return done.tool == self.require_prior_tool and all(
            has_equal_value(done.arguments, path, value) for path, value in (self.with_parameters or {}).items()
        )

    def describe_denial(self, tool: str) -> str:
        """Return the standard text for the model."""
        parameters = " and ".join(f"{path} = {_quote(value)}" for path, value in (self.with_parameters or {}).items())
        prior = f"{self.require_prior_tool} with {parameters}" if parameters else self.require_prior_tool
        return f"{tool} may not be called before {prior} has succeeded. Call {prior} first."

    def begin(self) -> RuleState:
        """Return the state for a new run."""
        return _Gate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUntilTool(_NamedRule):
    """Rule that denies `tools` until `block_until_tool` has succeeded."""

    block_until_tool: str
    tools: Sequence[str] | None = None
    """Blocked tools. None means all others."""

    def __post_init__(self) -> None:
        self.check_texts()
        validation.check_text("tool_rule.block_until_tool", self.block_until_tool)
        if self.tools is not None:
            tools = _check_tools("tools", self.tools)
            if self.block_until_tool in tools:
                where = f"tool_rule.tools[{tools.index(self.block_until_tool)}]"
                raise ConfigError(where, self.block_until_tool, "another tool, because a tool cannot wait for itself")
            object.__setattr__(self, "tools", tools)

    @property
    def tools_named(self) -> Mapping[str, str]:
        """Tools that the rule names, by the key that names them."""
        return {"block_until_tool": self.block_until_tool} | _index_tools("tools", self.tools or ())

    def waits_for(self, tool: str) -> str | None:
        """Return `block_until_tool` if the rule blocks this tool."""
        blocked = tool != self.block_until_tool if self.tools is None else tool in self.tools
        return self.block_until_tool if blocked else None

    def is_opened_by(self, done: Done) -> bool:
        """Check whether this call is one of `block_until_tool`."""
        return done.tool == self.block_until_tool

    def describe_denial(self, tool: str) -> str:
        """Return the standard text for the model."""
        opener = self.block_until_tool
        return f"{tool} may not be called before {opener} has succeeded. Call {opener} first."

    def begin(self) -> RuleState:
        """Return the state for a new run."""
        return _Gate(self)


class _Gate:
    """State of a rule that one successful call opens.

    A call in progress does not open it.
    """

    __slots__ = ("open", "rule")

    def __init__(self, rule: RequirePriorTool | BlockUntilTool) -> None:
        self.rule = rule
        self.open = False

    def denial(self, tool: str, arguments: Mapping[str, Any], in_progress: Sequence[str]) -> str | None:
        return None if self.open or self.rule.waits_for(tool) is None else self.rule.describe_denial(tool)

    def note(self, done: Done) -> None:
        self.open = self.open or self.rule.is_opened_by(done)


def _check_tools(key: str, value: object) -> tuple[str, ...]:
    where = f"tool_rule.{key}"
    names = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
    if not names:
        raise ConfigError(where, cast("object", value), "a list of one or more tool names")
    return tuple(validation.check_text(f"{where}[{n}]", name) for n, name in enumerate(names))


def _check_parameters(value: object) -> dict[str, Any]:
    where = "tool_rule.with_parameters"
    parameters: dict[str, Any] = parse_json_value(where, cast("object", value)) if isinstance(value, Mapping) else {}
    if not parameters:
        raise ConfigError(where, cast("object", value), "a table of one or more dotted paths and their values")
    for path in parameters:
        if not is_path(path):
            raise ConfigError(where, path, "a dotted path: names with one dot between them")
    return parameters


def _index_tools(key: str, tools: Sequence[str]) -> dict[str, str]:
    return {f"{key}[{n}]": tool for n, tool in enumerate(tools)}


def _join_names(tools: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(tools[:-1]), tools[-1]]))


def _quote(value: object) -> str:
    return truncate(json.dumps(value, ensure_ascii=False), _MAX_QUOTED)
