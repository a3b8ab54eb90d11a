import asyncio
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled
from pydantic import BaseModel

set_tracing_disabled(True)
wire, *more = sys.argv[1:]
set_default_openai_api("chat_completions" if wire == "chat" else "responses")


@function_tool
def add(a: int) -> str:
    """Add."""
    return "1"


class Answer(BaseModel):
    text: str


kind = Answer if "typed" in more else None
agent = Agent(name="counter", instructions="Count.", tools=[add], model="gpt-4o", output_type=kind)
if "handoff" in more:
    agent = Agent(name="greeter", instructions="Hand off.", handoffs=[agent], model="gpt-4o")
if "child" in more:
    child = agent.as_tool(tool_name="child", tool_description="Ask a child.")
    agent = Agent(name="parent", instructions="Ask.", tools=[child], model="gpt-4o")


options = {"max_turns": 1000} | ({"auto_previous_response_id": True} if "state" in more else {})


async def stream() -> str:
    result = Runner.run_streamed(agent, "Count for ever.", **options)
    async for _ in result.stream_events():
        pass
    return result.final_output


if "stream" in more:
    print(asyncio.run(stream()))
else:
    print(Runner.run_sync(agent, "Count for ever.", **options).final_output)
