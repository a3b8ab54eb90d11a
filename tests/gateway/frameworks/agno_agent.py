import sys

from agno.agent import Agent
from agno.models.anthropic import Claude
from agno.models.openai import OpenAIChat, OpenAIResponses

MODELS = {
    "chat": OpenAIChat(id="gpt-4o"),
    "responses": OpenAIResponses(id="gpt-4o"),
    "messages": Claude(id="claude-sonnet-4-5"),
}


def add(a: int) -> str:
    """Add."""
    return "1"


print(Agent(model=MODELS[sys.argv[1]], tools=[add], telemetry=False).run("Count for ever.").content)
