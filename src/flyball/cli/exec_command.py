"""Execution of a program for `flyball exec`: its limits, its record and its exit code."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from .._internal.text import pluralize, redact, redact_command
from ..budget.limits import Limits
from ..budget.price import Unpriced
from ..budget.registry import IterationBudgetRegistry, Resolution
from ..errors import ConfigError, Ungoverned, UsageError
from ..progress import Point, Progress
from ..recorder import buffered
from ..result import Stop
from ..unit import Unit
from .live import RunView, SilentView
from .output import EXIT_CODES, UNGOVERNED_EXIT_CODE, USER_ERRORS, exit_with_error, print_line
from .program_record import AGENT, ProgramRecord
from .run_command import OutputMode, open_run_store
from .run_ending import summarize_ending

if TYPE_CHECKING:
    from ..event import Event
    from ..gateway.execution import Execution
    from ..gateway.gateway import Gateway
    from ..gateway.gateway_options import GatewayOptions

_MAX_TASK_CHARS = 200
_SECRET_NAME = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_MIN_SECRET = 8
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,3})?) ?%")
_SHOWN_LIMITS = ("turns", "tool_calls", "tokens", "usd", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions:
    """Options of the command line."""

    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rules: Sequence[Path] = ()
    upstreams: Sequence[str] = ()
    variables: Sequence[str] = ()
    pass_keys: bool = False
    allow_ungoverned: bool = False
    unpriced: str = "refuse"
    plan_share: str | None = None
    final_tools: Sequence[str] = ()
    per: str = "program"
    observe: bool = False
    live: bool = False
    strict: bool = False
    quiet: bool = False
    store: str | None = None


def execute_program(command: Sequence[str], options: ExecOptions) -> None:
    """Run a program to its end, and exit with its code or that of the reason why it was ended."""
    from ..gateway.execution import execute

    with open_run_store(options.store) as store:
        try:
            registry = IterationBudgetRegistry()
            gateway_options = build_options(command, options, registry)
            live = LiveSink(OutputMode().build_view() if options.live else SilentView())
            record = ProgramRecord(store, gateway_options.run_id, describe_command(command))
            gateway_options.sinks = (record, live) if options.live else (record,)
            limits = describe_limits(gateway_options.limits, registry)
            limits += "; turns and seconds for each message of the user" if options.per == "task" else ""
            limits = f"observes only; the limits would be {limits}" if options.observe else limits

            def start(gateway: Gateway) -> None:
                record.start()
                if not options.quiet:
                    plan = describe_plan(gateway_options, is_plan=gateway.desk.plan.is_used)
                    print_line(f"{limits}{plan}", head="flyball: ", err=True)
                    for change in gateway.changes:
                        print_line(change, head="flyball: ", err=True)
                live.progress = Progress(gateway_options.run_id, gateway.desk.run.envelope, (), {}, {}, agent=AGENT)

            with live:
                execution = execute(command, gateway_options, start)
        except Ungoverned as error:
            print_line(str(error), head="flyball: ", err=True)
            raise typer.Exit(UNGOVERNED_EXIT_CODE) from None
        except USER_ERRORS as error:
            raise exit_with_error(error) from None
        record.finish(execution)
    _print_end(execution, options)
    raise typer.Exit(find_exit_code(execution, options))


def build_options(command: Sequence[str], options: ExecOptions, registry: IterationBudgetRegistry) -> GatewayOptions:
    """Return the options of the gateway."""
    from ..gateway.gateway_options import GatewayOptions

    upstreams = dict(_split_pair("--upstream", text, "NAME=URL") for text in options.upstreams)
    return GatewayOptions(
        limits=Limits(**options.limits),
        upstreams=upstreams,
        variables=_read_variables(options.variables, upstreams),
        pass_keys=options.pass_keys,
        unpriced=_read_unpriced(options.unpriced),
        plan_share=_read_share(options.plan_share),
        final_tools=tuple(options.final_tools),
        allow_ungoverned=options.allow_ungoverned,
        per=_read_per(options),
        observe=options.observe,
        rules=_load_rules(options.rules),
        registry=registry,
        metadata={"exec_command": describe_command(command)},
    )


def _load_rules(paths: Sequence[Path]) -> Any:
    if not paths:
        return None
    from ..rules import RuleSet

    return RuleSet.load(*paths).with_core()


def _read_unpriced(text: str) -> Unpriced:
    if text not in list(Unpriced):
        raise ConfigError("exec, --unpriced", text, "refuse or tokens_only")
    return Unpriced(text)


def _read_share(text: str | None) -> float | None:
    match = _PERCENT.fullmatch(text or "")
    share = float(match[1]) / 100 if match else None
    if text is not None and (share is None or not 0 < share <= 1):
        raise ConfigError("exec, --plan-share", text, "a percentage, such as 30%")
    return share


def _read_per(options: ExecOptions) -> Literal["program", "task"]:
    if options.per == "task" and options.observe:
        raise UsageError("--observe adds up the whole program, so it cannot be used with --per task")
    if options.per not in ("program", "task"):
        raise ConfigError("exec, --per", options.per, "program or task")
    return options.per


def _split_pair(option: str, text: str, form: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise ConfigError(f"exec, {option}", text, form)
    return name, value


def _read_variables(texts: Sequence[str], upstreams: Mapping[str, str]) -> dict[str, str]:
    """Return the names of upstreams by variable. A variable without a name belongs to the only upstream."""
    variables: dict[str, str] = {}
    for text in texts:
        if "=" in text:
            name, variable = _split_pair("--set", text, "NAME=VARIABLE")
        elif len(upstreams) == 1:
            name, variable = next(iter(upstreams)), text
        else:
            raise UsageError(f"--set {text} does not say which provider it is for: use --set NAME={text}")
        variables[variable] = name
    return variables


def describe_limits(limits: Limits, registry: IterationBudgetRegistry) -> str:
    """Return the limits that hold, with defaults and clamps."""
    explained = limits.explain(registry)
    held, free = list[str](), list[str]()
    for name in _SHOWN_LIMITS:
        limit, label = explained[name], name.replace("_", " ")
        if limit.ceiling is None:
            free.append("dollars" if name == "usd" else label)
        else:
            held.append(_describe_limit(label, limit))
    return f"at most {', '.join(held)}" + (f"; no limit of {', '.join(free)}" if free else "")


def describe_plan(options: GatewayOptions, *, is_plan: bool) -> str:
    """Return what holds for a subscription, as a continuation of the limits. Empty if there is none."""
    share = options.plan_share
    limit = "" if share is None else f"; at most {100 * share:g} % of the plan of its subscription"
    return f"{limit}; dollars are imputed, because the program uses a subscription" if is_plan else limit


def _describe_limit(label: str, limit: Resolution) -> str:
    value = limit.ceiling or 0
    amount = Unit.USD.show(value) if label == "usd" else pluralize(int(value), label.removesuffix("s"))
    if not limit.is_requested:
        return f"{amount} (clamp)" if limit.is_clamped else f"{amount} (default)"
    return f"{amount} ({limit.spec.unit.show(limit.requested)} was asked for)" if limit.is_clamped else amount


class LiveSink:
    """Sink that shows the events of a program's run while it is in progress, on a thread of its own."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._buffer = buffered(self._show)
        self.progress: Progress | None = None
        """Budgets of the run. None before it has started."""

    def __call__(self, event: Event) -> None:
        self._buffer(event)

    def _show(self, event: Event) -> None:
        if self.progress is not None:
            self._view.watch(Point.TURN_STARTED, self.progress)
        self._view.show(event)

    def __enter__(self) -> LiveSink:
        self._view.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._buffer.close()
        self._view.__exit__(*error)


