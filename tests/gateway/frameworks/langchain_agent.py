import sys
from dataclasses import dataclass

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy

MODELS = {"chat": "openai:gpt-4o", "messages": "anthropic:claude-sonnet-4-5"}


def add(a: int) -> str:
    """Add."""
    return "1"


@dataclass
class Answer:
    text: str


FORMATS = {"typed": ProviderStrategy(Answer), "called": ToolStrategy(Answer)}
wanted = next((FORMATS[name] for name in FORMATS if name in sys.argv), None)
agent = create_agent(MODELS[sys.argv[1]], tools=[add], response_format=wanted)
task, options = {"messages": [{"role": "user", "content": "Count for ever."}]}, {"recursion_limit": 10_000}
if "stream" in sys.argv:
    texts = [chunk.text for chunk, _ in agent.stream(task, options, stream_mode="messages") if chunk.text != "1"]
    print("".join(texts))
else:
    result = agent.invoke(task, options)
    print(result.get("structured_response") or result["messages"][-1].content)
