"""Hints about how to let a run continue after it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..budget.remedy import COMMAND_OPTIONS, SETTINGS, double_ceiling, format_amount
from ..history.record import RunRecord
from ..result import Stop
from ..settings import variable_for


def build_hints(record: RunRecord) -> list[str]:
    """Return hints, most likely first; none if the run completed within its limits."""
    return [*_iter_limit_hints(record), *_iter_other_hints(record)]


def _iter_limit_hints(record: RunRecord) -> Iterator[str]:
    """Yield how to double each limit that refused."""
    refusals = [event for event in record.events if event.text("event") == "budget_refused"]
    shared = {event.text("flag"): event.text("remedy") for event in refusals if event.get("is_shared") is True}
    flags = [flag for flag in record.data.text_list("flags") if flag not in shared]
    yield from shared.values()
    for name, budget in record.budgets.items():
        if f"max_{budget.name}_reached" not in flags or not budget.ceiling:
            continue
        new = double_ceiling(budget)
        if new is None:
            yield f"{name.replace('_', ' ')}: {budget.unit.show(budget.ceiling)} is the maximum allowed"
        elif name in COMMAND_OPTIONS and record.is_stored:
            more = format_amount(budget.unit, new - budget.ceiling)
            yield f"{_format_resume_command(record)} {COMMAND_OPTIONS[name]} +{more}"
        elif name in COMMAND_OPTIONS and record.tree_path:  # options apply to the top run only
            yield f"set {name}={format_amount(budget.unit, new)} in the limits of {record.name}"
        elif name in COMMAND_OPTIONS:
            yield f"the same command with {COMMAND_OPTIONS[name]} {format_amount(budget.unit, new)}"
        elif budget.name in SETTINGS:
            yield f"set {variable_for(SETTINGS[budget.name])}={format_amount(budget.unit, new)} in the environment"
    if "max_seconds_reached" in flags or (record.stop is Stop.DEADLINE and not shared):
        yield _build_time_hint(record)


def _build_time_hint(record: RunRecord) -> str:
    used = max(record.data.number("seconds"), record.work_seconds)  # a run may end early, to wait no longer
    if record.is_stored:
        return f"{_format_resume_command(record)} --seconds +{max(1.0, used):.0f}"
    if record.tree_path:
        return f"set seconds={2 * used:.0f} in the limits of {record.name}"
    return f"the same command with --seconds {max(1.0, 2 * used):.0f} or more"


def shorten_id(run_id: str) -> str:
    """Shorten a random id as `flyball runs` does; commands take the start of an id. Other ids stay.

    >>> shorten_id("01cc4c6e1faf08ca45a0f8d98970cade"), shorten_id("my-run")
    ('01cc4c6e', 'my-run')
    """
    return run_id[:8] if re.fullmatch(r"[0-9a-f]{32}", run_id) else run_id


def _format_resume_command(record: RunRecord) -> str:
    return f"flyball resume {shorten_id(record.data.text('run_id'))}"


def _iter_other_hints(record: RunRecord) -> Iterator[str]:
    data = record.data
    match record.stop:
        case None if record.is_stored:
            yield _format_resume_command(record)
        case Stop.PAUSED if record.is_stored:
            answers = [f"--answer {question.text('id')}=y" for question in data.nested_list("questions")]
            yield f"{_format_resume_command(record)} {' '.join(answers)}"
        case Stop.PAUSED:
            yield "run it on a terminal to be asked, or with --yes"
        case Stop.HALTED if data.text("stopped_by"):
            yield f"check {data.text('stopped_by')}, which halted it: flyball rules list"
        case Stop.UNFINISHED if missing := data.nested("completion").text_list("missing"):
            yield f"complete what is missing: {', '.join(missing)}"
        case Stop.FAILED:
            yield "fix the error and run the same command again"
        case Stop.CANCELLED:
            yield "run the same command again"
        case _:
            pass
