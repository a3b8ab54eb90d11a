"""A task is not done because the model says so: it is done when its evidence is there.

Prints:
    nudged: required tool publish
    denied: Not run (rule): publish may not be called before review has succeeded. Call review first.
    completed: The page is out.
    satisfied: required tool publish
"""

from flyball import run_conversation, tool
from flyball.event import Event, Nudged
from flyball.testing import ScriptedModel, call, say


@tool(effects="read")
def review(page: str) -> str:
    """Review a page."""
    return "good"


@tool
def publish(page: str) -> str:
    """Publish a page."""
    return f"https://example.org/{page}"


def show(event: Event) -> None:
    if isinstance(event, Nudged):
        print(f"nudged: {', '.join(event.missing)}")


result = run_conversation(
    "Publish the page about steam.",
    [review, publish],
    ScriptedModel(
        say("I have published it."),
        call("publish", page="steam"),
        call("review", page="steam"),
        call("publish", page="steam"),
        say("The page is out."),
    ),
    completion={"required_tool_names": ["publish"]},
    tool_rules=[{"tool": "publish", "require_prior_tool": "review"}],
    sinks=[show],
)
for outcome in result.tool_results:
    if not outcome.ok:
        print(f"{outcome.status}: {outcome.text}")
print(f"{result.stop}: {result.text}")
print(f"satisfied: {', '.join(result.completion['satisfied'])}")
