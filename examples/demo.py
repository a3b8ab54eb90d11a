"""A real language model works twice inside limits: one run ends with an answer, the other has to be stopped.

`make demo` runs this. The model is SmolLM2, 135 million parameters, in this very process: no key, no network. Where its
weights cannot be had, a script plays its part, and says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

from rich.console import Console

from flyball import Agent, Limits, Result, tool
from flyball.cli.live import Lines, Live
from flyball.cli.output import print_line
from flyball.models import LocalModel, Model
from flyball.progress import Continue, Decision, Progress
from flyball.testing import ScriptedModel, call, say

SHORT_TASK = "Read the pressure gauge, then write the pressure into the log."
LIMITS = Limits(turns=8, tokens=12_000, seconds=600, nudges=8)
LONG_TASK = "Keep the steam engine at a pressure of 100. Never stop."
NOW = count(1)
"""Every call is another moment: results differ, or the run would end as stalled."""


@tool(effects="read", poll=True)
def read_gauge(gauge: str) -> str:
    """Read a gauge of the engine, such as pressure or water."""
    return f"the pressure is {90 + next(NOW) * 3}"


@tool(ends_run=True)
def write_log(pressure: int) -> str:
    """Write the pressure into the log. This completes the task."""
    return f"The log says: pressure {pressure}."


@tool
def open_valve(percent: int) -> str:
    """Open the steam valve by some percent."""
    return f"the valve is open by {percent} %, the pressure is {100 + next(NOW) * 4}"


@tool
def add_coal(shovels: int) -> str:
    """Put shovels of coal on the fire."""
    return f"{shovels} shovels burn, the pressure is {120 + next(NOW) * 5}"


def is_done(progress: Progress, /) -> Decision:
    """The model's word that all is well is not enough."""
    return Continue("The pressure is not 100. Use your tools.")


def choose_models(console: Console) -> tuple[Model, Model]:
    """The real one for both runs, or a script for each."""
    real = LocalModel("smollm2", max_output_tokens=60)
    lacks = real.ready()
    if lacks is None:
        return real, real
    console.print(f"(A script plays the model's part: {lacks}.)", markup=False)
    short = ScriptedModel(call("read_gauge", gauge="pressure"), call("write_log", pressure=93))
    report = say("I put coal on the fire. The pressure still rises. Next: less coal.")
    return short, ScriptedModel.looping(call("add_coal", shovels=25), grace=report)


def run(agent: Agent, task: str, console: Console) -> Result:
    """Show a run while it works."""
    view = Live(console) if console.is_terminal else Lines(console)
    with view, agent.start(task) as going:
        for event in going:
            view.show(event)
    return going.result()


def show_end(result: Result) -> None:
    """Show an answer; or the report of the model and, because a small model may err, the record beside it."""
    words = " ".join(result.text.split())
    if result.completed:
        print_line(words, head="answer   ")
    else:
        calls = ", ".join(f"{name} {n}" for name, n in count_calls(result).items())
        last = result.tool_results[-1].text
        print_line(f"{words} (the model's words)", head="report   ")
        print_line(f"calls done: {calls}; last result: {last} (Flyball's record)", head="record   ")
    print_line(result.warning or "It ended with an answer.", head=f"{result.stop.value:8} ")
    print_line(f"{', '.join(result.list_used())}, {result.seconds:.1f} s", head="used     ")
    print()


def count_calls(result: Result) -> dict[str, int]:
    """Calls that succeeded, by tool."""
    names = [outcome.tool for outcome in result.tool_results if outcome.ok]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def main() -> None:
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    short_model, long_model = choose_models(console)
    print_line(SHORT_TASK, head="task 1   ")
    reader = Agent(model=short_model, tools=[read_gauge, write_log], limits=LIMITS)
    show_end(run(reader, SHORT_TASK, console))
    print_line(LONG_TASK, head="task 2   ")
    stoker = Agent(
        model=long_model,
        tools=[read_gauge, open_valve, add_coal],
        instructions="You run a steam engine. Use your tools.",
        limits=LIMITS,
        completion=is_done,
    )
    result = run(stoker, LONG_TASK, console)
    show_end(result)
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        record.write_text(json.dumps(result.to_dict()))
        print("$ flyball why", flush=True)
        subprocess.run([sys.executable, "-m", "flyball", "why", str(record)], check=True)


if __name__ == "__main__":
    main()
