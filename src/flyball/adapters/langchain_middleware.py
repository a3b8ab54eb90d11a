"""Middleware of LangChain agents: opens runs, and passes requests and tool calls on."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, NotRequired
from uuid import UUID

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import OmitFromInput
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.runtime import Runtime
from langgraph.types import Command

from .._internal.timeouts import TimeIsOver, await_within, call_within
from ..budget.registry import IterationBudgetRegistry
from ..errors import UsageError
from ..result import Result
from .adapter_options import AdapterOptions, choose_options
from .framework_run import FrameworkRun, find_place
from .frameworks import LANGCHAIN
from .langchain_graphs import GRAPHS, AgentRun, GraphRun, find_scope
from .langchain_model import AsyncLangChainPort, LangChainPort, describe_request, describe_tools
from .model_port import AskedModel
from .results import remember, remember_name
from .tool_threads import TOOL_THREADS

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ToolCallRequest

    Middleware = AgentMiddleware[Any, Any, Any]
else:  # the number of its parameters depends on the version
    Middleware = AgentMiddleware

ToolReply = ToolMessage | Command[Any]
_HANDLER_OF_OTHERS = "inner_handler"
"""Name of a handler that calls further middleware instead of the model."""


class GovernedState(AgentState[Any]):
    """State of a governed agent."""

    flyball_run_id: NotRequired[Annotated[str, OmitFromInput]]


class GovernMiddleware(Middleware):
    """Keeps each run of an agent inside limits. Several agents may share one object."""

    state_schema = GovernedState

    def __init__(self, options: AdapterOptions) -> None:
        super().__init__()
        GRAPHS.watch()
        for name in ("wrap_model_call", "awrap_model_call", "wrap_tool_call", "awrap_tool_call"):
            setattr(self, name, _with_signature(getattr(self, name)))
        self._options = replace(options, registry=options.registry or IterationBudgetRegistry())  # reads the settings
        self._has_warned = False
        self._graphs: dict[UUID | None, GraphRun] = {}
        """Graphs in progress."""
        self._agents: dict[str, AgentRun] = {}
        """Agents in progress or interrupted, by the ids in their states."""
        self._runs: dict[str, FrameworkRun] = {}
        """Newest runs by their ids."""

    def result(self, run_id: str | None = None) -> Result:
        """Return the result of a run, by the `flyball_run_id` in the state of its agent. None means the newest.

        Raises UsageError if the run is not known, or has not ended. An interrupted run has not ended.
        """
        if not self._runs if run_id is None else run_id not in self._runs:
            raise UsageError("no run of this middleware is known" if run_id is None else f"run {run_id} is not known")
        return self._runs[next(reversed(self._runs)) if run_id is None else run_id].result

    def before_agent(self, state: GovernedState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Open a run."""
        return {"flyball_run_id": self._open(state)}

    async def abefore_agent(self, state: GovernedState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Open a run."""
        return {"flyball_run_id": self._open(state)}

    def after_agent(self, state: GovernedState, runtime: Runtime[Any]) -> None:
        """Note the answer of the agent."""
        self._end(state)

    async def aafter_agent(self, state: GovernedState, runtime: Runtime[Any]) -> None:
        """Note the answer of the agent."""
        self._end(state)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Make a request to the model as a turn of the run, or as its last request."""
        agent = self._find(request.state)
        asked = self._describe(agent, request, self._find_unheld(agent, handler))
        return agent.run.ask(agent.conversation, asked, LangChainPort(request, handler))

    # `async def` hooks would cost two thread switches each: LangChain traces their starts and ends in threads.
    def awrap_model_call(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Awaitable[ModelResponse[Any]]:
        """Make a request to the model as a turn of the run, or as its last request."""
        agent = self._find(request.state)
        asked = self._describe(agent, request, self._find_unheld(agent, handler, request))
        return agent.run.aask(agent.conversation, asked, AsyncLangChainPort(request, handler))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolReply]) -> ToolReply:
        """Make a tool call within the time of the run."""
        agent = self._find(request.state)
        token = agent.run.enter(agent.conversation)
        try:
            seconds = agent.run.find_tool_seconds(request.tool_call["name"])
            return call_within(seconds, partial(handler, request))
        except TimeIsOver:
            return _tell_timeout(request)
        finally:
            agent.run.leave(token)

    def awrap_tool_call(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolReply]]
    ) -> Awaitable[ToolReply]:
        """Make a tool call within the time of the run."""
        return self._acall(request, handler)

    async def _acall(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolReply]]
    ) -> ToolReply:
        agent = self._find(request.state)
        token = agent.run.enter(agent.conversation)
        try:
            seconds = agent.run.find_tool_seconds(request.tool_call["name"])
            return await await_within(seconds, partial(handler, _move_to_thread(request)))
        except TimeIsOver:
            return _tell_timeout(request)
        finally:
            agent.run.leave(token)

    def _describe(self, agent: AgentRun, request: ModelRequest[Any], unheld: tuple[str, ...]) -> AskedModel:
        if not agent.tools.are(request.tools):
            agent.tools = describe_tools(request.tools)
        return describe_request(request, agent.conversation.counted, agent.tools, unheld)

    def _find_unheld(
        self, agent: AgentRun, handler: Callable[..., Any], in_loop: ModelRequest[Any] | None = None
    ) -> tuple[str, ...]:
        """Return what the middleware cannot hold, once. `in_loop` is a request on an event loop."""
        if self._has_warned or agent.conversation.requests:
            return ()
        found: list[str] = []
        if getattr(handler, "__name__", "") == _HANDLER_OF_OTHERS:
            found.append("middleware behind this one may repeat a request unseen, so put this one last")
        blocking: list[str] = []
        if in_loop is not None:
            blocking += [tool.name for tool in in_loop.tools if isinstance(tool, BaseTool) and is_blocking_class(tool)]
            if type(in_loop.model)._agenerate is BaseChatModel._agenerate:  # pyright: ignore[reportPrivateUsage]
                blocking.append(type(in_loop.model).__name__)
        if blocking:
            found.append(f"{', '.join(blocking)} blocks, and asyncio.run waits for its thread at the end if it hangs")
        self._has_warned = bool(found)
        return tuple(found)

    def _open(self, state: GovernedState) -> str:
        """Open a run, or join that of the graph around the agent; return the id of the agent for its state."""
        task = str(state["messages"][-1].text) if state["messages"] else ""
        place, level = find_place(), 0
        graph = self._graphs.get(find_scope())
        if place is not None:
            around = (one for one in self._graphs.values() if one.run is place.run)
            graph = next(around, None)
            level = 0 if graph is None else place.own_level
        if graph is None:
            graph = self._open_graph(task)
        agent = AgentRun(graph, graph.run.conversations.add(level=level))
        run_id = graph.run.options.run_id
        return self._add(agent, f"{run_id}/{agent.conversation.number}" if agent.conversation.number > 1 else run_id)

    def _open_graph(self, task: str, run_id: str | None = None) -> GraphRun:
        scope = find_scope()
        run = FrameworkRun(choose_options(None, self._options), LANGCHAIN, task)
        run.open()
        graph = GraphRun(run)
        remember(self._runs, run_id or run.options.run_id, run)
        if scope is not None:
            self._graphs[scope] = graph
        GRAPHS.call_at_end(scope, graph.end)
        GRAPHS.call_at_end(scope, lambda _: self._graphs.pop(scope, None))
        return graph

    def _add(self, agent: AgentRun, run_id: str) -> str:
        self._agents[run_id] = agent
        remember_name(run_id, agent.run)
        GRAPHS.call_at_end(GRAPHS.find_graph(), agent.leave)
        return run_id

    def _find(self, state: Any) -> AgentRun:
        """Return the agent of a state. An interrupted one keeps its budgets."""
        run_id: str = state["flyball_run_id"]
        agent = self._agents.get(run_id)
        if agent is None or not agent.run.is_open:  # it goes on after its end, or in another process
            graph = self._open_graph("", run_id)
            agent = AgentRun(graph, graph.run.conversations.add())
            self._add(agent, run_id)
        agent.graph.resume()
        return agent

    def _end(self, state: GovernedState) -> None:
        if "flyball_run_id" not in state:  # middleware before this one ended the agent before its run began
            return
        agent, messages = self._find(state), state["messages"]
        text = str(messages[-1].text) if messages and isinstance(messages[-1], AIMessage) else ""
        agent.end(text or str(state.get("structured_response", "")))
        self._agents.pop(state.get("flyball_run_id", ""), None)


def _with_signature(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook with its signature, which the tracing of LangChain reads in each call."""
    known: Any = partial(hook)
    known.__signature__ = inspect.signature(hook)
    return known


def _move_to_thread(request: ToolCallRequest) -> ToolCallRequest:
    """Return the request with a tool whose function, if it blocks, runs in a thread of ours.

    LangChain runs it in a thread that the event loop waits for at its end.
    """
    tool = request.tool
    if not isinstance(tool, StructuredTool) or tool.coroutine is not None or tool.func is None:
        return request
    function = tool.func

    @wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        call = partial(copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(TOOL_THREADS, call)

    return replace(request, tool=tool.model_copy(update={"coroutine": run}))


def is_blocking_class(tool: BaseTool) -> bool:
    """Check whether the class of a tool has no async method, so that LangChain runs it in a thread of its own."""
    return type(tool)._arun is BaseTool._arun  # pyright: ignore[reportPrivateUsage]


def _tell_timeout(request: ToolCallRequest) -> ToolMessage:
    call = request.tool_call
    text = f"{call['name']} took too long and was stopped."
    return ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"], status="error")
