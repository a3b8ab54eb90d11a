"""Adapter for the OpenAI Agents SDK.

    result = await openai_agents.run(agent, "task", limits=Limits(turns=10))

At a limit, each agent gets a last request for a report, and the run returns it as its final output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from .adapter_options import AdapterOptions, choose_options
from .framework_run import FrameworkRun
from .frameworks import OPENAI_AGENTS
from .results import attach

if TYPE_CHECKING:
    from typing import Unpack

    from agents import Agent, RunConfig, RunErrorHandlers, RunHooks, RunResult, RunResultStreaming, RunState, Session
    from agents.items import TResponseInputItem

    from ..budget.limits import Limits

_UNLIMITED_TURNS = 1_000_000
"""Turns of the SDK's own limit, which would raise. Flyball's limit is reached earlier."""


class RunnerArguments(TypedDict, total=False):
    """Arguments of `agents.Runner.run` that are passed on."""

    context: Any
    max_turns: int | None
    hooks: RunHooks[Any] | None
    run_config: RunConfig | None
    error_handlers: RunErrorHandlers[Any] | None
    previous_response_id: str | None
    auto_previous_response_id: bool
    conversation_id: str | None
    session: Session | None


async def run(
    agent: Agent[Any],
    input: str | list[TResponseInputItem] | RunState[Any],
    *,
    limits: Limits | None = None,
    options: AdapterOptions | None = None,
    **arguments: Unpack[RunnerArguments],
) -> RunResult:
    """Run an agent as `Runner.run` does, within limits; return the SDK's own result.

    Pass limits, or options with more than limits. `result_of(returned)` has the reason for the end, and the usage.
    """
    runner = OPENAI_AGENTS.load().Runner
    governed = FrameworkRun(choose_options(limits, options), OPENAI_AGENTS, _describe(input))
    try:
        with governed:
            returned = await runner.run(agent, input, **_hold(governed, arguments))
            _finish(governed, returned)
    except Exception as error:
        attach(error, governed)
        raise
    attach(returned, governed)
    return returned


def run_sync(
    agent: Agent[Any],
    input: str | list[TResponseInputItem] | RunState[Any],
    *,
    limits: Limits | None = None,
    options: AdapterOptions | None = None,
    **arguments: Unpack[RunnerArguments],
) -> RunResult:
    """Run an agent in the same way as `run`, as `Runner.run_sync` does."""
    runner = OPENAI_AGENTS.load().Runner
    governed = FrameworkRun(choose_options(limits, options), OPENAI_AGENTS, _describe(input))
    try:
        with governed:
            returned = runner.run_sync(agent, input, **_hold(governed, arguments))
            _finish(governed, returned)
    except Exception as error:
        attach(error, governed)
        raise
    attach(returned, governed)
    return returned


def run_streamed(
    agent: Agent[Any],
    input: str | list[TResponseInputItem] | RunState[Any],
    *,
    limits: Limits | None = None,
    options: AdapterOptions | None = None,
    **arguments: Unpack[RunnerArguments],
) -> RunResultStreaming:
    """Run an agent in the same way as `run`, as `Runner.run_streamed` does.

    Flyball's result is there when the stream is read to its end.
    """
    runner = OPENAI_AGENTS.load().Runner
    governed = FrameworkRun(choose_options(limits, options), OPENAI_AGENTS, _describe(input))
    governed.open()
    token = governed.enter()
    try:
        returned = runner.run_streamed(agent, input, **_hold(governed, arguments))
    except BaseException as error:
        governed.close(error)
        raise
    finally:
        governed.leave(token)
    attach(returned, governed)
    from .openai_model import close_with_stream

    close_with_stream(returned, governed, _finish)
    return returned


def _hold(governed: FrameworkRun, arguments: RunnerArguments) -> dict[str, Any]:
    """Return the arguments for the runner, with the model that asks the governed run first."""
    from .openai_model import hold_models

    config = hold_models(governed, arguments.get("run_config"))
    return {"max_turns": _UNLIMITED_TURNS, **arguments, "run_config": config}


def _finish(governed: FrameworkRun, returned: RunResult | RunResultStreaming) -> None:
    if returned.interruptions:
        governed.pause()
    else:
        governed.complete("" if returned.final_output is None else str(returned.final_output))


def _describe(input: object) -> str:
    return input if isinstance(input, str) else ""
