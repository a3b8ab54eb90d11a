"""Hints about how to let a run continue after it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .._internal.json_reader import JsonReader
from ..budget.remedy import COMMAND_OPTIONS, SETTINGS, double_ceiling, format_amount
from ..history.record import RunRecord, Starter
from ..person import About
from ..result import Stop
from ..settings import variable_for


def build_hints(record: RunRecord) -> list[str]:
    """Return hints, most likely first; none if the run completed within its limits."""
    return [*_iter_limit_hints(record), *_iter_other_hints(record)]


def list_reached_limits(record: RunRecord) -> list[str]:
    """Return the limits that a run met, by the names of the options that extend them; none if it did not end so."""
    if record.stop not in (Stop.BUDGET, Stop.DEADLINE):
        return []
    flags = record.data.text_list("flags")
    reached = [name for name, budget in record.budgets.items() if f"max_{budget.name}_reached" in flags]
    reached += ["seconds"] if "max_seconds_reached" in flags or record.stop is Stop.DEADLINE else []
    return [name for name in reached if name in COMMAND_OPTIONS]


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
        elif name in COMMAND_OPTIONS:
            more = format_amount(budget.unit, new - budget.ceiling)
            yield _build_limit_hint(record, name, format_amount(budget.unit, new), more)
        elif budget.name in SETTINGS:
            yield f"set {variable_for(SETTINGS[budget.name])}={format_amount(budget.unit, new)} in the environment"
    if "max_seconds_reached" in flags or (record.stop is Stop.DEADLINE and not shared):
        yield _build_time_hint(record)


def _build_limit_hint(record: RunRecord, name: str, amount: str, more: str) -> str:
    """Return how the run gets `more`, so that its limit is `amount`."""
    match record.starter:
        case Starter.COMMAND:
            return f"{_format_resume_command(record)} {COMMAND_OPTIONS[name]} +{more}"
        case Starter.UNSTORED:
            return f"the same command with {COMMAND_OPTIONS[name]} {amount}"
        case Starter.PARENT:  # options apply to the top run only
            return f"set {name}={amount} in the limits of {record.name or 'the child'}"
        case Starter.AGENT:
            return f'in its program: agent.resume("{record.data.text("run_id")}", extend={{"{name}": {more}}})'
        case Starter.PROGRAM:
            return f"in its program: Limits({name}={amount})"


def _build_time_hint(record: RunRecord) -> str:
    used = max(record.data.number("seconds"), record.work_seconds)  # a run may end early, to wait no longer
    hint = _build_limit_hint(record, "seconds", f"{max(1.0, 2 * used):.0f}", f"{max(1.0, used):.0f}")
    return f"{hint} or more" if record.starter is Starter.UNSTORED else hint


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
        case None if record.starter is Starter.COMMAND:
            yield _format_resume_command(record)
        case None if record.starter is Starter.AGENT:
            yield f'in its program: agent.resume("{data.text("run_id")}")'
        case Stop.PAUSED:
            yield from _iter_answer_hints(record)
        case Stop.HALTED if data.text("stopped_by"):
            yield f"check {data.text('stopped_by')}, which halted it: flyball rules list"
        case Stop.UNFINISHED if missing := data.nested("completion").text_list("missing"):
            yield f"complete what is missing: {', '.join(missing)}"
        case Stop.FAILED:
            yield f"fix the error and run {_name_start(record)} again"
        case Stop.CANCELLED:
            yield f"run {_name_start(record)} again"
        case _:
            pass


def _iter_answer_hints(record: RunRecord) -> Iterator[str]:
    """Yield how the questions of a paused run are answered."""
    questions = {question.text("id"): read_about(question) for question in record.data.nested_list("questions")}
    needs_result = About.CLIENT_TOOL in questions.values()
    match record.starter:
        case Starter.COMMAND:
            answers = [
                f"--answer '{name}=y RESULT_AS_JSON'" if about is About.CLIENT_TOOL else f"--answer {name}=y"
                for name, about in questions.items()
            ]
            yield " ".join([_format_resume_command(record), *answers])
        case Starter.AGENT:
            answers = [
                f'"{name}": {"RESULT" if about is About.CLIENT_TOOL else True}' for name, about in questions.items()
            ]
            yield f'in its program: agent.resume("{record.data.text("run_id")}", answers={{{", ".join(answers)}}})'
        case Starter.UNSTORED if needs_result:
            yield "run it with a store, and pass the results to flyball resume"
        case Starter.UNSTORED:
            yield "run it on a terminal to be asked, or with --yes"
        case _:
            pass


def read_about(question: JsonReader) -> About:
    """Return the subject of a recorded question. An unknown one reads as a call."""
    about = question.text("about")
    return About(about) if about in list(About) else About.CALL


def _name_start(record: RunRecord) -> str:
    return "its program" if record.starter in (Starter.AGENT, Starter.PROGRAM) else "the same command"