def describe_command(command: Sequence[str]) -> str:
    """Return the command line for lists, without what may be a key."""
    secrets = tuple(
        value for name, value in os.environ.items() if _SECRET_NAME.search(name) and len(value) >= _MIN_SECRET
    )
    return redact(redact_command(command), secrets)[:_MAX_TASK_CHARS]


def find_exit_code(execution: Execution, options: ExecOptions) -> int:
    """Return the exit code of `flyball exec`."""
    if not execution.is_governed and not options.allow_ungoverned:
        return UNGOVERNED_EXIT_CODE
    if options.strict or execution.exit_code is None:
        return EXIT_CODES[execution.result.stop]
    return execution.exit_code


def _print_end(execution: Execution, options: ExecOptions) -> None:
    result = execution.result
    if not execution.is_governed:
        if not options.allow_ungoverned:
            print_line(
                "NOT GOVERNED: no request to a model came through the gateway, so no limit held "
                "(see --upstream and --set; --allow-ungoverned accepts it)",
                head="flyball: ",
                err=True,
            )
        elif not options.quiet:
            print_line("no request to a model came through the gateway, so no limit held", head="flyball: ", err=True)
        return
    for hint in execution.hints:
        print_line(hint, head="flyball: ", err=True)
    for remark in execution.remarks if not options.quiet else ():
        print_line(remark, head="flyball: ", err=True)
    if options.observe and not execution.hints:
        print_line("nothing would have been refused", head="flyball: ", err=True)
    if not options.quiet or result.stop not in (Stop.COMPLETED, Stop.FAILED):
        ending = summarize_ending(result, with_next=options.per == "program")
        print_line(f"{result.stop.value}: {ending}", head="flyball: ", err=True)
