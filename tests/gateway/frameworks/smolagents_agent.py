import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def add(a: int) -> str:
    """Add.

    Args:
        a: a number
    """
    return "1"


kind = CodeAgent if sys.argv[1] == "code" else ToolCallingAgent
agent = kind(tools=[add], model=OpenAIServerModel("gpt-4o"), max_steps=1000, verbosity_level=0)
print(agent.run("Count for ever."))
