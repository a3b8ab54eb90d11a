"""Capability of pydantic-ai agents: opens and closes runs, and passes requests and tool calls on."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_ai import Agent, AgentRunResult, DeferredToolRequests, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition

from .._internal.timeouts import TimeIsOver, await_within
from ..errors import UsageError
from ..result import Result
from .adapter_options import AdapterOptions, choose_options
from .framework_run import FrameworkRun
from .frameworks import PYDANTIC_AI
from .pydantic_ai_model import PydanticAIPort, describe_request
from .results import attach, remember
from .tool_threads import TOOL_THREADS

_governed: ContextVar[str | None] = ContextVar("flyball_pydantic_ai_governed", default=None)
"""Id of the agent's run that is governed here, so that a second capability leaves it alone."""
chosen: ContextVar[GovernCapability | None] = ContextVar("flyball_pydantic_ai_chosen", default=None)
"""Capability that governs the run which begins here. None means the first one that the agent has."""


class GovernCapability(AbstractCapability[Any]):
    """Keeps each run of an agent inside limits. Several agents may share one object."""

    def __init__(self, options: AdapterOptions) -> None:
        self._options = replace(options)  # whose run id no run has yet
        self._runs: dict[str, FrameworkRun] = {}
        """Runs by pydantic-ai's own ids, newest last."""

    def result(self, run_id: str | None = None) -> Result:
        """Return the result of a run, by pydantic-ai's `run_id`. None means the newest.

        Raises UsageError if the run is not known, or has not ended.
        """
        if not self._runs if run_id is None else run_id not in self._runs:
            raise UsageError("no run of this capability is known" if run_id is None else f"run {run_id} is not known")
        return self._runs[next(reversed(self._runs)) if run_id is None else run_id].result

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Return the capability of one run."""
        return _GovernedAgentRun(self, self._options, self._runs)


class _GovernedAgentRun(AbstractCapability[Any]):
    """Capability of one run of an agent."""

    def __init__(self, capability: GovernCapability, options: AdapterOptions, runs: dict[str, FrameworkRun]) -> None:
        self._capability = capability
        self._options = options
        self._runs = runs
        self._run: FrameworkRun | None = None
        """None before the run, and if another capability governs it."""

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> AgentRunResult[Any]:
        """Open a run, and close it with the output of the agent."""
        other = chosen.get() or self._capability
        if _governed.get() == ctx.run_id or other is not self._capability:
            return await handler()
        task = ctx.prompt if isinstance(ctx.prompt, str) else ""
        governed = FrameworkRun(choose_options(None, self._options), PYDANTIC_AI, task)
        governed.open()
        remember(self._runs, ctx.run_id or governed.options.run_id, governed)
        self._conversation = governed.conversations.add(_find_name(ctx))
        self._run = governed
        tokens = _governed.set(ctx.run_id), chosen.set(None), governed.enter(self._conversation)
        try:
            returned = await handler()
        except BaseException as error:
            governed.close(error)
            attach(error, governed)
            raise
        finally:
            _governed.reset(tokens[0])
            chosen.reset(tokens[1])
            governed.leave(tokens[2])
        if isinstance(returned.output, DeferredToolRequests):
            governed.pause()
        else:
            governed.complete(str(returned.output))
        governed.close()
        attach(returned, governed)
        return returned

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any
    ) -> ModelResponse:
        """Make a request to the model as a turn of the run, or as its last request."""
        if self._run is None:
            return await handler(request_context)
        port = PydanticAIPort(request_context, handler)
        asked = describe_request(request_context, port.parameters, self._conversation.counted)
        return await self._run.aask(self._conversation, asked, port)

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any], handler: Any
    ) -> Any:
        """Make a tool call within the time of the run."""
        if self._run is None:
            return await handler(args)
        try:
            with Agent.using_thread_executor(TOOL_THREADS):
                return await await_within(self._run.find_tool_seconds(call.tool_name), partial(handler, args))
        except TimeIsOver:
            return f"{call.tool_name} took too long and was stopped."


def _find_name(ctx: RunContext[Any]) -> str:
    return str(getattr(getattr(ctx, "agent", None), "name", None) or "")
