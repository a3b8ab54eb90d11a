"""Kin: a run that has ended and those below it, each with what it used and its one reason, and all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..history.record import RunRecord
from ..person import escape_unprintable
from ..result import Stop

_Node = TypeVar("_Node")


def iter_branches(
    roots: Sequence[_Node], get_children: Callable[[_Node], Sequence[_Node]], ascii_only: bool = False
) -> Iterator[tuple[str, _Node]]:
    """Each node behind its branch, a parent before its children.

    >>> [branch + name for branch, name in iter_branches(["a", "b"], {"a": ["c"], "b": [], "c": []}.__getitem__)]
    ['├─ a', '│  └─ c', '└─ b']
    """
    fork, last, through = ("|- ", "`- ", "|  ") if ascii_only else ("├─ ", "└─ ", "│  ")
    coming = [("", node, n == 0) for n, node in enumerate(reversed(roots))]
    while coming:
        left, node, ends = coming.pop()
        yield left + (last if ends else fork), node
        under = left + ("   " if ends else through)
        coming += [(under, one, n == 0) for n, one in enumerate(reversed(get_children(node)))]


_HEAD_ROWS, _TAIL_ROWS = 12, 24
HEADERS = ("run", "turns", "tokens", "cost", "took", "why it ended")


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One line; `cells` stand below `HEADS`."""

    branch: str
    name: str
    cells: tuple[str, str, str, str, str]
    stop: Stop | None = None
    """Why it ended."""
    is_run: bool = False
    """Whether it is one run, and not several."""


def build_tree_rows(record: RunRecord, show_all: bool = False, ascii_only: bool = False) -> list[TreeRow]:
    """The run, those below it, and their sum; of a big tree, but for `every`, the middle is one line."""
    below = iter_branches(record.children, lambda one: one.children, ascii_only)
    drawn = [("", record), *below]
    lines = [
        TreeRow(branch, escape_unprintable(one.label), _build_cells(one), one.stop, is_run=True)
        for branch, one in drawn
    ]
    if not show_all and len(lines) > _HEAD_ROWS + _TAIL_ROWS + 1:
        between = [one for _, one in drawn[_HEAD_ROWS:-_TAIL_ROWS]]
        more = TreeRow("", f"{len(between):,} more", _build_total_cells(between, "--all shows them"))
        lines = [*lines[:_HEAD_ROWS], more, *lines[-_TAIL_ROWS:]]
    everyone = [one for _, one in drawn]
    return [*lines, TreeRow("", f"{len(everyone):,} runs", _build_total_cells(everyone, ""))]


def _build_cells(record: RunRecord) -> tuple[str, str, str, str, str]:
    turns = record.budgets.get("turns")
    most = "" if turns is None or turns.ceiling is None else f" of {turns.ceiling:,}"
    used = f"{record.data.integer('turns'):,}{most}", f"{record.tokens:,}", _format_cost([record])
    return *used, f"{record.data.number('seconds'):.1f} s", escape_unprintable(_format_reason(record))


def _build_total_cells(records: Sequence[RunRecord], reason: str) -> tuple[str, str, str, str, str]:
    turns, tokens = sum(one.data.integer("turns") for one in records), sum(one.tokens for one in records)
    return f"{turns:,}", f"{tokens:,}", _format_cost(records), "", reason


def _format_cost(records: Sequence[RunRecord]) -> str:
    """What they cost together, and whether that is all."""
    cost = sum(one.cost for one in records)
    unknown = any(one.data.text_list("unpriced") for one in records)
    if not cost:
        return "?" if unknown else ""
    return f"${cost:.4g}{' and ?' if unknown else ''}"


def _format_reason(record: RunRecord) -> str:
    """Why it ended, and the limit, the error, or whoever did it."""
    told, stop = record.data, record.stop
    more = told.nested("error").text("message") or ("" if stop is Stop.COMPLETED else told.text("warning"))
    more = more or (f"by {told.text('stopped_by')}" if told.text("stopped_by") else "")
    return f"{record.status}: {' '.join(more.split())}" if more else record.status
