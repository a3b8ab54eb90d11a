"""`flyball replay`: replay a run under other rules or limits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError, UsageError, suggest_names
from ...history.archive import Archive
from ...history.replay import NO_MCP, RecordedRun, ReplayReport, replay_run
from ..completion import RUN_HELP, complete_runs
from ..output import USER_ERRORS, exit_with_error, print_line, print_raw
from ..saved_config import load_config, uses_mcp
from ..store_option import StoreLocation, StoreOption

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIMITS = ("turns", "tool_calls", "seconds", "usd", "tokens", "reflections", "nudges", "retries")
_SAME_ANSWERS = "With the same model replies,"
_FALLBACK = "Name of a fallback model, if it was not stored."
_MODEL = "Name of the run's model, if it was not stored because it may contain a secret. It is not asked."
_RULES = "Rule files, or folders of them, instead of those of the run."


def replay(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP, autocompletion=complete_runs)],
    rules: Annotated[list[Path] | None, typer.Option(metavar="PATH", help=_RULES)] = None,
    limits: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="Other limits, such as turns=5,usd=0.2.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help=_MODEL)] = None,
    fallback_model: Annotated[list[str] | None, typer.Option(metavar="NAME", help=_FALLBACK)] = None,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay a run under other rules or limits and show where it differs.

    No model, tool or person is asked: their recorded answers are used up to the first difference. Settings and rule
    files are read as they are today. Exits with 0 if nothing differs, otherwise with 1.
    """
    try:
        location = StoreLocation.resolve(store)
        models = {"model": model, "fallback_models": tuple(fallback_model or ())}
        rule_paths = [path.absolute() for path in rules or ()]
        with location.open_existing() as run_store:
            archive = Archive(run_store, location.name)
            entry = archive.find_run(run)
            rows, events = run_store.journal.read(entry.run_id), run_store.runs.events(entry.run_id)
            if not rows:
                raise UsageError(f"run {entry.run_id} cannot be replayed: the store has no journal of it")
            if uses_mcp(entry):
                raise UsageError(NO_MCP)
            config = load_config(entry, {"rules": tuple(rule_paths), **models})
            config = replace(config, limits={**config.limits, **_parse_limits(limits or ())})
            stop = None if entry.finish is None else entry.finish.stop
            recorded = RecordedRun(rows, events, stop, run_store.transcript)
            agent = config.build_agent()
            report, lenient_report = replay_run(agent, recorded), replay_run(agent, recorded, lenient=True)
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    if as_json:
        print_raw(json.dumps({**_build_record(report), "answered_the_same": _build_record(lenient_report)}, indent=2))
    else:
        for line in _format_report(report, lenient_report, recorded.stop):
            print_line(line)
    raise typer.Exit(0 if report.is_same else 1)


def _parse_limits(texts: Sequence[str]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for pair in ",".join(texts).split(",") if texts else ():
        name, _, text = (part.strip() for part in pair.partition("="))
        if name not in _LIMITS:
            suggestions = suggest_names(name, _LIMITS) or list(_LIMITS)
            raise ConfigError("replay, --limits", pair, f"NAME=N, where NAME is {' or '.join(suggestions)}")
        try:
            limits[name] = None if text == "none" else float(text) if name in ("seconds", "usd") else int(text)
        except ValueError:
            raise ConfigError("replay, --limits", pair, "a number, or none, after the =") from None
    return limits


def _format_report(report: ReplayReport, lenient_report: ReplayReport, stop: str | None) -> list[str]:
    if report.is_same:
        end = "up to its last stored effect" if stop is None else f"it ends as {stop}"
        return [f"No difference: {end}, after {report.total_effects:,} effects."]
    if report.matched_effects == report.total_effects:
        headline = f"All {report.total_effects:,} effects are the same, but the events differ:"
    else:
        headline = f"The first difference is {_format_place(report)}:"
    lines = [headline, *_format_sides(report)]
    if report.result is None and lenient_report.matched_effects > report.matched_effects:
        if not lenient_report.recorded_lines and not lenient_report.replayed_lines:
            return [*lines, f"{_SAME_ANSWERS} nothing else differs."]
        lines += [
            f"{_SAME_ANSWERS} the first difference is {_format_place(lenient_report)}:",
            *_format_sides(lenient_report),
        ]
    result = lenient_report.result or report.result
    if result is not None:
        return [*lines, f"It would have ended as {result.stop.value}: {result.explain()}"]
    return [*lines, "How it would have continued is not known."]


def _format_place(report: ReplayReport) -> str:
    where = f"in turn {report.turn}" if report.turn else "at the start"
    return f"{where}, after {report.matched_effects:,} of {report.total_effects:,} effects ({report.at:.1f} s)"


def _format_sides(report: ReplayReport) -> list[str]:
    return [*_format_side("recorded", report.recorded_lines), *_format_side("replayed", report.replayed_lines)]


def _format_side(name: str, lines: Sequence[str]) -> list[str]:
    return [f"  {name if n == 0 else '':9} {line}" for n, line in enumerate(lines or ["nothing more"])]


def _build_record(report: ReplayReport) -> dict[str, Any]:
    result = report.result
    return {
        "same": report.is_same,
        "steps": report.matched_effects,
        "of": report.total_effects,
        "turn": report.turn,
        "at": report.at,
        "then": list(report.recorded_lines),
        "today": list(report.replayed_lines),
        "stop": None if result is None else result.stop.value,
        "explanation": None if result is None else result.explain(),
    }
