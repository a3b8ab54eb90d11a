"""Tools of an agent: those that it lists, and those that its sources give when a run has opened them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from ..errors import UsageError
from ..loop.plan import AgentSpec, ChildrenSpec, ToolSpec
from ..steadiness import Duplicates
from ..tool_rules import ToolRule, ToolRules
from ..tools import Admission, Tool, Toolset, ToolSource
from ..tools.builtin import collect, read_artifact
from ..tools.excerpt import Excerpt
from ..tools.schema_tool import read_definitions
from ..tools.source import Tools, is_source
from .delegation import Delegation, DelegationAdmission

Excerpts = tuple[int | None, Excerpt | None]
"""Maximum characters of a result, and the function that shortens it. None means the default."""


@dataclass(frozen=True, slots=True)
class AgentTools:
    """Tools and tool sources of an agent, with what a `ToolSpec` needs beside them."""

    toolset: Toolset
    sources: tuple[ToolSource, ...]
    children: ChildrenSpec
    rules: ToolRules | None
    excerpts: Excerpts = (None, None)
    recall: bool = False
    """True if the model may read more of results that it saw in part."""

    @classmethod
    def of(
        cls,
        offered: Tools,
        children: ChildrenSpec,
        rules: ToolRules | Sequence[ToolRule | Mapping[str, Any]] | str | Path | None = None,
        excerpts: Excerpts = (None, None),
        recall: bool = False,
    ) -> AgentTools:
        """Return the tools and sources of an agent. If it has children, the tool `delegate` is added."""
        tools, sources = list[Any](), list[ToolSource]()
        for one in read_definitions(cast("Mapping[str, Any]", offered)) if isinstance(offered, Mapping) else offered:
            if is_source(one):
                sources.append(one)
            else:
                tools.append(one)
        if children.specs:
            tools.append(Delegation(children.specs, children.in_background))
        if children.in_background:
            tools.append(collect)
        parsed = None if rules is None else ToolRules.of(rules)
        return cls(Toolset(_shorten_results(tools, excerpts)), tuple(sources), children, parsed, excerpts, recall)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the tools. None if sources will add more."""
        return None if self.sources else tuple(self.toolset)

    def build_spec(self) -> ToolSpec:
        """Return the spec of the tools that are known before a run."""
        if not self.sources:
            self._check_rules(self.toolset)
        return self._build_spec(self.toolset)

    def _resolve(self, spec: AgentSpec, source_tools: Sequence[Sequence[Tool]]) -> AgentSpec:
        """Return the spec with the allowed tools of the sources, given one list per source."""
        owners = dict.fromkeys(self.toolset, "the agent")
        tools = list(self.toolset.values())
        for source, more in zip(self.sources, source_tools, strict=True):
            for tool in more:
                if tool.name in owners:
                    raise UsageError(
                        f"two tools have the name {tool.name!r}, one from {owners[tool.name]} and one from "
                        f"{source.name}: give each its own name, for example with mcp(..., prefix=...)"
                    )
                owners[tool.name] = source.name
                tools.append(tool)
        allowed, tools = spec.tools.allowed, _shorten_results(tools, self.excerpts)
        toolset = Toolset([tool for tool in tools if allowed is None or tool.name in allowed])
        if allowed is None:
            self._check_rules(toolset)
        return spec.with_tools(self._build_spec(toolset, allowed))

    def _build_spec(self, toolset: Toolset, allowed: frozenset[str] | None = None) -> ToolSpec:
        tools, children = list(toolset.values()), self.children
        recall = read_artifact if self.recall and tools and read_artifact.name not in toolset else None
        callable_tools = toolset if recall is None else Toolset(tools, [recall])
        return ToolSpec(
            admission=partial(DelegationAdmission, callable_tools, children.join_duplicates)
            if "delegate" in toolset and children.specs
            else partial(Admission, callable_tools),
            recall=None if recall is None else recall.definition(),
            definitions=[tool.definition() for tool in tools],
            names=tuple(toolset),
            cheap=frozenset(tool.name for tool in tools if tool.cheap),
            need_approval=frozenset(tool.name for tool in tools if tool.may_need_approval),
            sensitive={tool.name: tool.sensitive for tool in tools if tool.sensitive},
            skip_duplicates=any(tool.duplicates not in (None, Duplicates.ALLOW) for tool in tools),
            may_delegate=bool(children.specs) or any(_may_delegate(tool) for tool in tools),
            rules=self.rules,
            sources=self.sources,
            resolve=self._resolve,
            allowed=allowed,
        )

    def _check_rules(self, toolset: Toolset) -> None:
        """Raise if a rule names a tool that does not exist: it would guard nothing."""
        if self.rules is not None:
            self.rules.check_offered(tuple(toolset))


def _shorten_results(tools: Sequence[Any], excerpts: Excerpts) -> list[Any]:
    """Return the tools with the agent's way to shorten results."""
    return list(tools) if excerpts == (None, None) else [Tool.of(tool).with_excerpts(*excerpts) for tool in tools]


def _may_delegate(tool: Tool) -> bool:
    """Return True if the tool can await `ctx.delegate`."""
    return tool.is_async and tool.signature.context is not None
