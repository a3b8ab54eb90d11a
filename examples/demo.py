"""A real language model runs a steam engine, and nothing but its limits will stop it. `make demo` runs this.

The model is SmolLM2, 135 million parameters, in this very process: no key, no network. Where its weights cannot be
had, a script plays its part, and says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flyball import Agent, Limits, Result, tool
from flyball.cli.live import Lines, Live
from flyball.models import LocalModel, Model
from flyball.progress import Continue, Decision, Progress
from flyball.testing import ScriptedModel, call, say

LIMITS = Limits(turns=8, tokens=12_000, seconds=600, nudges=8)
TASK = "Keep the steam engine at a pressure of 100. Never stop."
NOW = count(1)
"""Every call is another moment: results differ, or the run would end as stalled."""


@tool(effects="read", poll=True)
def read_gauge(gauge: str) -> str:
    """Read a gauge of the engine, such as pressure or water."""
    return f"{gauge or 'pressure'}: {90 + next(NOW) * 3}, rising"


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


def model_of(console: Console) -> Model:
    """The real one, or the script."""
    real = LocalModel("smollm2", max_output_tokens=48)
    lacks = real.ready()
    if lacks is None:
        return real
    console.print(f"(A script plays the model's part: {lacks}.)")
    return ScriptedModel.looping(
        call("add_coal", shovels=25),
        call("read_gauge", gauge="pressure"),
        call("open_valve", percent=25),
        grace=say("I put coal on the fire and opened the valve. The pressure still rises. Next: less coal."),
    )


def run(console: Console) -> Result:
    """Watch it run away, be warned, be stopped, and report."""
    view = Live(console) if console.is_terminal else Lines(console)
    agent = Agent(
        model=model_of(console),
        tools=[read_gauge, open_valve, add_coal],
        instructions="You run a steam engine. Use your tools.",
        limits=LIMITS,
        completion=is_done,
        hooks=[view.watch],
    )
    with view, agent.start(TASK) as going:
        for event in going:
            view.show(event)
    return going.result()


def ledger(result: Result) -> Table:
    """What was used of what."""
    table = Table("budget", "used", "of", box=None, pad_edge=False, header_style="dim")
    for name, budget in result.budgets.items():
        if budget.used:
            table.add_row(name, budget.unit.show(budget.used), budget.unit.show(budget.ceiling))
    return table


def main() -> None:
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    result = run(console)
    console.print(f"report   {' '.join(result.text.split())}", markup=False)
    console.print(f"{result.stop.value:8} {result.warning or ''}\n")
    console.print(ledger(result))
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        record.write_text(json.dumps(result.to_dict()))
        console.print("\n$ flyball why")
        subprocess.run([sys.executable, "-m", "flyball", "why", str(record)], check=True)


if __name__ == "__main__":
    main()
