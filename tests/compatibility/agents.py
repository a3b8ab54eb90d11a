"""The agents whose runs stand in `runs-*.db`, and the program that writes such a file.

`python agents.py PATH` writes a new file with the code that is installed. A file that is committed is never written
again: it shows that runs stored by that version can still be read and resumed.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from flyball import Agent, Limits, tool
from flyball.store import SqliteStore
from flyball.testing import Line, ScriptedModel, call, say, together
from flyball.tools import ToolContext

DELEGATE = call("delegate", tasks=[{"child": "helper", "goal": "Look it up."}, {"child": "helper", "goal": "Again."}])
LINES: dict[str, tuple[Line, ...]] = {
    "completed": (
        call("add", a=1, b=2),
        DELEGATE,
        call("look", what="nothing"),
        call("remember", text="three"),
        say("It is three."),
    ),
    "killed": (
        call("remember", text="begun"),
        together(call("add", a=2, b=2), call("look", what="x")),
        DELEGATE,
        call("stop_here"),
        say("It is four."),
    ),
    "paused": (call("add", a=1, b=1), call("erase", what="all"), say("It is erased.")),
    "limited": (*[call("add", a=n, b=n) for n in range(4)], say("It is six.")),
    "talk-1": (say("Hello."),),
    "talk-2": (call("recall"), say("You said hello.")),
}
"""What the model says in each run, by its id."""
ENDS = {"completed": "completed", "paused": "paused", "limited": "budget", "talk-1": "completed", "talk-2": "completed"}
"""The stop of each run that ended."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effects="read", idempotent=True)
def look(what: str) -> dict[str, Any]:
    """Look something up; its value has a part that JSON has no type for."""
    if what == "nothing":
        raise ValueError("there is nothing to look up")
    return {"what": what, "pair": (1, 2.5)}


@tool
def remember(text: str, ctx: ToolContext) -> str:
    """Keep something in the session."""
    ctx.state["remembered"] = text
    return f"remembered {text}"


@tool
def recall(ctx: ToolContext) -> str:
    """Tell what was kept."""
    return str(ctx.state.get("remembered"))


@tool(approve=True)
def erase(what: str) -> str:
    """Erase something, if a person agrees."""
    return f"erased {what}"


@tool(idempotent=True)
def stop_here() -> str:
    """Kill this process, if it was told to."""
    if os.environ.get("KILL"):
        os.kill(os.getpid(), signal.SIGKILL)
    return "went on"


def agent_for(run_id: str, store: SqliteStore) -> Agent:
    """Build the agent of a run."""
    tools = [add, look, remember, recall, erase, stop_here]
    helper = Agent(
        name="helper", model=ScriptedModel(call("look", what="y"), say("Found.")), tools=tools[:2], settings={}
    )
    return Agent(
        name="clerk",
        model=ScriptedModel(*LINES[run_id], grace=say("I have no turns left.")),
        tools=tools,
        children=[helper],
        limits=Limits(turns=2 if run_id == "limited" else 20, tool_calls=50, tokens=200_000, seconds=3_600),
        max_output_tokens=500,
        settings={},
        store=store,
    )


def run(path: str, run_id: str) -> None:
    """Run one agent on a file."""
    with SqliteStore(path) as store:
        agent_for(run_id, store).run(
            f"Do {run_id}.", run_id=run_id, session="talk" if run_id.startswith("talk") else run_id
        )


def write(path: Path) -> None:
    """Write all runs to a new file, each in a process of its own."""
    for run_id in LINES:
        environment = {**os.environ, "KILL": "yes"}
        done = subprocess.run([sys.executable, __file__, str(path), run_id], env=environment, check=False)
        assert done.returncode == (-signal.SIGKILL if run_id == "killed" else 0)


if __name__ == "__main__":
    run(*sys.argv[1:]) if len(sys.argv) > 2 else write(Path(sys.argv[1]))
