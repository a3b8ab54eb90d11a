"""The offer: what an agent's tools make of its terrain, those that are known at once and those of its sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..errors import ConfigError
from ..loop.child_task import ChildSpec
from ..loop.plan import AgentSpec
from ..request import tokens_of_tools
from ..tools import Admission, Tool, Toolset, ToolSource
from ..tools.source import Offered, is_source
from .delegation import Delegation, FamilyAdmission


@dataclass(frozen=True, slots=True)
class AgentTools:
    """Tools, and sources of tools that are known only when a run has opened them."""

    toolset: Toolset
    sources: tuple[ToolSource, ...]

    @classmethod
    def of(cls, given: Iterable[Offered], edges: Sequence[ChildSpec] = ()) -> AgentTools:
        """What stands in an agent's list of tools; with children, also the tool that delegates to them."""
        tools, sources = list[Any](), list[ToolSource]()
        for one in given:
            if is_source(one):
                sources.append(one)
            else:
                tools.append(one)
        if edges:
            tools.append(Delegation(edges))
        return cls(Toolset(tools), tuple(sources))

    def on(self, terrain: AgentSpec) -> AgentSpec:
        """The terrain as far as it is known before a run; it knows how to become that of a run."""
        known = replace(terrain, sources=self.sources, offering=self._offering)
        return _with_tools(known, self.toolset) if self.sources else self._offering(known, ())

    def _offering(self, terrain: AgentSpec, opened: Sequence[Sequence[Tool]]) -> AgentSpec:
        """That of a run whose sources have told their tools; of all of them only those to which it is narrowed."""
        owners = dict.fromkeys(self.toolset, "the agent itself")
        tools = list(self.toolset.values())
        for source, more in zip(self.sources, opened, strict=True):
            for tool in more:
                if tool.name in owners:
                    found = f"{tool.name}, as a tool of {owners[tool.name]} and of {source.name}"
                    raise ConfigError("tools", found, "a name of its own for each tool, as with mcp(..., prefix=...)")
                owners[tool.name] = source.name
                tools.append(tool)
        if terrain.only is not None:
            return _with_tools(terrain, Toolset([tool for tool in tools if tool.name in terrain.only]))
        offered = _with_tools(terrain, Toolset(tools))
        _check_rules(offered)
        return offered


def _with_tools(terrain: AgentSpec, toolset: Toolset) -> AgentSpec:
    """The terrain with these tools."""
    definitions = [tool.definition() for tool in toolset.values()]
    models = {"": terrain.model, **terrain.models}
    spoken, schema = terrain.instruction_tokens, terrain.output_schema
    cards = {
        name: replace(card, base_tokens=spoken + tokens_of_tools(definitions, schema, models[name].provider))
        for name, card in terrain.cards.items()
    }
    return replace(
        terrain,
        admission=partial(FamilyAdmission, toolset, terrain.children_joined)
        if "delegate" in toolset and terrain.children
        else partial(Admission, toolset),
        may_delegate=bool(terrain.children) or any(_may_hire(tool) for tool in toolset.values()),
        tools=definitions,
        tool_names=tuple(toolset),
        sensitive={tool.name: tool.sensitive for tool in toolset.values() if tool.sensitive},
        asking=frozenset(tool.name for tool in toolset.values() if tool.asks),
        cheap=frozenset(tool.name for tool in toolset.values() if tool.cheap),
        cards=cards,
    )


def _may_hire(tool: Tool) -> bool:
    """Whether it could await `ctx.delegate`."""
    return tool.is_async and tool.signature.context is not None


def _check_rules(terrain: AgentSpec) -> None:
    """A rule for a tool that nobody offers would guard nothing; unless somebody has taken the tool away."""
    if terrain.tool_rules is not None:
        terrain.tool_rules.check_offered(terrain.tool_names)
