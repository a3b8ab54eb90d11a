"""Adapter for pydantic-ai 2.x.

    result = await pydantic_ai.run(agent, "task", limits=Limits(turns=10))

At a limit, the model gets a last request, and its report or typed answer is the output of the agent's own run.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from .adapter_options import AdapterOptions, choose_options
from .frameworks import PYDANTIC_AI

if TYPE_CHECKING:
    from typing import Unpack

    from pydantic_ai import Agent, AgentRunResult, ModelSettings, UsageLimits
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelMessage, UserContent
    from pydantic_ai.models import Model
    from pydantic_ai.tools import DeferredToolResults
    from pydantic_ai.toolsets import AbstractToolset
    from pydantic_ai.usage import RunUsage

    from ..budget.limits import Limits
    from .pydantic_ai_capability import GovernCapability

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")


class AgentRunArguments(TypedDict, total=False):
    """Arguments of `Agent.run` that are passed on."""

    message_history: Sequence[ModelMessage] | None
    deferred_tool_results: DeferredToolResults | None
    conversation_id: str | None
    model: Model | str | None
    instructions: Any
    deps: Any
    model_settings: ModelSettings | None
    usage_limits: UsageLimits | None
    usage: RunUsage | None
    metadata: Any
    retries: Any
    infer_name: bool
    toolsets: Sequence[AbstractToolset[Any]] | None
    event_stream_handler: Any
    capabilities: Sequence[AbstractCapability[Any]] | None


def govern(limits: Limits | None = None, *, options: AdapterOptions | None = None) -> GovernCapability:
    """Return a capability that keeps each run of an agent inside limits: `Agent(..., capabilities=[govern(limits)])`.

    It also works with `agent.run_stream(..., capabilities=[...])` and all other ways to run an agent. An agent that a
    governed agent calls in a tool needs it too. Its runs then also draw on the budgets of the run above.
    """
    PYDANTIC_AI.load()
    from .pydantic_ai_capability import GovernCapability

    return GovernCapability(choose_options(limits, options))


async def run(
    agent: Agent[DepsT, OutputT],
    user_prompt: str | Sequence[UserContent] | None = None,
    *,
    limits: Limits | None = None,
    options: AdapterOptions | None = None,
    **arguments: Unpack[AgentRunArguments],
) -> AgentRunResult[OutputT]:
    """Run an agent as `agent.run` does, within limits; return pydantic-ai's own result.

    Pass limits, or options with more than limits. `result_of(returned)` has the reason for the end, and the usage.
    """
    with _hold(govern(limits, options=options), arguments) as held:
        return await agent.run(user_prompt, **held)


def run_sync(
    agent: Agent[DepsT, OutputT],
    user_prompt: str | Sequence[UserContent] | None = None,
    *,
    limits: Limits | None = None,
    options: AdapterOptions | None = None,
    **arguments: Unpack[AgentRunArguments],
) -> AgentRunResult[OutputT]:
    """Run an agent in the same way as `run`, as `agent.run_sync` does."""
    with _hold(govern(limits, options=options), arguments) as held:
        return agent.run_sync(user_prompt, **held)


@contextmanager
def _hold(capability: GovernCapability, arguments: AgentRunArguments) -> Generator[dict[str, Any]]:
    """Choose the capability for the run; the value is its arguments, without pydantic-ai's own limit of 50 requests."""
    from pydantic_ai import UsageLimits

    from .pydantic_ai_capability import chosen

    capabilities = [capability, *(arguments.get("capabilities") or ())]
    token = chosen.set(capability)
    try:
        yield {"usage_limits": UsageLimits(request_limit=None), **arguments, "capabilities": capabilities}
    finally:
        chosen.reset(token)
