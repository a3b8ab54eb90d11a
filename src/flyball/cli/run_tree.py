"""Table of a finished run and its children: usage, stop reason and totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..history.record import RunRecord
from ..person import escape_unprintable
from ..result import Stop

_Node = TypeVar("_Node")
_HEAD_ROWS, _TAIL_ROWS = 12, 24
HEADERS = ("run", "turns", "tokens", "cost", "took", "why it ended")


@dataclass(frozen=True, slots=True)
class TreeRow:
    """Row of the table; `cells` belong to `HEADERS` after the first."""

    branch: str
    name: str
    cells: tuple[str, str, str, str, str]
    stop: Stop | None = None
    """Stop reason. None means not ended, or several runs."""
    is_run: bool = False
    """False for a row that sums up several runs."""


def build_tree_rows(record: RunRecord, show_all: bool = False, ascii_only: bool = False) -> list[TreeRow]:
    """Build rows for the run, its descendants and the total.

    Unless `show_all`, the middle of a large tree becomes one row.
    """
    descendants = iter_branches(record.children, lambda run: run.children, ascii_only)
    branches = [("", record), *descendants]
    rows = [
        TreeRow(branch, escape_unprintable(run.label), _build_cells(run), run.stop, is_run=True)
        for branch, run in branches
    ]
    if not show_all and len(rows) > _HEAD_ROWS + _TAIL_ROWS + 1:
        between = [run for _, run in branches[_HEAD_ROWS:-_TAIL_ROWS]]
        summary = TreeRow("", f"{len(between):,} more", _build_total_cells(between, "--all shows them"))
        rows = [*rows[:_HEAD_ROWS], summary, *rows[-_TAIL_ROWS:]]
    runs = [run for _, run in branches]
    return [*rows, TreeRow("", f"{len(runs):,} runs", _build_total_cells(runs, ""))]


def _build_cells(record: RunRecord) -> tuple[str, str, str, str, str]:
    turns = record.budgets.get("turns")
    of_ceiling = "" if turns is None or turns.ceiling is None else f" of {turns.ceiling:,}"
    used = f"{record.data.integer('turns'):,}{of_ceiling}", f"{record.tokens:,}", _format_cost([record])
    return *used, f"{record.data.number('seconds'):.1f} s", escape_unprintable(_format_reason(record))


def _build_total_cells(records: Sequence[RunRecord], reason: str) -> tuple[str, str, str, str, str]:
    turns, tokens = sum(record.data.integer("turns") for record in records), sum(record.tokens for record in records)
    return f"{turns:,}", f"{tokens:,}", _format_cost(records), "", reason


def _format_cost(records: Sequence[RunRecord]) -> str:
    """Format the total cost, with a `?` if part of it is unknown."""
    cost = sum(record.cost for record in records)
    unknown = any(record.data.text_list("unpriced") for record in records)
    if not cost:
        return "?" if unknown else ""
    return f"${cost:.4g}{' and ?' if unknown else ''}"


def _format_reason(record: RunRecord) -> str:
    """Format the stop reason with its cause."""
    data, stop = record.data, record.stop
    details = data.nested("error").text("message") or ("" if stop is Stop.COMPLETED else data.text("warning"))
    details = details or (f"by {data.text('stopped_by')}" if data.text("stopped_by") else "")
    return f"{record.status}: {' '.join(details.split())}" if details else record.status


def iter_branches(
    roots: Sequence[_Node], get_children: Callable[[_Node], Sequence[_Node]], ascii_only: bool = False
) -> Iterator[tuple[str, _Node]]:
    """Yield each node with its branch, parents first.

    >>> [branch + name for branch, name in iter_branches(["a", "b"], {"a": ["c"], "b": [], "c": []}.__getitem__)]
    ['├─ a', '│  └─ c', '└─ b']
    """
    fork, last, through = ("|- ", "`- ", "|  ") if ascii_only else ("├─ ", "└─ ", "│  ")
    pending = [("", node, n == 0) for n, node in enumerate(reversed(roots))]
    while pending:
        indent, node, is_last = pending.pop()
        yield indent + (last if is_last else fork), node
        child_indent = indent + ("   " if is_last else through)
        pending += [(child_indent, child, n == 0) for n, child in enumerate(reversed(get_children(node)))]
