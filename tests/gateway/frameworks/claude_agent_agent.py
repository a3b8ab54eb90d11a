import asyncio
import sys

from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, ResultMessage, query

options = ClaudeAgentOptions(
    allowed_tools=["Read", "Agent"], setting_sources=[], model="claude-sonnet-4-5", max_turns=1000
)
if "child" in sys.argv[1:]:
    options.agents = {"counter": AgentDefinition(description="Counts.", prompt="Count.", background=True)}


async def main() -> str:
    text = ""
    async for message in query(prompt="Count for ever.", options=options):
        if isinstance(message, ResultMessage):
            text = message.result or ""
    return text


print(asyncio.run(main()))
