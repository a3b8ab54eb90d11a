"""`flyball status`: what the newest run has spent, and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from ..._internal.text import pluralize
from ...budget.snapshot import BudgetSnapshot
from ...errors import UsageError
from ...history.record import RunRecord, load_record
from ...person import escape_unprintable
from ..budget_bars import build_bars, render_bars
from ..output import USER_ERRORS, exit_with_error, format_usd, print_line, print_raw
from ..store_option import StoreOption
from ..wrapping import wrap_parts
from .why import find_newest_record

_LINE = "Print one short line, for a shell prompt or a status line. It is empty if there is no run."
_SHOWN = ("turns", "tokens", "usd")
"""Budgets in the short line."""


def status(
    line: Annotated[bool, typer.Option("--line", help=_LINE)] = False,
    store: StoreOption = None,
) -> None:
    """Show what the newest run has spent, and what is left of its limits. It may be in progress."""
    try:
        record = _find_record(store)
    except USER_ERRORS as error:
        if line and isinstance(error, UsageError):  # a prompt must not show errors; there is no run
            return
        raise exit_with_error(error) from None
    if line:
        print_raw(escape_unprintable(" · ".join(_iter_parts(record))))
        return
    from ..report import list_summary, make_console

    console = make_console()
    print_line(f"{record.status}: {' '.join(record.title.split())}")
    print_raw("\n".join(wrap_parts(list_summary(record), " · ", console.width)))
    for _, text in render_bars(
        build_bars(record.budgets, record.data.number("seconds"), record.work_seconds), console.width
    ):
        print_raw(text)


def _find_record(store: str | None) -> RunRecord:
    newest = find_newest_record(store)
    if newest is not None:
        return newest
    if store is not None:
        raise UsageError("this store has no runs yet")
    return load_record()


def _iter_parts(record: RunRecord) -> Iterator[str]:
    """Yield the status, and what was spent and is left of each limit."""
    yield record.status
    for name in _SHOWN:
        budget = record.budgets.get(name)
        if name == "usd":
            yield _format_money(record, budget)
        elif budget is not None:
            yield _format_count(name, budget)


def _format_count(name: str, budget: BudgetSnapshot) -> str:
    """Format a count, such as `3 of 8 turns, 5 left`."""
    if budget.ceiling is None:
        return pluralize(budget.used, name.removesuffix("s"))
    return f"{budget.used:,} of {budget.ceiling:,} {name}, {max(0, budget.ceiling - budget.used):,} left"


def _format_money(record: RunRecord, budget: BudgetSnapshot | None) -> str:
    is_unknown = record.stop is None or bool(record.data.text_list("unpriced"))
    if budget is None or budget.ceiling is None:
        return f"cost {format_usd(record.cost, is_unknown)}"
    show = budget.unit.show
    return f"{show(budget.used)} of {show(budget.ceiling)}, {show(max(0, budget.ceiling - budget.used))} left"
