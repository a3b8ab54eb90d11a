"""The kinds of tool rules, and the state that each keeps during a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, runtime_checkable

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

    def waits_for(self, tool: str) -> str | Sequence[str] | None:
        """Return the tool that must succeed before `tool`, several of them, or None."""
        ...

    def begin(self) -> RuleState:
        """Return the rule's state for a new run."""
        ...


class RuleState(Protocol):
    """State of a rule during one run.

    It must not block. If it raises, the call is denied. The state of a rule with a true `blocks_completion` also has
    `completion_denial()`, which returns why the run may not complete yet, or None.
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
    deny: Literal["only", "all"] = "only"
    """Tools that are denied past the limit: `only` the limited ones, or `all` except `then_require_one_of`."""

    def __post_init__(self) -> None:
        self.check_texts()
        if self.after_tool is not None:
            validation.check_text("tool_rule.after_tool", self.after_tool)
        elif self.limited_tools is None:
            raise ConfigError("tool_rule.limited_tools", None, "a list of tools, because after_tool is not set")
        validation.check_int("tool_rule.max_calls", self.max_calls, min_value=1)
        limited = _check_tools("limited_tools", [self.after_tool] if self.limited_tools is None else self.limited_tools)
        required = _check_tools("then_require_one_of", self.then_require_one_of)
        if self.deny not in ("only", "all"):
            raise ConfigError("tool_rule.deny", self.deny, "one of only, all")
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
        if not self.is_denied_past_limit(tool) or self.compute_max_count(in_progress) < self.rule.max_calls:
            return None
        limited, lifting = _join_names(self.rule.limited_tools or ()), _join_names(sorted(self.lifting - self.limited))
        calls = "1 call" if self.rule.max_calls == 1 else f"{self.rule.max_calls} calls"
        used = f"{calls} of {limited} {'is' if self.rule.max_calls == 1 else 'are'} allowed before {lifting}"
        return f"{tool} may not be called now: {used}, and none is left. Call {lifting} first."

    def is_denied_past_limit(self, tool: str) -> bool:
        return tool in self.limited or (self.rule.deny == "all" and tool not in self.lifting)

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
    """Rule that denies `tool` until a call of `require_prior_tool`, or of each of `prior_tools`, has succeeded.

    With `with_parameters` (dotted paths and values), only calls with exactly these values count.
    """

    tool: str
    require_prior_tool: str | None = None
    with_parameters: Mapping[str, Any] | None = None
    prior_tools: Sequence[str] = ()
    """Tools that must all have succeeded, in any order, in place of `require_prior_tool`."""
    blocks_completion: bool = False
    """True if the run may not complete either until then."""

    def __post_init__(self) -> None:
        self.check_texts()
        validation.check_text("tool_rule.tool", self.tool)
        if self.require_prior_tool is not None:
            if self.prior_tools:
                raise ConfigError("tool_rule.prior_tools", self.prior_tools, "no such key next to require_prior_tool")
            validation.check_text("tool_rule.require_prior_tool", self.require_prior_tool)
        else:
            object.__setattr__(self, "prior_tools", _check_tools("prior_tools", self.prior_tools))
        for place, prior in self.tools_named.items():
            if place != "tool" and prior == self.tool:
                expected = "another tool, because a tool cannot come before itself"
                raise ConfigError(f"tool_rule.{place}", self.tool, expected)
        if self.with_parameters is not None:
            object.__setattr__(self, "with_parameters", _check_parameters(self.with_parameters))
        validation.check_type("tool_rule.blocks_completion", self.blocks_completion, bool)

    @property
    def openers(self) -> tuple[str, ...]:
        """Tools that must all have succeeded."""
        return tuple(self.prior_tools) if self.require_prior_tool is None else (self.require_prior_tool,)

    @property
    def tools_named(self) -> Mapping[str, str]:
        """Tools that the rule names, by the key that names them."""
        if self.require_prior_tool is None:
            return {"tool": self.tool} | _index_tools("prior_tools", self.prior_tools)
        return {"tool": self.tool, "require_prior_tool": self.require_prior_tool}

    def waits_for(self, tool: str) -> Sequence[str] | None:
        """Return the prior tools if this is the guarded tool."""
        return self.openers if tool == self.tool else None

    def is_opened_by(self, done: Done) -> bool:
        """Check whether this call is a required prior call."""
        return done.tool in self.openers and all(
            has_equal_value(done.arguments, path, value) for path, value in (self.with_parameters or {}).items()
        )

    def describe_openers(self, missing: Sequence[str]) -> str:
        """Return the prior calls that are missing, for the model."""
        parameters = " and ".join(f"{path} = {_quote(value)}" for path, value in (self.with_parameters or {}).items())
        prior = _join_names(missing, "and")
        return f"{prior} with {parameters}" if parameters else prior

    def begin(self) -> RuleState:
        """Return the state for a new run."""
        return _Gate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUntilTool(_NamedRule):
    """Rule that denies `tools` until `block_until_tool` has succeeded."""

    block_until_tool: str
    tools: Sequence[str] | None = None
    """Blocked tools. None means all others."""
    blocks_completion: bool = False
    """True if the run may not complete either until then."""

    def __post_init__(self) -> None:
        self.check_texts()
        validation.check_text("tool_rule.block_until_tool", self.block_until_tool)
        if self.tools is not None:
            tools = _check_tools("tools", self.tools)
            if self.block_until_tool in tools:
                where = f"tool_rule.tools[{tools.index(self.block_until_tool)}]"
                raise ConfigError(where, self.block_until_tool, "another tool, because a tool cannot wait for itself")
            object.__setattr__(self, "tools", tools)
        validation.check_type("tool_rule.blocks_completion", self.blocks_completion, bool)

    @property
    def openers(self) -> tuple[str, ...]:
        """Tools that must have succeeded."""
        return (self.block_until_tool,)

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

    def describe_openers(self, missing: Sequence[str]) -> str:
        """Return the call that is missing, for the model."""
        return self.block_until_tool

    def begin(self) -> RuleState:
        """Return the state for a new run."""
        return _Gate(self)


class _Gate:
    """State of a rule that successful calls open.

    A call in progress does not open it.
    """

    __slots__ = ("missing", "rule")

    def __init__(self, rule: RequirePriorTool | BlockUntilTool) -> None:
        self.rule = rule
        self.missing = list(rule.openers)

    def denial(self, tool: str, arguments: Mapping[str, Any], in_progress: Sequence[str]) -> str | None:
        if not self.missing or self.rule.waits_for(tool) is None:
            return None
        return f"{tool} may not be called before {self._describe_missing()}"

    def completion_denial(self) -> str | None:
        """Return why the run may not complete yet, or None."""
        if not self.missing or not self.rule.blocks_completion:
            return None
        return f"The task is not complete before {self._describe_missing()}"

    def note(self, done: Done) -> None:
        if done.tool in self.missing and self.rule.is_opened_by(done):
            self.missing.remove(done.tool)

    def _describe_missing(self) -> str:
        missing, have = self.rule.describe_openers(self.missing), "has" if len(self.missing) == 1 else "have"
        return f"{missing} {have} succeeded. Call {missing} first."


@dataclass(frozen=True, slots=True, kw_only=True)
class RequireToolUse(_NamedRule):
    """Rule that lets the run complete only after a successful tool call."""

    require_tool_use: bool | Sequence[str]
    """True for a successful call of any tool, or names of tools: a call of one of them must have succeeded."""

    def __post_init__(self) -> None:
        self.check_texts()
        if self.require_tool_use is True:
            return
        if self.require_tool_use is False:
            raise ConfigError("tool_rule.require_tool_use", False, "true, or a list of tools")
        object.__setattr__(self, "require_tool_use", _check_tools("require_tool_use", self.require_tool_use))

    @property
    def blocks_completion(self) -> bool:
        """True: that is all it does."""
        return True

    @property
    def tools_named(self) -> Mapping[str, str]:
        """Tools that the rule names, by the key that names them."""
        return _index_tools("require_tool_use", self.tools)

    @property
    def tools(self) -> Sequence[str]:
        """Names of the tools: a call of one of them must have succeeded. Empty means any tool."""
        return () if isinstance(self.require_tool_use, bool) else self.require_tool_use

    def waits_for(self, tool: str) -> None:
        """Return None: no call is denied."""

    def begin(self) -> RuleState:
        """Return the state for a new run."""
        return _ToolUse(self)


class _ToolUse:
    """State of a rule that requires a successful call."""

    __slots__ = ("is_met", "rule")

    def __init__(self, rule: RequireToolUse) -> None:
        self.rule = rule
        self.is_met = False

    def denial(self, tool: str, arguments: Mapping[str, Any], in_progress: Sequence[str]) -> str | None:
        return None

    def completion_denial(self) -> str | None:
        """Return why the run may not complete yet, or None."""
        if self.is_met:
            return None
        tools = _join_names(self.rule.tools) if self.rule.tools else "a tool"
        return (
            f"The task is not complete before {tools} has succeeded. Call {tools if self.rule.tools else 'one'} first."
        )

    def note(self, done: Done) -> None:
        self.is_met = self.is_met or not self.rule.tools or done.tool in self.rule.tools


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


def _join_names(tools: Sequence[str], word: str = "or") -> str:
    return f" {word} ".join(filter(None, [", ".join(tools[:-1]), tools[-1]]))


def _quote(value: object) -> str:
    return truncate(json.dumps(value, ensure_ascii=False), _MAX_QUOTED)
