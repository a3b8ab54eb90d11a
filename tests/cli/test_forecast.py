"""The forecast on the command line: in the lines of a run, in the live view, and of a run that has not ended."""

import subprocess
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from flyball import Agent, Limits, tool
from flyball.cli.live import Live
from flyball.cli.report import render_report
from flyball.history.archive import Archive
from flyball.progress import Point, Progress
from flyball.request import Usage
from flyball.result import Result
from flyball.testing import ManualClock, ScriptedModel, call, say

Typed = Callable[..., subprocess.CompletedProcess[str]]
REPLY = """
[[reply]]
calls = [{{ name = "list_files", arguments = {{ depth = {} }} }}]
usage = {{ input = 400, output = 100 }}
"""
SCRIPT = "".join(map(REPLY.format, range(1, 10))) + '[grace]\ntext = "I listed files."\n'


@tool(poll=True)
def look() -> str:
    """Look."""
    return "steam"


def run(clock: ManualClock, hooks: Any = (), run_id: str = "cccc3333") -> Result:
    model = ScriptedModel.looping(call("look").using(Usage(400, 100)), grace=say("I looked."))
    agent = Agent(model=model, tools=[look], limits=Limits(tokens=10_000), hooks=hooks, clock=clock)
    return agent.run("Look.", run_id=run_id)


def test_the_warning_of_a_run_tells_which_limit_comes_first(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text(SCRIPT)
    options = ("--model=script:script.toml", "--toolbox=files", "--turns=8", "--tokens=90000")
    done = typed("run", "Go on.", *options)
    [warned] = [line for line in done.stderr.splitlines() if line.startswith("warned")]
    assert warned == "warned   turns: 6 of 8; turns will end after about 2 more turns"
    assert "turns: 6 of 8; turns will end after about 2 more turns" in typed("why", "--markdown").stdout


def test_the_live_view_has_it_below_the_bars() -> None:
    console, screens = Console(width=80, file=StringIO(), height=30), list[str]()
    view = Live(console)

    def note(point: Point, progress: Progress, about: object = None) -> None:
        view.watch(point, progress, about)
        if point is Point.TURN_STARTED:
            with console.capture() as capture:
                console.print(view)
            screens.append(capture.get())

    run(ManualClock(), [note])
    assert "more turn" not in screens[2]
    assert "tokens will end after about 12 more turns" in screens[3]
    assert "tokens will end with this turn" in screens[-1]


def test_a_run_that_was_killed_tells_what_would_come(stock: Any) -> None:
    stock.keep(run(stock.clock), killed=(45, 17))
    with stock.open() as store:
        archive = Archive(store, "a store")
        record = archive.build_record(archive.find_run("cccc3333"))
    shown = render_report(record, Console(width=100, file=StringIO()))
    assert "forecast\n  At this pace, tokens will end after about" in shown


def test_a_run_that_ended_has_no_forecast(stock: Any) -> None:
    stock.keep(run(stock.clock))
    with stock.open() as store:
        archive = Archive(store, "a store")
        record = archive.build_record(archive.find_run("cccc3333"))
    assert "forecast" not in render_report(record, Console(width=100, file=StringIO()))
