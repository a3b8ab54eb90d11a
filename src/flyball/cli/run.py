"""`flyball run`: one task for one agent, inside limits, watched as it goes on."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError, UnknownName
from ..event import Event
from ..person import About, Approver, Question, Verdict, allow
from .code import CODES, USAGE
from .line import plain, say
from .outfit import Outfit
from .record import keep
from .view import Lines, Live, Silence, View

if TYPE_CHECKING:
    from ..result import Result
    from ..run import Run

_Paths = Annotated[list[Path] | None, typer.Option("--rules", metavar="PATH", help="Rule files, or folders of them.")]
_Several = list[str] | None


def run(
    task: Annotated[str, typer.Argument(help="What to do; - reads it from standard input.")],
    model: Annotated[str | None, typer.Option(help="openai:NAME, anthropic:NAME, local:smollm2, URL#NAME, …")] = None,
    toolbox: Annotated[_Several, typer.Option(help="files, write, python, shell, fetch; or files:FOLDER.")] = None,
    tools: Annotated[_Several, typer.Option(metavar="MODULE:NAME", help="A tool, a function, or a list.")] = None,
    mcp: Annotated[_Several, typer.Option(metavar="COMMAND|URL", help="An MCP server whose tools to offer.")] = None,
    turns: Annotated[int | None, typer.Option(help="The most turns.")] = None,
    tool_calls: Annotated[int | None, typer.Option(help="The most calls.")] = None,
    seconds: Annotated[float | None, typer.Option(help="The most seconds.")] = None,
    usd: Annotated[float | None, typer.Option(help="The most dollars.")] = None,
    tokens: Annotated[int | None, typer.Option(help="The most tokens.")] = None,
    rules: _Paths = None,
    assertions: Annotated[Path | None, typer.Option("--assert", help="A TOML file: when the task is done.")] = None,
    system: Annotated[str | None, typer.Option(help="Instructions for the model.")] = None,
    output_schema: Annotated[Path | None, typer.Option(help="A JSON schema that the answer must fit.")] = None,
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
    limits = {"turns": turns, "tool_calls": tool_calls, "seconds": seconds, "usd": usd, "tokens": tokens}
    outfit = Outfit(
        model=model,
        toolbox=toolbox or (),
        tools=tools or (),
        mcp=mcp or (),
        limits={name: most for name, most in limits.items() if most is not None},
        rules=rules or (),
        completion=assertions,
        system=system,
        schema=output_schema,
        yes=yes,
    )
    if as_json and as_jsonl:
        raise _refused("--json and --jsonl: found both; expected one of them")
    view = Silence() if quiet or as_jsonl else _view()
    result = _carried_out(outfit, _task(task), view, _print_event if as_jsonl else None)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    elif not as_jsonl:
        _print(result, quiet)
    _keep(result)
    raise typer.Exit(CODES[result.stop])


def _task(task: str) -> str:
    text = sys.stdin.read() if task == "-" else task
    if not text.strip():
        raise _refused(f"the task: found nothing{' on standard input' if task == '-' else ''}; expected what to do")
    return text.strip()


def _carried_out(outfit: Outfit, task: str, view: View, sink: Callable[[Event], None] | None) -> Result:
    try:
        agent = outfit.agent([sink] if sink else [], [view.watch], _approver(outfit.yes, view))
    except (ConfigError, UnknownName) as error:
        raise _refused(str(error)) from None
    with view, agent.start(task) as going, _interrupts(going):
        for event in going:
            view.show(event)
        return going.result()


def _refused(message: str) -> typer.Exit:
    say(f"flyball: {message}", err=True)
    return typer.Exit(USAGE)


def _view() -> View:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False)
    return Live(console) if console.is_terminal and not console.is_dumb_terminal else Lines(console)


def _approver(yes: bool, view: View) -> Approver | None:
    """Who is asked: nobody with --yes, the person at the terminal, or nobody, and then the run pauses."""
    if yes:
        return lambda question: allow() if question.about is About.CALL else None
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    def ask(question: Question) -> Verdict | None:
        from ..terminal import ask_on_terminal

        with view.aside():
            return ask_on_terminal(question)

    return ask


@contextmanager
def _interrupts(going: Run) -> Generator[None]:
    """The first Ctrl-C cancels the run, whose report is then told; the second ends the program."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        going.cancel("Ctrl-C")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_event(event: Event) -> None:
    typer.echo(json.dumps(event.to_dict()))


def _print(result: Result, quiet: bool) -> None:
    text = result.text if result.output is None else json.dumps(result.output, ensure_ascii=False)
    if text:
        typer.echo("\n".join(map(plain, text.splitlines())))
    if not quiet:
        say(f"{result.stop.value}: {result.explain()}", err=True)
        for question in result.questions:
            say(f"it waits for an answer: {question.text} (run it on a terminal, or with --yes)", err=True)


def _keep(result: Result) -> None:
    """For `flyball why`; a run has ended well or badly whether or not it can be kept."""
    try:
        keep(result)
    except OSError as error:
        say(f"flyball: this run is not kept for `flyball why`: {error}", err=True)
