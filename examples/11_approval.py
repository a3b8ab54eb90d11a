"""A person in the loop: `delete` asks first. At a terminal you are asked; else the run pauses, and goes on later.

Prints:
    May delete be called with {"path": "draft.txt"}? (y, n, or e {"argument": ...}; text after y or n is passed on)
    paused: 1 question, and nothing is done yet
    list_files: ["draft.txt","steam.txt"]
    delete: Not run (approval): Not without me.
    completed: I have looked, and deleted nothing.
"""

from flyball import Agent, tool
from flyball.person import ask_on_terminal, deny
from flyball.testing import ScriptedModel, call, say, together


@tool(effects="read")
def list_files() -> list[str]:
    """List the files."""
    return ["draft.txt", "steam.txt"]


@tool(approve=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


agent = Agent(
    model=ScriptedModel(
        together(call("list_files"), call("delete", path="draft.txt")),
        say("I have looked, and deleted nothing."),
    ),
    tools=[list_files, delete],
    approver=ask_on_terminal,
)
result = agent.run("Tidy up.")
if result.questions:  # nobody was there
    print(f"{result.stop}: {len(result.questions)} question, and nothing is done yet")
    result = agent.resume(result, answers={question.id: deny("Not without me.") for question in result.questions})
for outcome in result.tool_results:
    print(f"{outcome.tool}: {outcome.text}")
print(f"{result.stop}: {result.text}")
