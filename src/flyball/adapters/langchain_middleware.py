"""Middleware of LangChain agents: opens and closes runs, and passes requests and tool calls on."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial, wraps
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any, NotRequired
from weakref import finalize

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import OmitFromInput
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import Command

from .._internal.timeouts import TimeIsOver, await_within, call_within
from ..errors import UsageError
from ..result import Result
from .adapter_options import AdapterOptions, renew_run_id
from .agent_conversation import AgentConversation
from .framework_run import FrameworkRun, find_place
from .frameworks import LANGCHAIN
from .langchain_model import LangChainPort, describe_request
from .results import attach, remember
from .tool_threads import TOOL_THREADS

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ToolCallRequest

ToolReply = ToolMessage | Command[Any]


@dataclass(eq=False)
class AgentRun:
    """Call of a governed agent."""

    run: FrameworkRun
    conversation: AgentConversation
    is_own: bool
    """Whether the run is the agent's own, and not that of the agent above it."""
    is_resumable: bool
    """Whether the agent has a checkpointer, so that its graph may end and go on later."""
    error: BaseException | None = None
    """Error that the agent may have ended with, because nothing came after it."""
    active: int = 0
    """Requests and tool calls in progress."""
    last_at: float = 0.0
    """Clock time at which the last of them ended."""

    def close(self, error: BaseException | None = None) -> None:
        """End the run, if it is the agent's own."""
        if self.is_own:
            self.run.close(error)


class RunId(str):
    """Id of a run in the state of its agent. The graph keeps this object while it runs, and tells of no failure."""

    agent_run: AgentRun


class GovernedState(AgentState[Any]):
    """State of a governed agent."""

    flyball_run_id: NotRequired[Annotated[str, OmitFromInput]]


_left: SimpleQueue[AgentRun] = SimpleQueue()
"""Runs whose graph is gone. Finalizers put them here, because they may run at any time and must not close them."""


def close_left_runs(*, is_exit: bool = False) -> None:
    """Close the runs whose graph ended with an error, or was left."""
    while True:
        try:
            one = _left.get_nowait()
        except Empty:
            return
        if one.error is None and one.is_resumable and not is_exit:
            continue  # it was interrupted
        if one.error is None and one.is_own:
            one.run.cancel()
        one.close(one.error)


atexit.register(close_left_runs, is_exit=True)  # before the first finalizer, so that it comes after all of them


if TYPE_CHECKING:
    Middleware = AgentMiddleware[GovernedState, Any, Any]
else:  # the number of its parameters depends on the version
    Middleware = AgentMiddleware


