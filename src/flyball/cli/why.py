"""`flyball why`: what happened in a run, why it ended, and what would let it go on, on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..snapshot import BudgetSnapshot
from .line import plain
from .record import Record, kept
from .timeline import Row, rows, task_of
from .view import bar

_STYLES = {"bad": "red", "warn": "yellow"}
_OPTIONS = {"turns": "--turns", "tool_calls": "--tool-calls", "tokens": "--tokens", "usd": "--usd"}


def why(
    record: Annotated[Path | None, typer.Argument(help="A saved --json record; - is standard input.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
) -> None:
    """Show what happened in the last run, or in a saved record: turns, calls, warnings, refusals, and why it ended."""
    found = kept(record)
    if markdown:
        typer.echo(_markdown(found))
    else:
        _show(found)


def _show(record: Record) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = 160
    console.print(_head(record), style="bold")
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim")
    for name, justify in (("turn", "right"), ("at", "right"), ("what", "left"), ("", "left"), ("tokens", "right")):
        table.add_column(name, justify=justify, overflow="fold")  # pyright: ignore[reportArgumentType]
    table.add_column("took", justify="right")
    for row, cells in _lines(record):
        table.add_row(*cells, style=_STYLES.get(row.mark))
    console.print(table)
    console.print()
    for name, budget in _limited(record):
        console.print(Text(bar(name, budget), style="red" if budget.used >= (budget.ceiling or 0) else "cyan"))
    console.print()
    console.print(f"{_sort(record)}: {_shown(record.get('text'))}")
    console.print(f"why: {_shown(record['explanation'])}", style="bold")
    for hint in _hints(record):
        console.print(hint)


def _markdown(record: Record) -> str:
    lines = [f"# {_head(record)}", "", "| turn | at | what | | tokens | took |", "|---:|---:|---|---|---:|---:|"]
    for _, cells in _lines(record):
        lines.append(f"| {' | '.join(cell.strip().replace('|', ';') for cell in cells)} |")
    lines += ["", "| budget | used | of |", "|---|---:|---:|"]
    for name, budget in _limited(record):
        lines.append(f"| {name} | {budget.unit.show(budget.used)} | {budget.unit.show(budget.ceiling)} |")
    lines += ["", f"**{_sort(record)}:** {_shown(record.get('text'))}", "", f"**Why:** {_shown(record['explanation'])}"]
    return "\n".join([*lines, *(f"\n{hint}" for hint in _hints(record))])


def _head(record: Record) -> str:
    started = next((str(one.get("time", ""))[:19].replace("T", " ") for one in record["events"] if one), "")
    return f"{_shown(task_of(record))} ({record['stop']}, {record.get('seconds', 0):.1f} s, {started} UTC)"


def _lines(record: Record) -> Iterator[tuple[Row, list[str]]]:
    """Each line of the timeline with its cells; a turn's number stands on its first line only."""
    before = 0
    for row in rows(record):
        turn = str(row.turn) if row.turn != before else ""
        tokens = "" if row.tokens is None else f"{row.tokens:,}"
        took = "" if row.seconds is None else f"{row.seconds:.1f} s"
        before = row.turn
        yield row, [plain(cell) for cell in (turn, f"{row.at:.1f}", row.what, row.outcome, tokens, took)]


def _limited(record: Record) -> list[tuple[str, BudgetSnapshot]]:
    """The budgets that have a ceiling and were used."""
    read: list[tuple[str, BudgetSnapshot]] = []
    for name, data in record["budgets"].items():
        budget = BudgetSnapshot.from_dict(data)
        if budget.ceiling and (budget.used or name in ("turns", "tokens")):
            read.append((name, budget))
    return read


def _sort(record: Record) -> str:
    return "answer" if record["stop"] == "completed" else "report"


def _shown(text: Any) -> str:
    return plain(" ".join(str(text or "nothing was said").split()))


def _hints(record: Record) -> list[str]:
    """What to type for the run to get further."""
    flags: list[str] = record.get("flags") or []
    hints: list[str] = []
    for name, budget in _limited(record):
        if name in _OPTIONS and f"max_{budget.name}_reached" in flags and budget.ceiling:
            twice = budget.unit.outer(budget.ceiling * 2)
            hints.append(f"to let it go on: {_OPTIONS[name]} {twice:g}")
    if record["stop"] == "deadline":
        hints.append("to let it go on: --seconds with more")
    return hints
