"""Driver of the stories for the Claude Agent SDK. Its agents are programs; an agent that is a tool is another one."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import claude_agent_sdk  # pyright: ignore[reportMissingModuleSource]

from flyball.adapters import AdapterOptions, claude
from flyball.gateway import GatewayOptions

from ..stories.plan import MODEL, AgentPlan

sdk = cast("Any", claude_agent_sdk)


@dataclass
class ClaudeSession:
    """SDK whose program asks one provider."""

    variables: dict[str, str]
    folder: str

    def build(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan itself: the options need those of the run."""
        return plan

    async def run(self, agent: AgentPlan, options: AdapterOptions, *, streamed: bool = False) -> str:
        """Run an agent; return its final text."""
        own = sdk.ClaudeAgentOptions(env=self.variables, cwd=self.folder)
        given = GatewayOptions(options.limits, sinks=options.sinks, run_id=options.run_id)
        with claude.govern(own, options=given) as governed:
            return await self._ask(agent, governed, "Count.")

    async def _ask(self, plan: AgentPlan, governed: Any, task: str) -> str:
        functions: dict[str, Callable[..., Any]] = {function.__name__: function for function in plan.tools}
        functions |= {f"ask_{child.name}": self._delegate(child, governed) for child in plan.children}
        server = sdk.create_sdk_mcp_server("tools", tools=[_wrap(name, one) for name, one in functions.items()])
        options = replace(
            governed,
            model="claude-sonnet-4-5" if plan.model == MODEL else plan.model,
            system_prompt=plan.name,
            tools=[],
            mcp_servers={"tools": server},
            allowed_tools=[f"mcp__tools__{name}" for name in functions],
        )
        texts = [message.result async for message in sdk.query(prompt=task, options=options) if _is_result(message)]
        return str(texts[-1])

    def _delegate(self, child: AgentPlan, governed: Any) -> Callable[..., Any]:
        async def ask(input: str) -> str:
            return await self._ask(child, governed, input)

        return ask


def _is_result(message: Any) -> bool:
    return isinstance(message, sdk.ResultMessage)


def _wrap(name: str, function: Callable[..., Any]) -> Any:
    kinds = {parameter: str if parameter == "input" else int for parameter in inspect.signature(function).parameters}

    async def call(arguments: dict[str, Any]) -> dict[str, Any]:
        if inspect.iscoroutinefunction(function):
            text = await function(**arguments)
        else:
            text = await asyncio.to_thread(function, **arguments)
        return {"content": [{"type": "text", "text": str(text)}]}

    return sdk.tool(name, "A tool.", kinds)(call)


class ClaudeDriver:
    """Claude Agent SDK with its adapter."""

    title = "Claude Agent SDK"
    not_applicable: dict[str, str] = {"a handoff": "it has none"}  # noqa: RUF012
    seconds = 4.0  # its program takes 0.5 s to start
    tokens = 20_000  # and sends long instructions

    @asynccontextmanager
    async def open(self, url: str) -> AsyncGenerator[ClaudeSession]:
        """Return the SDK for a provider."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            variables = {
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_API_KEY": "sk-ant-test",
                "CLAUDE_CONFIG_DIR": folder,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",  # no request for a title
                "HOME": folder,
            }
            yield ClaudeSession(variables, folder)
