"""Typer app with all commands; each is in the module of its name."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from ..errors import UntrustedSettings
from ..settings import Settings, restrict_loading
from .commands import (
    doctor,
    exec,
    export,
    limits,
    models,
    prune,
    replay,
    resume,
    rules,
    run,
    runs,
    sessions,
    spend,
    status,
    trust,
    why,
)
from .output import USAGE_EXIT_CODE, USER_ERRORS, exit_with_error, print_raw
from .trust import check_project_file
from .usage_errors import convert_usage_error

app = typer.Typer(name="flyball", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command("run")(run.run)
app.command("exec", short_help="Run a program that cannot be changed, inside limits.")(exec.exec_program)
app.command("resume", short_help="Continue a run that was killed, is paused, or met a limit.")(resume.resume)
app.command("why", short_help="Explain a run: what happened and why it ended.")(why.why)
app.command("replay", short_help="Replay a run under other rules or limits and show where it differs.")(replay.replay)
app.command("runs", short_help="List runs and how they ended.")(runs.runs)
app.command("status", short_help="Show what the newest run has spent, and what is left.")(status.status)
app.command("spend", short_help="Sum up tokens and money by agent, model or day.")(spend.spend)
app.add_typer(sessions.app, name="sessions", short_help="List, title and delete sessions.")
app.command("export", short_help="Print a run as JSON lines or as a conversation.")(export.export)
app.command("prune", short_help="Delete old runs and sessions.")(prune.prune)
app.command("models", short_help="List models and their prices.")(models.models)
app.command("limits", short_help="Show every budget, its ceiling, and the source of the ceiling.")(limits.limits)
app.command("trust", short_help="Trust the settings file of this project.")(trust.trust)
app.command("doctor", short_help="Test this installation.")(doctor.doctor)
app.add_typer(rules.app, name="rules")


def run_app() -> int:
    """Run the command of `sys.argv` and return its exit code."""
    try:
        code = app(prog_name="flyball", standalone_mode=False)
    except typer.Abort:
        return 1
    except TyperException as error:
        usage_error = convert_usage_error(error, _find_typed_command())
        if usage_error is None:
            print_raw(str(error), sys.stderr)
            return USAGE_EXIT_CODE
        return exit_with_error(usage_error).exit_code
    return code if isinstance(code, int) else 0


def _find_typed_command() -> str:
    commands = {command.name for command in (*app.registered_commands, *app.registered_groups)}
    return " ".join(["flyball", *[word for word in sys.argv[1:] if word in commands][:1]])


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"flyball {__version__}")
        raise typer.Exit


@app.callback()
def flyball(
    context: typer.Context,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Settings file to use instead of flyball.toml.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The governor for AI agents: every run ends inside its limits, with exactly one true reason."""
    context.with_resource(restrict_loading(check_project_file, config))
    if context.invoked_subcommand == "trust":
        return
    try:
        Settings.load()
    except UntrustedSettings as error:
        raise exit_with_error(error) from None
    except USER_ERRORS:  # the command reports it
        pass
