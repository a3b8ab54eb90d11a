"""An agent that is watched, steered and stopped by its limits.

Prints:
    turn 1: search
    steered: Only steam engines.
    turn 2: search
    refused: max_agent_iterations_reached
    budget: I found two books about steam engines.
"""

from flyball import Agent, Limits, tool
from flyball.event import BudgetRefused, Steered, ToolEnded
from flyball.testing import ScriptedModel, call, say


@tool(effects="read")
def search(query: str) -> list[str]:
    """Search the library."""
    return [f"{query}, volume 1", f"{query}, volume 2"]


model = ScriptedModel.looping(call("search", query="engines"), grace=say("I found two books about steam engines."))
agent = Agent(model=model, tools=[search], limits=Limits(turns=2))
waiting = agent.open("Find books about engines.")  # not begun yet, so that what is said now comes in time
waiting.steer("Only steam engines.")
for event in waiting.begin():
    match event:
        case ToolEnded():
            print(f"turn {event.turn}: {event.tool}")
        case Steered():
            print(f"steered: {event.text}")
        case BudgetRefused():
            print(f"refused: {event.flag}")
        case _:
            pass
result = waiting.result()
print(f"{result.stop}: {result.text}")
