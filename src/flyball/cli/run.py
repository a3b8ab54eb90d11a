"""`flyball run`: one task for one agent, inside limits, watched as it goes on."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal import harmless
from ..unit import Unit
from .approval import Desk, approver_for
from .code import CODES
from .interrupt import cancelled_by_ctrl_c
from .line import MISTAKE, put, refused, say
from .outfit import Outfit
from .record import keep
from .tab import models_like, tools_like
from .view import Events, Lines, Live, Silence, View

if TYPE_CHECKING:
    from ..result import Result
    from ..run import Run

_Paths = Annotated[list[Path] | None, typer.Option("--rules", metavar="PATH", help="Rule files, or folders of them.")]
_Several = list[str] | None
_MODEL = "openai:NAME, anthropic:NAME, local:smollm2, URL#NAME, script:PATH.toml"
_TOOLBOX = "files, write, python, shell, fetch; or files:FOLDER."
_ASSERT = "A TOML file that says when the task is done."
_CHILDREN = "An Agent to delegate tasks to, a Child, or a list."
_SCHEMA = "A JSON schema that the answer must fit."


def run(
    task: Annotated[str, typer.Argument(metavar="TASK", help="What to do; - reads it from standard input.")],
    model: Annotated[str | None, typer.Option(metavar="NAME", help=_MODEL, autocompletion=models_like)] = None,
    toolbox: Annotated[_Several, typer.Option(metavar="NAMES", help=_TOOLBOX, autocompletion=tools_like)] = None,
    tools: Annotated[_Several, typer.Option(metavar="MODULE:NAME", help="A tool, a function, or a list.")] = None,
    children: Annotated[_Several, typer.Option(metavar="MODULE:NAME", help=_CHILDREN)] = None,
    mcp: Annotated[_Several, typer.Option(metavar="COMMAND|URL", help="An MCP server whose tools to offer.")] = None,
    turns: Annotated[int | None, typer.Option(min=1, metavar="N", help="The most turns.")] = None,
    tool_calls: Annotated[int | None, typer.Option(min=0, metavar="N", help="The most calls.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0, metavar="N", help="The most seconds.")] = None,
    usd: Annotated[float | None, typer.Option(min=0, metavar="N", help="The most dollars.")] = None,
    tokens: Annotated[int | None, typer.Option(min=0, metavar="N", help="The most tokens.")] = None,
    rules: _Paths = None,
    assertions: Annotated[Path | None, typer.Option("--assert", metavar="PATH", help=_ASSERT)] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="Instructions for the model.")] = None,
    output_schema: Annotated[Path | None, typer.Option(metavar="PATH", help=_SCHEMA)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Make every call without asking.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole record as JSON.")] = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Do a task inside limits, and say why it ended.

    The answer goes to standard output, all else to standard error. Exits with 0 when it completed, 1 failed, 2 a wrong
    call, 3 a budget, 4 the deadline, 5 stalled, unfinished or halted, 6 contended, 7 paused, 130 cancelled. Ctrl-C once
    cancels it and reports, twice stops at once.
    """
    if as_json and as_jsonl:
        raise refused("--json and --jsonl: found both; expected one of them")
    limits = {"turns": turns, "tool_calls": tool_calls, "seconds": seconds, "usd": usd, "tokens": tokens}
    outfit = Outfit(
        model=model,
        toolbox=toolbox or (),
        tools=tools or (),
        children=children or (),
        mcp=mcp or (),
        limits={name: most for name, most in limits.items() if most is not None},
        rules=rules or (),
        completion=assertions,
        system=system,
        schema=output_schema,
        yes=yes,
    )
    result = _carried_out(outfit, _task(task), Events() if as_jsonl else Silence() if quiet else _view())
    with suppress(BrokenPipeError):  # why it ended is in the exit code, too
        _keep(result)
        if not as_jsonl:
            _print(result, as_json, quiet)
    raise typer.Exit(CODES[result.stop])


def _task(task: str) -> str:
    text = sys.stdin.read() if task == "-" else task
    if not text.strip():
        raise refused(f"the task: found nothing{' on standard input' if task == '-' else ''}; expected what to do")
    return text.strip()


def _view() -> View:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    return Live(console) if sys.stderr.isatty() and not console.is_dumb_terminal else Lines(console)


def _carried_out(outfit: Outfit, task: str, view: View) -> Result:
    try:
        approver = approver_for(outfit.yes, view)
        agent = outfit.agent([view.watch], approver, [approver.hear] if isinstance(approver, Desk) else ())
    except MISTAKE as error:
        raise refused(error) from None
    with view:
        going = agent.start(task)
        with cancelled_by_ctrl_c(going):
            _show(going, view)
            return going.result()


def _show(going: Run, view: View) -> None:
    """Show every event; a run that nobody looks at any more is cancelled, as Ctrl-C would."""
    for event in going:
        try:
            view.show(event)
        except BrokenPipeError:
            going.cancel("a closed pipe")
            view = Silence()


def _print(result: Result, as_json: bool, quiet: bool) -> None:
    if as_json:
        put(json.dumps(result.to_dict(), indent=2))
        return
    text = result.text if result.output is None else json.dumps(result.output, ensure_ascii=False)
    if text:
        put(harmless(text.rstrip("\n")))
    if not quiet:
        say(f"{result.stop.value}: {result.explain()}", err=True)
        if result.children:
            say(_in_all(result), err=True)
        for question in result.questions:
            say(f"it waits for an answer: {question.text} (run it on a terminal, or with --yes)", err=True)


def _in_all(result: Result) -> str:
    """What it took together with its children; `flyball why` draws them."""
    runs = [result]
    for run in runs:  # it grows meanwhile
        runs += run.children
    cost = sum(result.cost_with_children.values())
    money = f", {Unit.USD.show(cost)}" if cost else ""
    turns, tokens = sum(run.turns for run in runs), result.usage_with_children.total
    return f"with its children: {len(runs):,} runs, {turns:,} turns, {tokens:,} tokens{money}"


def _keep(result: Result) -> None:
    """For `flyball why`; a run has ended well or badly whether or not it can be kept."""
    try:
        keep(result)
    except OSError as error:
        say(f"flyball: this run is not kept for `flyball why`: {error}", err=True)
