"""`flyball spend`: tokens and money of all stored runs, summed up."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from ...budget.deadline import SYSTEM
from ...errors import ConfigError, suggest_names
from ...history.archive import Archive
from ...history.run_usage import GROUPS, UsageGroup, group_usage
from ..age import parse_age
from ..output import NARROW_COLUMNS, USER_ERRORS, exit_with_error, format_usd, print_line, print_raw, print_table
from ..store_option import StoreLocation, StoreOption

_COLUMNS = ("runs", "requests", "input", "output", "cost")
_CSV_COLUMNS = ("runs", "requests", "input_tokens", "output_tokens", "usd", "unpriced_requests")
_BY = "Group by agent, model, day, or several of them, separated by commas."


def spend(
    by: Annotated[str, typer.Option(metavar="NAMES", help=_BY)] = "model",
    since: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only runs of this time, such as 12h or 30d.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    store: StoreOption = None,
) -> None:
    """Sum up what the stored runs and their children used.

    Days are in UTC, by the start of a run. A ? means that the cost of some requests is not known: their model has no
    price, or their run has not ended.
    """
    try:
        names = _parse_names(by)
        location = StoreLocation.resolve(store)
        since_at = None if since is None else SYSTEM.wall() - parse_age("spend, --since", since)
        with location.open_existing() as run_store:
            entries = Archive(run_store, location.name).list_entries()
            recent = [entry for entry in entries if since_at is None or entry.start.at >= since_at]
            groups, total = group_usage(run_store, recent, names)
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    if as_csv:
        print_raw(_format_csv(names, groups))
    elif not groups:
        print_line("no runs yet" if since is None else "no matching runs")
    else:
        rows = [[*map(_name, key), *_build_cells(group)] for key, group in groups.items()]
        rows.append(["total", *[""] * (len(names) - 1), *_build_cells(total)])
        print_table(
            [*names, *_COLUMNS],
            rows,
            right=_COLUMNS,
            columns_for=dict.fromkeys(("requests", "input", "output"), NARROW_COLUMNS),
        )


def _parse_names(by: str) -> list[str]:
    names = [name.strip() for name in by.split(",")]
    for name in names:
        if name not in GROUPS:
            expected = suggest_names(name, GROUPS) or [*GROUPS]
            raise ConfigError("spend, --by", name, " or ".join(expected))
    if len(set(names)) < len(names):
        raise ConfigError("spend, --by", by, "each name once")
    return names


def _name(text: str) -> str:
    return text or "(none)"


def _build_cells(group: UsageGroup) -> list[str]:
    counts = (len(group.runs), group.requests, group.input_tokens, group.output_tokens)
    return [*(f"{count:,}" for count in counts), format_usd(group.usd, bool(group.unpriced))]


def _format_csv(names: Sequence[str], groups: Mapping[tuple[str, ...], UsageGroup]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, *_CSV_COLUMNS])
    for key, group in groups.items():
        usd = f"{group.usd:.9f}".rstrip("0").rstrip(".")
        counts = (len(group.runs), group.requests, group.input_tokens, group.output_tokens)
        writer.writerow([*map(_quote_formula, key), *counts, usd, group.unpriced])
    return text.getvalue().rstrip("\n")


def _quote_formula(text: str) -> str:
    """Return a name that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