class GovernMiddleware(Middleware):
    """Keeps each run of an agent inside limits. Several agents may share one object."""

    state_schema = GovernedState

    def __init__(self, options: AdapterOptions) -> None:
        super().__init__()
        self._options = options
        self._runs: dict[str, AgentRun] = {}

    def result(self, run_id: str | None = None) -> Result:
        """Return the result of a run, by the `flyball_run_id` in the state of its agent. None means the newest.

        Raises UsageError if the run is not known, or has not ended.
        """
        close_left_runs()
        if not self._runs if run_id is None else run_id not in self._runs:
            raise UsageError("no run of this middleware is known" if run_id is None else f"run {run_id} is not known")
        one = self._runs[next(reversed(self._runs)) if run_id is None else run_id]
        if one.error is not None and not one.active:
            one.close(one.error)
        return one.run.result

    def before_agent(self, state: GovernedState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Open a run."""
        return {"flyball_run_id": self._open(state)}

    async def abefore_agent(self, state: GovernedState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Open a run."""
        return {"flyball_run_id": self._open(state)}

    def after_agent(self, state: GovernedState, runtime: Runtime[Any]) -> None:
        """Close the run with the answer of its agent."""
        self._close(state)

    async def aafter_agent(self, state: GovernedState, runtime: Runtime[Any]) -> None:
        """Close the run with the answer of its agent."""
        self._close(state)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Make a request to the model as a turn of the run, or as its last request."""
        one = self._find(request.state)
        with _activity(one):
            return one.run.ask(one.conversation, describe_request(request), LangChainPort(request, handler))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Make a request to the model as a turn of the run, or as its last request."""
        one = self._find(request.state)
        with _activity(one):
            return await one.run.aask(one.conversation, describe_request(request), LangChainPort(request, handler))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolReply]) -> ToolReply:
        """Make a tool call within the time of the run."""
        one = self._find(request.state)
        with _activity(one, enters=True):
            try:
                return call_within(one.run.find_tool_seconds(request.tool_call["name"]), partial(handler, request))
            except TimeIsOver:
                return _tell_timeout(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolReply]]
    ) -> ToolReply:
        """Make a tool call within the time of the run."""
        one = self._find(request.state)
        with _activity(one, enters=True):
            try:
                seconds = one.run.find_tool_seconds(request.tool_call["name"])
                return await await_within(seconds, partial(handler, _move_to_thread(request)))
            except TimeIsOver:
                return _tell_timeout(request)

    def _open(self, state: GovernedState) -> RunId:
        close_left_runs()
        place = find_place()
        above = None if place is None else self._find_shared(place.run)
        if place is not None and above is not None:
            conversation = place.run.conversations.add(level=place.own_level)
            one = AgentRun(place.run, conversation, is_own=False, is_resumable=False)
        else:
            one = self._start(_find_task(state))
        run_id = RunId(one.run.options.run_id)
        run_id.agent_run = one
        attach(run_id, one.run)
        finalize(run_id, _left.put, one)
        return run_id

    def _start(self, task: str, key: str | None = None) -> AgentRun:
        run = FrameworkRun(renew_run_id(self._options), LANGCHAIN, task)
        run.open()
        one = AgentRun(run, run.conversations.add(), is_own=True, is_resumable=_has_checkpointer())
        remember(self._runs, key or run.options.run_id, one)
        return one

    def _find_shared(self, run: FrameworkRun) -> AgentRun | None:
        """Return the run above, if this middleware opened it."""
        one = self._runs.get(run.options.run_id)
        return one if one is not None and one.run is run and run.is_open else None

    def _find(self, state: Any) -> AgentRun:
        """Return the run of a state. A graph that goes on after an interrupt has only the id from its checkpoint."""
        run_id: str = state["flyball_run_id"]
        if isinstance(run_id, RunId):
            return run_id.agent_run
        one = self._runs.get(run_id)
        if one is None or not one.run.is_open:
            return self._start("", run_id)  # in another process, or after the end
        if not one.active:
            one.run.postpone(one.run.now() - one.last_at, "interrupt")
        return one

    def _close(self, state: GovernedState) -> None:
        one = self._find(state)
        messages = state["messages"]
        text = messages[-1].text if messages and isinstance(messages[-1], AIMessage) else ""
        if one.is_own:
            one.run.complete(str(text) or str(state.get("structured_response", "")))
            one.close()


@contextmanager
def _activity(one: AgentRun, *, enters: bool = False) -> Generator[None]:
    """Note a request or a tool call, and its error. With `enters`, this is the run of agents that are called here."""
    one.active += 1
    token = one.run.enter(one.conversation) if enters else None
    try:
        yield
        one.error = None
    except GraphBubbleUp:  # an interrupt
        raise
    except BaseException as error:
        one.error = error
        attach(error, one.run)
        raise
    finally:
        one.active -= 1
        one.last_at = one.run.now()
        if token is not None:
            one.run.leave(token)


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


def _tell_timeout(request: ToolCallRequest) -> ToolMessage:
    call = request.tool_call
    text = f"{call['name']} took too long and was stopped."
    return ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"], status="error")


def _find_task(state: GovernedState) -> str:
    messages = state["messages"]
    return str(messages[-1].text) if messages else ""


def _has_checkpointer() -> bool:
    return bool(get_config().get("configurable", {}).get("__pregel_checkpointer"))
