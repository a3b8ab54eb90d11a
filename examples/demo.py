"""A stubborn agent under tight limits: it is refused, and reports. `make demo` runs this, offline and without a key.

The model is a script: it looks, reads and tests, differently each time, and would never stop by itself.
"""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from flyball import Agent, Limits, tool
from flyball.event import BudgetRefused, Event, GraceStarted, ModelReplied, ToolEnded, ToolStarted, TurnStarted
from flyball.testing import ScriptedModel, call, say, together

CEILINGS = {"turns": 6, "tool_calls": 8, "tokens": 3_000}
LIMITS = Limits(turns=6, tool_calls=8, tokens=3_000, seconds=60)


def work() -> None:
    """So that there is something to watch."""
    time.sleep(0.1)


@tool(effects="read")
def list_files(folder: str) -> list[str]:
    """List the files of a folder."""
    work()
    return [f"{folder}/{name}.py" for name in ("engine", "valve", "boiler")]


@tool(effects="read")
def read_file(path: str) -> str:
    """Read a file."""
    work()
    return f"# {path}: forty lines about steam"


@tool
def run_tests(only: str) -> str:
    """Run the tests of one part."""
    work()
    raise RuntimeError(f"2 tests of {only} fail")


MODEL = ScriptedModel.looping(
    say("Let me look around.", call("list_files", folder="src")),
    together(call("read_file", path="src/engine.py"), call("read_file", path="src/valve.py")),
    call("run_tests", only="valve"),
    call("read_file", path="src/boiler.py"),
    call("run_tests", only="boiler"),
    grace=say("I read three files. The tests of valve and boiler fail. Next: the two failures of valve."),
)


class Screen:
    """Bars on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        count = TextColumn("{task.completed:,} of {task.total:,}")
        bar = BarColumn(40, complete_style="cyan", finished_style="red")  # else grey on grey, where colours are few
        columns = (TextColumn("{task.description:>12}"), bar, count)
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self.bars = {name: self.progress.add_task(name, total=most) for name, most in CEILINGS.items()}
        self.calls: dict[str, str] = {}

    def show(self, event: Event) -> None:
        """One event."""
        match event:
            case TurnStarted():
                self.progress.advance(self.bars["turns"])
            case ModelReplied():
                self.progress.advance(self.bars["tokens"], event.input_tokens + event.output_tokens)
            case ToolStarted():
                given = ", ".join(f"{name}={value!r}" for name, value in (event.arguments or {}).items())
                self.calls[event.call_id] = f"{event.tool}({given})"
                self.progress.advance(self.bars["tool_calls"])
            case ToolEnded():
                self.line(f"turn {event.turn}", f"{self.calls.get(event.call_id, event.tool)}: {event.status}")
            case BudgetRefused():
                self.line("refused", event.flag)
            case GraceStarted():
                self.line("grace", "one last request, without tools, from what was set aside")
            case _:
                pass

    def line(self, head: str, text: str) -> None:
        """A line, above the bars."""
        self.progress.console.print(f"{head:8} {text}", markup=False)


def main() -> None:
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    agent = Agent(model=MODEL, tools=[list_files, read_file, run_tests], limits=LIMITS)
    screen = Screen(console)
    with screen.progress, agent.start("Make the tests pass.") as run:
        for event in run:
            screen.show(event)
    result = run.result()
    screen.line("report", result.text)
    screen.line(result.stop.value, result.explain())


if __name__ == "__main__":
    main()
