"""The three kinds of tool rule, each with what it remembers of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from .._internal import validation
from .._internal.jsonable import parse_json_value
from .._internal.path import has_equal_value, is_path
from ..errors import ConfigError
from ..progress import Done


class RuleState(Protocol):
    """What a rule remembers of one run. It must not block; where it raises, the call is denied."""

    def denial(self, tool: str, arguments: Mapping[str, Any], in_progress: Sequence[str]) -> str | None:
        """Why the call may not be made now and what to do instead, or None.

        `under_way` names the tools of the calls that were let through and have not ended, in the order asked: the rule
        must hold whether they succeed or not.
        """
        ...

    def note(self, done: Done) -> None:
        """Learn that a call succeeded."""
        ...


@runtime_checkable
class ToolRule(Protocol):
    """A rule, the same for every run."""

    @property
    def name(self) -> str | None:
        """What it is called, in what is said about it."""
        ...

    @property
    def message(self) -> str | None:
        """What the model is told instead of the standard words."""
        ...

    @property
    def tools_named(self) -> Mapping[str, str]:
        """Every tool that it names, by the place where it does."""
        ...

    def waits_for(self, tool: str) -> str | None:
        """The tool that has to succeed before `tool` may be called for the first time, or None."""
        ...

    def begin(self) -> RuleState:
        """What it remembers of a run that starts now."""
        ...


_MAX_QUOTED = 200
"""Characters of a parameter that the model is shown."""


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
    """So many calls of some tools, then first one of some others.

    Once `after_tool` has succeeded (where it is left out: from the start), the limited tools may succeed at most
    `max_calls` times, all together. Further calls of them are denied until one of `then_require_one_of` has succeeded.
    Each success of one of those begins the count anew. The call that begins a count is no part of it.
    """

    max_calls: int
    """At least 1: a count of none would be used up again as soon as it began anew."""
    then_require_one_of: Sequence[str]
    after_tool: str | None = None
    limited_tools: Sequence[str] | None = None
    """Where it is left out: `after_tool` alone."""

    def __post_init__(self) -> None:
        self.check_texts()
        if self.after_tool is not None:
            validation.check_text("tool_rule.after_tool", self.after_tool)
        elif self.limited_tools is None:
            raise ConfigError("tool_rule.limited_tools", None, "a list of tools, as there is no after_tool either")
        validation.check_int("tool_rule.max_calls", self.max_calls, min_value=1)
        limited = _check_tools("limited_tools", [self.after_tool] if self.limited_tools is None else self.limited_tools)
        required = _check_tools("then_require_one_of", self.then_require_one_of)
        if set(required) <= set(limited):
            expected = "a tool that is not limited itself, as nothing else could lift the limit"
            raise ConfigError("tool_rule.then_require_one_of", list(required), expected)
        object.__setattr__(self, "limited_tools", limited)
        object.__setattr__(self, "then_require_one_of", required)

    @property
    def tools_named(self) -> Mapping[str, str]:
        """The tools that it names."""
        after = {} if self.after_tool is None else {"after_tool": self.after_tool}
        limited = _index_tools("limited_tools", self.limited_tools or ())
        return after | limited | _index_tools("then_require_one_of", self.then_require_one_of)

    def waits_for(self, tool: str) -> str | None:
        """Nothing: the first calls are free."""
        return None

    def begin(self) -> RuleState:
        """The count of one run."""
        return _CallCount(self)


class _CallCount:
    """How many calls of limited tools have succeeded since the count began."""

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
        """What the count comes to at worst: whatever adds to it succeeds, whatever lifts it fails."""
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
    """This tool only after that one: `tool` is denied until a call of `require_prior_tool` has succeeded.

    Where `with_parameters` are given (dotted paths and values), only a call that really had them opens the way.
    """

    tool: str
    require_prior_tool: str
    with_parameters: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.check_texts()
        validation.check_text("tool_rule.tool", self.tool)
        validation.check_text("tool_rule.require_prior_tool", self.require_prior_tool)
        if self.tool == self.require_prior_tool:
            raise ConfigError("tool_rule.require_prior_tool", self.tool, "another tool, as none can come before itself")
        if self.with_parameters is not None:
            object.__setattr__(self, "with_parameters", _check_parameters(self.with_parameters))

    @property
    def tools_named(self) -> Mapping[str, str]:
        """The tools that it names."""
        return {"tool": self.tool, "require_prior_tool": self.require_prior_tool}

    def waits_for(self, tool: str) -> str | None:
        """The prior tool, for its own."""
        return self.require_prior_tool if tool == self.tool else None

    def is_opened_by(self, done: Done) -> bool:
        """Whether that is the call which has to come before."""
        return done.tool == self.require_prior_tool and all(
            has_equal_value(done.arguments, path, value) for path, value in (self.with_parameters or {}).items()
        )

    def describe_denial(self, tool: str) -> str:
        """What the model is told."""
        parameters = " and ".join(f"{path} = {_quote(value)}" for path, value in (self.with_parameters or {}).items())
        prior = f"{self.require_prior_tool} with {parameters}" if parameters else self.require_prior_tool
        return f"{tool} may not be called before {prior} has succeeded. Call {prior} first."

    def begin(self) -> RuleState:
        """Whether the way is open, in one run."""
        return _Gate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUntilTool(_NamedRule):
    """These tools only after that one: `tools` (where left out: all others) are denied until it has succeeded."""

    block_until_tool: str
    tools: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self.check_texts()
        validation.check_text("tool_rule.block_until_tool", self.block_until_tool)
        if self.tools is not None:
            tools = _check_tools("tools", self.tools)
            if self.block_until_tool in tools:
                where = f"tool_rule.tools[{tools.index(self.block_until_tool)}]"
                raise ConfigError(where, self.block_until_tool, "another tool, as none can wait for itself")
            object.__setattr__(self, "tools", tools)

    @property
    def tools_named(self) -> Mapping[str, str]:
        """The tools that it names."""
        return {"block_until_tool": self.block_until_tool} | _index_tools("tools", self.tools or ())

    def waits_for(self, tool: str) -> str | None:
        """The tool that opens the way, for those that it blocks."""
        blocked = tool != self.block_until_tool if self.tools is None else tool in self.tools
        return self.block_until_tool if blocked else None

    def is_opened_by(self, done: Done) -> bool:
        """Whether that is the call which was waited for."""
        return done.tool == self.block_until_tool

    def describe_denial(self, tool: str) -> str:
        """What the model is told."""
        opener = self.block_until_tool
        return f"{tool} may not be called before {opener} has succeeded. Call {opener} first."

    def begin(self) -> RuleState:
        """Whether the way is open, in one run."""
        return _Gate(self)


class _Gate:
    """Whether the call that opens the way has succeeded. One that is under way has not."""

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
        raise ConfigError(where, cast("object", value), "a list of one or more names of tools")
    return tuple(validation.check_text(f"{where}[{n}]", name) for n, name in enumerate(names))


def _check_parameters(value: object) -> dict[str, Any]:
    where = "tool_rule.with_parameters"
    wanted: dict[str, Any] = parse_json_value(where, cast("object", value)) if isinstance(value, Mapping) else {}
    if not wanted:
        raise ConfigError(where, cast("object", value), "a table of one or more dotted paths and their values")
    for path in wanted:
        if not is_path(path):
            raise ConfigError(where, path, "a dotted path: names with one dot between them")
    return wanted


def _index_tools(key: str, tools: Sequence[str]) -> dict[str, str]:
    return {f"{key}[{n}]": tool for n, tool in enumerate(tools)}


def _join_names(tools: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(tools[:-1]), tools[-1]]))


def _quote(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
