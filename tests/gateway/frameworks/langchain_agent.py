import sys

from langchain.agents import create_agent

MODELS = {"chat": "openai:gpt-4o", "messages": "anthropic:claude-sonnet-4-5"}


def add(a: int) -> str:
    """Add."""
    return "1"


agent = create_agent(MODELS[sys.argv[1]], tools=[add])
task, options = {"messages": [{"role": "user", "content": "Count for ever."}]}, {"recursion_limit": 10_000}
if "stream" in sys.argv:
    texts = [chunk.text for chunk, _ in agent.stream(task, options, stream_mode="messages") if chunk.text != "1"]
    print("".join(texts))
else:
    print(agent.invoke(task, options)["messages"][-1].content)
