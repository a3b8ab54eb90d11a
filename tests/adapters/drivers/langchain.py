"""Driver of the stories for LangChain."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import SecretStr

from flyball.adapters import AdapterOptions, langchain

from ..stories.plan import AgentPlan

TASK: Any = {"messages": [HumanMessage("Count.")]}


@dataclass
class LangChainSession:
    """LangChain with models at one provider."""

    url: str
    agents: dict[str, Any] = field(default_factory=dict[str, Any])

    def build(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan: an agent is created with the middleware of its run."""
        return plan

    def create(self, plan: AgentPlan, middleware: Any) -> Any:
        """Return the agent of a plan, or a graph of agents that hand over. All have the same middleware."""
        if not plan.handoffs:
            return self.create_agent(plan, middleware)
        graph: Any = StateGraph(MessagesState)
        for one in (plan, *plan.handoffs):
            graph.add_node(one.name, self.create_agent(one, middleware))
        return graph.add_edge(START, plan.name).compile()

    def create_agent(self, plan: AgentPlan, middleware: Any) -> Any:
        """Return one agent."""
        model = ChatOpenAI(model=plan.model, base_url=f"{self.url}/v1", api_key=SecretStr("key"), stream_usage=False)
        tools: list[Any] = [tool(function) for function in plan.tools]
        tools += [self.create_tool(child, middleware) for child in plan.children]
        tools += [create_handoff(other.name) for other in plan.handoffs]
        create: Any = create_agent
        return create(model, tools, middleware=[middleware], name=plan.name)

    def create_tool(self, plan: AgentPlan, middleware: Any) -> Any:
        """Return a tool that asks an agent."""
        agent = self.create(plan, middleware)

        async def ask(input: str) -> str:
            """Ask an agent."""
            return (await agent.ainvoke(TASK))["messages"][-1].text

        ask.__name__ = f"ask_{plan.name}"
        return tool(ask)

    async def run(self, agent: Any, options: AdapterOptions, *, streamed: bool = False) -> str:
        """Run an agent; return its final text."""
        created = self.create(agent, langchain.govern(options=options))
        if not streamed:
            return str((await created.ainvoke(TASK))["messages"][-1].text)
        text = ""
        async for chunk, _ in created.astream(TASK, stream_mode="messages"):
            text += str(chunk.text) if isinstance(chunk, AIMessage) else ""
        return text


def create_handoff(name: str) -> Any:
    """Return a tool that goes to another agent of the graph."""

    @tool(f"transfer_to_{name}")
    def transfer(runtime: ToolRuntime) -> Command[Any]:
        """Hand the conversation over."""
        result = ToolMessage("Done.", tool_call_id=runtime.tool_call_id)
        return Command(goto=name, graph=Command.PARENT, update={"messages": [*runtime.state["messages"], result]})

    return transfer


class LangChainDriver:
    """LangChain with its adapter."""

    title = "LangChain"
    not_applicable: dict[str, str] = {}  # noqa: RUF012

    @asynccontextmanager
    async def open(self, url: str) -> AsyncGenerator[LangChainSession]:
        """Open LangChain for a provider."""
        yield LangChainSession(url)
