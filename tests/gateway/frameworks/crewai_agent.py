import os
import sys

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

MODELS = {"chat": "openai/gpt-4o", "messages": "anthropic/claude-sonnet-4-5"}


@tool("add")
def add(a: int) -> str:
    """Add."""
    return "1"


llm = LLM(model=MODELS[sys.argv[1]])
agent = Agent(role="counter", goal="Count.", backstory="You count.", tools=[add], llm=llm, max_iter=1000, verbose=False)
task = Task(description="Count for ever.", expected_output="A number.", agent=agent)
print(Crew(agents=[agent], tasks=[task], verbose=False, tracing=False).kickoff().raw)
