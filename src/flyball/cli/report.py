"""The record of a run as one screen: a timeline with what each turn and call took, the budgets, and the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..history.record import RunRecord
from ..history.timeline import Mark, RowKind, TimelineRow, rows, shortened
from ..person import harmless, visible
from ..result import Stop
from .budget_bars import bars
from .hints import hints
from .live import STYLES
from .run_tree import HEADS, kin

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_ENDS = {Stop.COMPLETED: "green", Stop.PAUSED: "yellow", Stop.FAILED: "red"}
_PIPE = 100
"""The width where there is no terminal."""
_LONGEST_NAME = 32
_TRACK = 16
_WIDE = 96
"""From this width on there is place for the track."""


def console() -> Console:
    """Standard output, as wide as it is."""
    from rich.console import Console

    made = Console(highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _PIPE
    return made


def drawn(record: RunRecord, console: Console, every: bool = False) -> str:
    """It as the console would print it; `every` leaves nothing out of a long timeline."""
    from rich.padding import Padding
    from rich.text import Text

    ascii_only = console.options.ascii_only
    with console.capture() as capture:
        console.print(_head(record))
        console.print()
        console.print(_table(record, console.width, ascii_only, every))
        console.print()
        for bar in bars(record.budgets, record.told.number("seconds"), record.work_seconds):
            console.print(Text(bar.text(ascii_only), style="red" if bar.full else "cyan", no_wrap=True), crop=True)
        console.print()
        if record.children:
            console.print(_tree(record, ascii_only, every))
            console.print()
        for name, text, style in end(record):
            console.print(Text(name, style="bold"))
            console.print(Padding(Text(text, style=style), (0, 0, 0, 2)))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _head(record: RunRecord) -> Text:
    from rich.text import Text

    stop = (f" {record.word} ", f"bold reverse {_colour(record.stop)}")
    return Text.assemble(stop, " ", (shown(record.task), "bold"), "\n", (summary(record), "dim"))


def summary(record: RunRecord) -> str:
    """When, who, and how much, in one line."""
    told = record.told
    models = dict.fromkeys(event.text("model") for event in record.events if event.text("event") == "model_requested")
    counted = [(told.whole("turns"), "turn"), (told.whole("requests"), "request"), (len(record.outcomes), "call")]
    parts = [
        ", ".join(filter(None, models)) or "nobody was asked",
        ", ".join(_count(*one) for one in counted),
        f"${record.cost:.4g}" if record.cost else "",
        f"{told.number('seconds'):.1f} s",
        f"{record.started} UTC" if record.started else "",
    ]
    return visible(" · ".join(part for part in parts if part))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _table(record: RunRecord, width: int, ascii_only: bool, every: bool) -> Table:
    from rich.table import Column, Table

    columns = [Column("turn", justify="right"), Column("at", justify="right"), Column("what", ratio=1, overflow="fold")]
    columns += [Column("tokens", justify="right"), Column("took", justify="right")]
    if width >= _WIDE:
        columns.append(Column("", no_wrap=True, width=_TRACK))
    table = Table(*columns, box=None, pad_edge=False, expand=True, header_style="dim")
    for row, turn in numbered(record, every):
        cells: list[Any] = [turn, f"{row.at:.1f}", _what(row), *spent(row)]
        if width >= _WIDE:
            cells.append(_track(row, record.told.number("seconds"), ascii_only))
        table.add_row(*cells)
    return table


def _tree(record: RunRecord, ascii_only: bool, every: bool) -> Table:
    """The run and its children, with what each of them used."""
    from rich.table import Column, Table
    from rich.text import Text

    who, *used, why = HEADS
    columns = [Column(who, no_wrap=True, overflow="ellipsis", max_width=_LONGEST_NAME)]
    columns += [Column(head, justify="right", no_wrap=True) for head in used]
    table = Table(*columns, Column(why, ratio=1, overflow="fold"), box=None, pad_edge=False, header_style="dim")
    for line in kin(record, every, ascii_only):
        *amounts, reason = line.cells
        style = _colour(line.stop) if line.is_run else "dim"
        table.add_row(Text(line.branch + line.name), *map(Text, amounts), Text(reason, style=style))
    return table


def _what(row: TimelineRow) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    style = STYLES.get(row.mark, "")
    words = f": {visible(row.words)}" if row.words else ""
    if row.kind is RowKind.MODEL:
        return Text.assemble((visible(row.what), "bold"), " ", (visible(row.outcome) + words, style))
    if row.kind is RowKind.CALL:
        status = (f" {visible(row.outcome)}", style or "green")
        text = Text.assemble(visible(row.what), status, (words, style or "dim"))
        if row.mark is Mark.GOOD:  # what a call gave is in the record; here a line of it will do
            text.no_wrap, text.overflow = True, "ellipsis"
    else:
        text = Text.assemble((row.kind.value, f"bold {style}"), " ", (visible(row.what), style))
    return Padding(text, (0, 0, 0, 2))


def _track(row: TimelineRow, total: float, ascii_only: bool) -> Text:
    """When in the run it was, and for how long."""
    from rich.text import Text

    share = _TRACK / max(total, row.at + (row.seconds or 0.0), 1e-9)
    start = min(_TRACK - 1, int(row.at * share))
    long, dot = ("#", ".") if ascii_only else ("━", "·")
    length = max(1, min(_TRACK - start, round((row.seconds or 0.0) * share)))
    drawn = dot if row.seconds is None else long * length
    return Text(" " * start + drawn, style=STYLES.get(row.mark) or ("blue" if row.kind is RowKind.MODEL else "green"))


def numbered(record: RunRecord, every: bool = False) -> Iterator[tuple[TimelineRow, str]]:
    """Each line of the timeline; a turn's number stands on its first line only."""
    lines = rows(record.events, record.calls, record.outcomes)
    before = 0
    for row in lines if every else shortened(lines):
        yield row, str(row.turn) if row.turn != before else ""
        before = row.turn


def spent(row: TimelineRow) -> tuple[str, str]:
    """The tokens and the seconds that it took, where it took any."""
    tokens = "" if row.tokens is None else f"{row.tokens:,}"
    return tokens, "" if row.seconds is None else f"{row.seconds:.1f} s"


def end(record: RunRecord) -> Iterator[tuple[str, str, str]]:
    """What is to be said of its end: a heading, a text, and its colour."""
    told, ended = record.told, record.stop is not None
    last = "answer" if record.stop is Stop.COMPLETED else "report" if ended else "said last"
    yield last, paragraph(told.text("text")), ""
    yield "why it ended" if ended else "how far it came", paragraph(told.text("explanation")), _colour(record.stop)
    for question in told.inners("questions"):
        yield "it waits for an answer", paragraph(question.text("text")), "cyan"
    if further := hints(record):
        yield "what would let it go on", "\n".join(map(visible, further)), "cyan"
    if dropped := told.whole("events_dropped"):
        yield "not shown", f"the first {dropped:,} events, which the record does not have", "dim"


def _colour(stop: Stop | None) -> str:
    return "yellow" if stop is None else _ENDS.get(stop, "yellow")


def shown(text: str) -> str:
    """A text as one line."""
    return visible(" ".join(text.split())) or "no task"


def paragraph(text: str) -> str:
    """A text with its lines."""
    return harmless(text.strip().expandtabs(4)) or "nothing was said"


_MEANT = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#"})


def markdown_of(record: RunRecord, every: bool = False) -> str:
    """The same as on the screen, in Markdown; what a model or a tool said is only text in it."""
    return "\n".join(_lines(record, every))


def _lines(record: RunRecord, every: bool) -> Iterator[str]:
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
