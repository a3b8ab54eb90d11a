"""`flyball run`: run one task within limits and show its progress."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UsageError
from ..completion import complete_models, complete_sessions, complete_tools
from ..limit_options import SecondsOption, TokensOption, ToolCallsOption, TurnsOption, UsdOption
from ..output import exit_with_error
from ..run_command import OutputMode, execute_run, open_run_store
from ..run_config import RunConfig
from ..store_option import StoreOption

if TYPE_CHECKING:
    from ...agent.options import RunOptions

_Paths = Annotated[list[Path] | None, typer.Option("--rules", metavar="PATH", help="Rule files, or folders of them.")]
_Several = list[str] | None
_MODEL = "openai:NAME, openai-responses:NAME, anthropic:NAME, google:NAME, local:smollm2, URL#NAME or script:PATH.toml."
_FALLBACK = "Model to ask when the present one times out or its provider fails."
_TOOLBOX = "Ready-made tools: files, write, python, shell, fetch; files:FOLDER sets the root."
_PASS_ENV = "Variable that programs of the tools python and shell inherit."
_ASSERT = "TOML file with assertions that say when the task is done."
_CHILDREN = "Agent to delegate tasks to, a Child, or a list of them."
_SESSION = "Continue or start this conversation."
_WAIT = "Seconds to wait while another run holds the session."
_SCHEMA = "JSON schema that the answer must fit."


def run(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Text of the task; - reads it from standard input.")],
    model: Annotated[str | None, typer.Option(metavar="NAME", help=_MODEL, autocompletion=complete_models)] = None,
    fallback_model: Annotated[
        _Several, typer.Option(metavar="NAME", help=_FALLBACK, autocompletion=complete_models)
    ] = None,
    toolbox: Annotated[_Several, typer.Option(metavar="NAMES", help=_TOOLBOX, autocompletion=complete_tools)] = None,
    pass_env: Annotated[_Several, typer.Option(metavar="NAME", help=_PASS_ENV)] = None,
    tools: Annotated[_Several, typer.Option(metavar="MODULE:NAME", help="Tool, function, or a list of them.")] = None,
    children: Annotated[_Several, typer.Option(metavar="MODULE:NAME", help=_CHILDREN)] = None,
    mcp: Annotated[_Several, typer.Option(metavar="COMMAND|URL", help="MCP server whose tools are offered.")] = None,
    turns: TurnsOption = None,
    tool_calls: ToolCallsOption = None,
    seconds: SecondsOption = None,
    usd: UsdOption = None,
    tokens: TokensOption = None,
    rules: _Paths = None,
    assertions: Annotated[Path | None, typer.Option("--assert", metavar="PATH", help=_ASSERT)] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="Instructions for the model.")] = None,
    output_schema: Annotated[Path | None, typer.Option(metavar="PATH", help=_SCHEMA)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Make every call without asking.")] = False,
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help=_SESSION, autocompletion=complete_sessions)
    ] = None,
    wait: Annotated[float, typer.Option(min=0, metavar="N", help=_WAIT)] = 0.0,
    store: StoreOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the answer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole record as JSON.")] = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Run an agent on a task, inside limits.

    The answer goes to standard output, everything else to standard error. Exit codes: 0 completed, 1 failed, 2 wrong
    usage, 3 met a budget, 4 met the deadline, 5 stalled, unfinished or halted, 6 contended, 7 paused, 130 cancelled.
    The first Ctrl-C cancels the run, which then reports. The second one ends the program at once.
    """
    limits = {"turns": turns, "tool_calls": tool_calls, "seconds": seconds, "usd": usd, "tokens": tokens}
    config = RunConfig(
        model=model,
        fallback_models=fallback_model or (),
        toolbox=toolbox or (),
        pass_env=pass_env or (),
        tools=tools or (),
        children=children or (),
        mcp=mcp or (),
        limits={name: limit for name, limit in limits.items() if limit is not None},
        rules=rules or (),
        completion=assertions,
        system=system,
        schema=output_schema,
        yes=yes,
    )
    text, options = _read_task(task), _build_options(session, wait)
    with open_run_store(store) as run_store:
        execute_run(config, lambda agent: agent.start(text, **options), OutputMode(quiet, as_json, as_jsonl), run_store)


def _build_options(session: str | None, wait: float) -> RunOptions:
    if session is not None and not session.strip():
        raise exit_with_error(UsageError("--session needs a name"))
    return {"wait_seconds": wait} if session is None else {"session": session, "wait_seconds": wait}


def _read_task(task: str) -> str:
    text = sys.stdin.read() if task == "-" else task
    if not text.strip():
        reason = "standard input has no text" if task == "-" else "give a text, or - to read standard input"
        raise exit_with_error(UsageError(f"the task is empty: {reason}"))
    return text.strip()
