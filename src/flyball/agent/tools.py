"""The offer: what an agent's tools make of its terrain, those that are known at once and those of its sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..errors import UsageError
from ..loop.child_task import ChildSpec
from ..loop.plan import AgentSpec
from ..request import estimate_tools_tokens
from ..tools import Admission, Tool, Toolset, ToolSource
from ..tools.source import ToolLike, is_source
from .delegation import Delegation, DelegationAdmission


@dataclass(frozen=True, slots=True)
class AgentTools:
    """Tools, and sources of tools that are known only when a run has opened them."""

    toolset: Toolset
    sources: tuple[ToolSource, ...]

    @classmethod
    def of(cls, offered: Iterable[ToolLike], child_specs: Sequence[ChildSpec] = ()) -> AgentTools:
        """What stands in an agent's list of tools; with children, also the tool that delegates to them."""
        tools, sources = list[Any](), list[ToolSource]()
        for one in offered:
            if is_source(one):
                sources.append(one)
            else:
                tools.append(one)
        if child_specs:
            tools.append(Delegation(child_specs))
        return cls(Toolset(tools), tuple(sources))

    def apply_to(self, spec: AgentSpec) -> AgentSpec:
        """The terrain as far as it is known before a run; it knows how to become that of a run."""
        known = replace(spec, sources=self.sources, resolve_tools=self._resolve_tools)
        return _with_tools(known, self.toolset) if self.sources else self._resolve_tools(known, ())

    def _resolve_tools(self, spec: AgentSpec, source_tools: Sequence[Sequence[Tool]]) -> AgentSpec:
        """That of a run whose sources have told their tools; of all of them only those to which it is narrowed."""
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
        if spec.allowed_tools is not None:
            return _with_tools(spec, Toolset([tool for tool in tools if tool.name in spec.allowed_tools]))
        offered = _with_tools(spec, Toolset(tools))
        _check_rules(offered)
        return offered


def _with_tools(spec: AgentSpec, toolset: Toolset) -> AgentSpec:
    """The terrain with these tools."""
    definitions = [tool.definition() for tool in toolset.values()]
    models = {"": spec.model, **spec.models}
    spoken, schema = spec.instruction_tokens, spec.output_schema
    cards = {
        name: replace(card, base_tokens=spoken + estimate_tools_tokens(definitions, schema, models[name].provider))
        for name, card in spec.cards.items()
    }
    return replace(
        spec,
        admission=partial(DelegationAdmission, toolset, spec.join_duplicate_children)
        if "delegate" in toolset and spec.children
        else partial(Admission, toolset),
        may_delegate=bool(spec.children) or any(_may_delegate(tool) for tool in toolset.values()),
        tools=definitions,
        tool_names=tuple(toolset),
        sensitive={tool.name: tool.sensitive for tool in toolset.values() if tool.sensitive},
        approval_tools=frozenset(tool.name for tool in toolset.values() if tool.may_need_approval),
        cheap_tools=frozenset(tool.name for tool in toolset.values() if tool.cheap),
        cards=cards,
    )


def _may_delegate(tool: Tool) -> bool:
    """Whether it could await `ctx.delegate`."""
    return tool.is_async and tool.signature.context is not None


def _check_rules(spec: AgentSpec) -> None:
    """A rule for a tool that nobody offers would guard nothing; unless somebody has taken the tool away."""
    if spec.tool_rules is not None:
        spec.tool_rules.check_offered(spec.tool_names)
