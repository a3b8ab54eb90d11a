"""The record of a run as a page of Markdown, for an issue or a chat."""

from __future__ import annotations

from collections.abc import Iterator

from ..history.record import Record
from ..terminal import visible
from .budget_bars import bars
from .report import end, numbered, shown, spent, summary
from .run_tree import HEADS, kin

_MEANT = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#"})


def markdown_of(record: Record, every: bool = False) -> str:
    """The same as on the screen, in Markdown; what a model or a tool said is only text in it."""
    return "\n".join(_lines(record, every))


def _lines(record: Record, every: bool) -> Iterator[str]:
    yield f"### {plain(shown(record.task))}"
    yield ""
    yield f"**{record.word}** · {plain(summary(record))}"
    yield ""
    yield "| turn | at | what | tokens | took |"
    yield "|---:|---:|---|---:|---:|"
    for row, turn in numbered(record, every):
        yield f"| {turn} | {row.at:.1f} | {plain(visible(row.line))} | {' | '.join(spent(row))} |"
    yield ""
    yield "| budget | used |"
    yield "|---|---:|"
    for bar in bars(record.budgets, record.told.number("seconds"), record.work_seconds):
        yield f"| {bar.name} | {bar.amount} |"
    if record.children:
        yield ""
        yield f"| {' | '.join(HEADS)} |"
        yield "|---|---:|---:|---:|---:|---|"
        for line in kin(record, every):
            yield f"| {plain(line.name)} | {' | '.join(map(plain, line.cells))} |"
    for name, text, _ in end(record):
        yield ""
        yield f"**{name}:**"
        yield ""
        yield from (f"> {plain(line)}" for line in text.splitlines())


def plain(text: str) -> str:
    """A text in which nothing is markup."""
    return text.translate(_MEANT)
