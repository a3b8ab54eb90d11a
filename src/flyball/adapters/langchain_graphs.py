"""Graphs of LangChain agents: which run an agent belongs to, and when its graph ends, fails or is left."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt

from .agent_conversation import AgentConversation
from .framework_run import FrameworkRun, find_place
from .model_port import KnownTools
from .results import attach

OnEnd = Callable[[BaseException | None], object]
"""Function that gets the error of a graph, or None."""


@dataclass(eq=False)
class GraphRun:
    """Run of all agents with the same middleware in one graph, with the graphs in its nodes and tools."""

    run: FrameworkRun
    text: str = ""
    """Answer of the agent that ended last."""
    agents: set[AgentRun] = field(default_factory=set["AgentRun"])
    """Agents in progress."""
    interrupted_at: float | None = None
    """Time on the clock of the run at which the graph was interrupted. None while it runs."""

    def end(self, error: BaseException | None) -> None:
        """Close the run at the end of its graph, unless the graph was interrupted."""
        if error is None and self.agents:
            self.interrupted_at = self.run.now()
            return
        if error is None:
            self.run.complete(self.text)
        else:
            attach(error, self.run)
        self.run.close(error)

    def resume(self) -> None:
        """Continue after an interrupt, whose time does not count."""
        if self.interrupted_at is not None:
            self.run.postpone(self.run.now() - self.interrupted_at, "interrupt")
            self.interrupted_at = None
            GRAPHS.call_at_end(find_scope(), self.end)


@dataclass(eq=False)
class AgentRun:
    """Call of a governed agent."""

    graph: GraphRun
    conversation: AgentConversation
    tools: KnownTools = field(default_factory=KnownTools)

    def __post_init__(self) -> None:
        self.graph.agents.add(self)

    @property
    def run(self) -> FrameworkRun:
        """Run that the agent belongs to."""
        return self.graph.run

    def end(self, text: str) -> None:
        """End the agent with its answer."""
        self.graph.agents.discard(self)
        if not self.conversation.level:
            self.graph.text = text

    def leave(self, error: BaseException | None) -> None:
        """End the agent if its graph failed, which a tool or a node around it may survive."""
        if error is not None and not isinstance(error, GraphInterrupt):
            self.graph.agents.discard(self)


class GraphWatch(BaseCallbackHandler):
    """Callbacks that tell of the graphs of this process: a middleware is not told of one that fails or is left."""

    run_inline = True
    ignore_llm = ignore_chat_model = ignore_retriever = True  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def __init__(self) -> None:
        self._is_watching = False
        self._parents: dict[UUID, UUID | None] = {}
        """Chains in progress, with those around them."""
        self._endings: dict[UUID, list[OnEnd]] = {}

    def watch(self) -> None:
        """Begin to watch. A second call changes nothing."""
        if not self._is_watching:
            self._is_watching = True
            register_configure_hook(ContextVar("flyball_graphs", default=self), inheritable=True)

    def find_graph(self) -> UUID | None:
        """Return the graph whose node calls this. None outside of a node."""
        callbacks: Any = get_config().get("callbacks")
        return self._parents.get(getattr(callbacks, "parent_run_id", None) or UUID(int=0))

    def find_root(self) -> UUID | None:
        """Return the outermost graph around the node that calls this."""
        found = self.find_graph()
        while found is not None and (parent := self._parents.get(found)) is not None:
            found = parent
        return found

    def call_at_end(self, graph: UUID | None, function: OnEnd) -> None:
        """Call a function when a graph ends."""
        if graph is not None:
            self._endings.setdefault(graph, []).append(function)

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Note a graph, a node or another chain, and what is around it if that is in progress."""
        self._parents[run_id] = parent_run_id if parent_run_id in self._parents else None

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **_: Any) -> None:
        """Note the end of a chain."""
        self._end(run_id, None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Note the end of a chain that failed, or was cancelled or left."""
        self._end(run_id, error)

    def on_tool_start(
        self, serialized: Any, input_str: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Note a tool, which may call agents."""
        self.on_chain_start(None, None, run_id=run_id, parent_run_id=parent_run_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """Note the end of a tool."""
        self._end(run_id, None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Note the end of a tool that failed."""
        self._end(run_id, error)

    def _end(self, run_id: UUID, error: BaseException | None) -> None:
        self._parents.pop(run_id, None)
        for function in self._endings.pop(run_id, ()):
            function(error)


GRAPHS = GraphWatch()


def find_scope() -> UUID | None:
    """Return the graph whose end is that of a run which begins here: the outermost, or the agent's own in a tool."""
    return GRAPHS.find_root() if find_place() is None else GRAPHS.find_graph()
