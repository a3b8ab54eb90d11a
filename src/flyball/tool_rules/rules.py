"""The tool rules of an agent: parsed, and checked against each other and against its tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, cast

from ..errors import ConfigError, SettingError, suggest_names
from .kinds import BlockUntilTool, LimitedTools, RequirePriorTool, RequireToolUse, ToolRule
from .tracker import ToolRuleTracker

_TABLE = "tool_rules"
_Kind = type[LimitedTools] | type[RequirePriorTool] | type[BlockUntilTool] | type[RequireToolUse]
_KINDS: tuple[_Kind, ...] = (LimitedTools, RequirePriorTool, BlockUntilTool, RequireToolUse)
_KEYS: Mapping[_Kind, tuple[str, ...]] = {kind: tuple(field.name for field in fields(kind)) for kind in _KINDS}
_KIND_BY_KEY: Mapping[str, _Kind] = {
    "max_calls": LimitedTools,
    "then_require_one_of": LimitedTools,
    "after_tool": LimitedTools,
    "limited_tools": LimitedTools,
    "deny": LimitedTools,
    "require_prior_tool": RequirePriorTool,
    "prior_tools": RequirePriorTool,
    "block_until_tool": BlockUntilTool,
    "require_tool_use": RequireToolUse,
}
"""Keys that determine the kind of a rule."""
_EXPECTED_KEYS = (
    "max_calls with then_require_one_of, or require_prior_tool or prior_tools with tool, or block_until_tool, "
    "or require_tool_use"
)


@dataclass(frozen=True, slots=True)
class ToolRules:
    """The tool rules of an agent, shared by all its runs.

    All must allow a call.
    """

    rules: tuple[ToolRule, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))
        for n, rule in enumerate(self.rules):
            if not isinstance(rule, ToolRule):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(f"{_TABLE}[{n}]", rule, "a tool rule")
        tools = {tool for rule in self.rules for tool in rule.tools_named.values()}
        waits = {tool: [other for rule in self.rules for other in _list_waits(rule, tool)] for tool in sorted(tools)}
        try:
            TopologicalSorter(waits).prepare()
        except CycleError as error:
            expected = "rules that can be satisfied together: each of these tools waits for the next"
            raise ConfigError(_TABLE, error.args[1][::-1], expected) from None

    @classmethod
    def of(cls, source: object) -> ToolRules:
        """Parse rules from any supported form.

        `source` is a ToolRules, a list of rules or mappings, `{"tool_rules": [...]}`, or the path of a TOML file.

        Raises ConfigError with the place of the error, or SettingError with the line for a file.
        """
        if isinstance(source, ToolRules):
            return source
        if isinstance(source, str | Path):
            return _load_file(Path(source))
        if isinstance(source, Mapping):
            table = cast("Mapping[object, object]", source)
            for key in table:
                if key != _TABLE:
                    raise ConfigError(_TABLE, key, f"the key {_TABLE}, and no other")
            return cls(_parse_rules(table.get(_TABLE)))
        return cls(_parse_rules(source))

    def check_offered(self, offered: Collection[str]) -> None:
        """Raise ConfigError for the first named tool that the agent does not have."""
        for n, rule in enumerate(self.rules):
            for place, tool in rule.tools_named.items():
                if tool not in offered:
                    near = suggest_names(tool, offered) or sorted(offered) or ["none at all"]
                    raise ConfigError(f"{_TABLE}[{n}].{place}", tool, f"a tool that is offered: {' or '.join(near)}")

    @property
    def block_completion(self) -> bool:
        """True if some rule may keep a run from completing."""
        return any(getattr(rule, "blocks_completion", False) for rule in self.rules)

    def unavailable(self, offered: Collection[str]) -> tuple[str, ...]:
        """Return the tools without which a rule never lets the run complete, and that are not `offered`."""
        needed: list[str] = []
        for rule in self.rules:
            if isinstance(rule, RequirePriorTool | BlockUntilTool) and rule.blocks_completion:
                needed += rule.openers
            elif isinstance(rule, RequireToolUse) and not any(tool in offered for tool in rule.tools):
                needed += rule.tools
        return tuple(dict.fromkeys(tool for tool in needed if tool not in offered))

    def begin(self) -> ToolRuleTracker:
        """Return the tracker of a new run."""
        return ToolRuleTracker(self.rules)

    def __iter__(self) -> Iterator[ToolRule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)


def _list_waits(rule: ToolRule, tool: str) -> Sequence[str]:
    found = rule.waits_for(tool)
    return (found,) if isinstance(found, str) else found or ()


def _load_file(path: Path) -> ToolRules:
    """Load the `[[tool_rules]]` of a file and ignore its other tables."""
    from .._internal.toml import TomlDocument

    document = TomlDocument.read(path)
    try:
        for key in document.data:
            if key != _TABLE and suggest_names(key, [_TABLE]):
                raise ConfigError(key, key, f"the key {_TABLE}")
        if _TABLE not in document.data:
            raise ConfigError(_TABLE, sorted(document.data), f"one or more tables [[{_TABLE}]]")
        return ToolRules(_parse_rules(document.data[_TABLE]))
    except ConfigError as error:
        names = re.findall(r"[^.\[\]]+", error.where)
        line = document.line(*(int(name) if name.isdecimal() else name for name in names))
        source = str(path) if line is None else f"{path}:{line}"
        raise SettingError(error.where, source, error.found, error.expected) from None


def _parse_rules(source: object) -> tuple[ToolRule, ...]:
    if not isinstance(source, list | tuple):
        raise ConfigError(_TABLE, source, "a list of rules")
    return tuple(_parse_rule(f"{_TABLE}[{n}]", entry) for n, entry in enumerate(cast("list[object]", source)))


def _parse_rule(where: str, entry: object) -> ToolRule:
    if isinstance(entry, ToolRule):
        return entry
    if not isinstance(entry, Mapping) or not entry:
        raise ConfigError(where, cast("object", entry), f"a rule with {_EXPECTED_KEYS}")
    values = cast("Mapping[str, Any]", entry)
    kind = _find_kind(where, values)
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in values]
    if missing:
        raise ConfigError(where, sorted(values), f"the key {' and '.join(missing)} as well")
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(where + error.where.removeprefix("tool_rule"), error.found, error.expected) from None


def _find_kind(where: str, values: Mapping[str, object]) -> _Kind:
    """Return the kind of a rule.

    Raises ConfigError for unknown keys and null values.
    """
    kinds = {_KIND_BY_KEY[key] for key in values if key in _KIND_BY_KEY}
    known = sorted({key for kind in (kinds if len(kinds) == 1 else _KEYS) for key in _KEYS[kind]})
    for key, value in values.items():
        if key not in known:
            names = suggest_names(str(key), known)[:1] or known
            raise ConfigError(f"{where}.{key}", key, f"the key {' or '.join(names)}")
        if value is None:
            raise ConfigError(f"{where}.{key}", None, "a value, or no such key")
    if len(kinds) != 1:
        raise ConfigError(where, sorted(values), f"the keys of one kind of rule: {_EXPECTED_KEYS}")
    return kinds.pop()
