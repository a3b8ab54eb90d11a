import sys

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.usage import UsageLimits

MODELS = {"chat": "openai-chat:gpt-4o", "responses": "openai:gpt-4o", "messages": "anthropic:claude-sonnet-4-5"}


class Answer(BaseModel):
    text: str


agent = Agent(MODELS[sys.argv[1]], output_type=Answer if "typed" in sys.argv else str)


@agent.tool_plain
def add(a: int) -> str:
    """Add."""
    return "1"


print(agent.run_sync("Count for ever.", usage_limits=UsageLimits(request_limit=None)).output)
