"""`flyball exec`: run a program that cannot be changed within limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..exec_command import ExecOptions, execute_program
from ..limit_options import SecondsOption, TokensOption, ToolCallsOption, TurnsOption, UsdOption
from ..output import print_line, print_table
from ..store_option import StoreOption

_COMMAND = "Program and its arguments, after --."
_UPSTREAM = "Address of a provider, if the environment does not name it."
_SET = "Variable that points the program at that provider."
_PASS_KEYS = "Give the program the real keys instead of stand-ins."
_UNGOVERNED = "Accept a program whose requests do not come through."
_UNPRICED = "refuse, or tokens_only: models without a known price under a money limit."
_PLAN_SHARE = "Maximum share of a subscription, such as 30%."
_FINAL_TOOL = "Tool that carries the program's answer."
_STRICT = "Exit with the code of the stop reason, as flyball run does."
_PER = "program, or task: fresh turns and seconds with each message of the user."
_OBSERVE = "Refuse and change nothing; print what would have been refused."
_LIVE = "Show each event on standard error, and the budgets if that is a terminal."
_RULES = "Rule files, or folders of them."
_LIST = "List the programs that need no further options, with what holds for each."


def _print_programs(wanted: bool) -> None:
    """Print the known programs and end, if the option is given."""
    if not wanted:
        return
    from ...gateway.programs import KNOWN_PROGRAMS

    rows = [(program.name, program.version, program.enforced) for program in KNOWN_PROGRAMS]
    print_table(("program", "tested", "enforced"), rows, wrapped=("enforced",))
    print_line("Others are governed if they read an address from a variable such as OPENAI_BASE_URL.")
    raise typer.Exit


def exec_program(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help=_COMMAND)],
    turns: TurnsOption = None,
    tool_calls: ToolCallsOption = None,
    seconds: SecondsOption = None,
    usd: UsdOption = None,
    tokens: TokensOption = None,
    rules: Annotated[list[Path] | None, typer.Option(metavar="PATH", help=_RULES)] = None,
    upstream: Annotated[list[str] | None, typer.Option(metavar="NAME=URL", help=_UPSTREAM)] = None,
    variable: Annotated[list[str] | None, typer.Option("--set", metavar="[NAME=]VARIABLE", help=_SET)] = None,
    pass_keys: Annotated[bool, typer.Option("--pass-keys", help=_PASS_KEYS)] = False,
    allow_ungoverned: Annotated[bool, typer.Option("--allow-ungoverned", help=_UNGOVERNED)] = False,
    unpriced: Annotated[str, typer.Option(metavar="HOW", help=_UNPRICED)] = "refuse",
    plan_share: Annotated[str | None, typer.Option(metavar="N%", help=_PLAN_SHARE)] = None,
    final_tool: Annotated[list[str] | None, typer.Option(metavar="NAME", help=_FINAL_TOOL)] = None,
    per: Annotated[str, typer.Option(metavar="WHAT", help=_PER)] = "program",
    observe: Annotated[bool, typer.Option("--observe", help=_OBSERVE)] = False,
    live: Annotated[bool, typer.Option("--live", help=_LIVE)] = False,
    strict: Annotated[bool, typer.Option("--strict", help=_STRICT)] = False,
    _list: Annotated[bool, typer.Option("--list", help=_LIST, callback=_print_programs, is_eager=True)] = False,
    store: StoreOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing about limits and spending.")] = False,
) -> None:
    """Run a program within limits: flyball exec --turns 20 -- python my_agent.py.

    The program needs no change. Its requests to model providers go through a gateway on this machine. At a limit, each
    conversation gets one last request for a report. The exit code is the program's own if it ended by itself; 8 if no
    request came through; else that of the stop reason: 3 met a budget, 4 met the deadline, 130 cancelled.
    """
    limits = {"turns": turns, "tool_calls": tool_calls, "seconds": seconds, "usd": usd, "tokens": tokens}
    options = ExecOptions(
        limits={name: limit for name, limit in limits.items() if limit is not None},
        rules=rules or (),
        upstreams=upstream or (),
        variables=variable or (),
        pass_keys=pass_keys,
        allow_ungoverned=allow_ungoverned,
        unpriced=unpriced,
        plan_share=plan_share,
        final_tools=final_tool or (),
        per=per,
        observe=observe,
        live=live,
        strict=strict,
        quiet=quiet,
        store=store,
    )
    execute_program(command, options)
