"""What to type, or to do, for a run to get further than it did."""

from __future__ import annotations

from collections.abc import Iterator

from ..budget.snapshot import BudgetSnapshot
from ..history.record import RunRecord
from ..result import Stop
from ..settings import variable_for

_OPTIONS = {"turns": "--turns", "tool_calls": "--tool-calls", "tokens": "--tokens", "usd": "--usd"}
_SETTINGS = {
    "retries": "max_retries",
    "nudges": "max_nudges",
    "reflections": "max_reflections",
    "children": "delegation.max_children",
    "depth": "delegation.max_depth",
}


def hints(record: RunRecord) -> list[str]:
    """What would let it go on, the most likely first; nothing where it completed and no limit was met."""
    return [*_limits(record), *_others(record)]


def _limits(record: RunRecord) -> Iterator[str]:
    """One for each limit that refused: what to type for twice as much, if that is allowed."""
    flags = record.told.texts("flags")
    for name, budget in record.budgets.items():
        if f"max_{budget.name}_reached" not in flags or not budget.ceiling:
            continue
        more = budget.ceiling * 2 if budget.maximum is None else min(budget.ceiling * 2, budget.maximum)
        if more <= budget.ceiling:
            yield f"{name.replace('_', ' ')}: {budget.unit.show(budget.ceiling)} is the most that is allowed"
        elif name in _OPTIONS and record.is_stored:
            yield f"{_resumed(record)} {_OPTIONS[name]} +{_typed(budget, more - budget.ceiling)}"
        elif name in _OPTIONS and record.place:  # options are about the run at the top
            yield f"{name}={_typed(budget, more)} in the limits of {record.name}"
        elif name in _OPTIONS:
            yield f"{_OPTIONS[name]} {_typed(budget, more)}"
        elif name in _SETTINGS:
            yield f"{variable_for(_SETTINGS[name])}={_typed(budget, more)} in the environment"
    if "max_seconds_reached" in flags or record.stop is Stop.DEADLINE:
        yield _time(record)


def _time(record: RunRecord) -> str:
    used = record.told.number("seconds")
    if record.is_stored:
        return f"{_resumed(record)} --seconds +{max(1.0, used):.0f}"
    if record.place:
        return f"seconds={2 * used:.0f} in the limits of {record.name}"
    return f"--seconds {2 * used:.0f} or more"


def _resumed(record: RunRecord) -> str:
    return f"flyball resume {record.told.text('run_id')}"


def _others(record: RunRecord) -> Iterator[str]:
    told = record.told
    match record.stop:
        case None if record.is_stored:
            yield _resumed(record)
        case Stop.PAUSED if record.is_stored:
            said = [f"--answer {question.text('id')}=y" for question in told.inners("questions")]
            yield f"{_resumed(record)} {' '.join(said)}"
        case Stop.PAUSED:
            yield "a terminal, on which you are asked, or --yes"
        case Stop.HALTED if told.text("stopped_by"):
            yield f"a look at {told.text('stopped_by')}, which halted it: flyball rules list"
        case Stop.UNFINISHED if missing := told.inner("completion").texts("missing"):
            yield f"what is missing: {', '.join(missing)}"
        case Stop.FAILED:
            yield "the error mended, and the same command again"
        case Stop.CANCELLED:
            yield "the same command again"
        case _:
            pass


def _typed(budget: BudgetSnapshot, amount: int) -> str:
    return f"{budget.unit.outer(amount):g}" if budget.unit != "count" else str(amount)
