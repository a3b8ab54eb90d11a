"""Report of a run for `flyball why`, for the terminal or as Markdown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._internal.text import pluralize
from ..display.timeline import RowKind, Severity, TimelineRow, build_rows, shorten_rows
from ..history.forecast import find_recorded_forecast
from ..history.record import RunRecord
from ..person import escape_control_characters, escape_unprintable
from ..result import Stop
from .budget_bars import build_bars, render_bars
from .hints import build_hints
from .live import STYLES
from .output import NARROW_COLUMNS
from .run_tree import HEADERS, build_tree_rows
from .wrapping import wrap_parts

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_STOP_COLOURS = {Stop.COMPLETED: "green", Stop.PAUSED: "yellow", Stop.FAILED: "red"}
_PIPE_WIDTH = 100
"""Width in a pipe."""
_MAX_NAME_WIDTH = 32
_TRACK_WIDTH = 16
_MIN_WIDTH_FOR_TRACK = 96
"""Minimum console width to show the track."""
_SEPARATOR = " · "
_MARKUP = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#"})


def make_console() -> Console:
    """Return a console for standard output, with a fixed width in a pipe."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


def render_report(record: RunRecord, console: Console, show_all: bool = False) -> str:
    """Render the record as the console would print it.

    `show_all` keeps every row of a long timeline.
    """
    from rich.padding import Padding
    from rich.text import Text

    ascii_only = console.options.ascii_only
    with console.capture() as capture:
        console.print(_render_head(record, console.width))
        console.print()
        console.print(_build_table(record, console.width, ascii_only, show_all))
        console.print()
        bars = build_bars(record.budgets, record.data.number("seconds"), record.work_seconds)
        for bar, line in render_bars(bars, console.width, ascii_only):
            console.print(Text(line, style="red" if bar.is_full else "cyan", no_wrap=True), crop=True)
        console.print()
        if record.children:
            console.print(_build_tree(record, console.width, ascii_only, show_all))
            console.print()
        for name, text, style in iter_end_sections(record):
            console.print(Text(name, style="bold"))
            console.print(Padding(Text(text, style=style), (0, 0, 0, 2)))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _render_head(record: RunRecord, width: int) -> Text:
    from rich.text import Text

    stop = (f" {record.status} ", f"bold reverse {choose_colour(record.stop)}")
    summary = "\n".join(wrap_parts(list_summary(record), _SEPARATOR, width))
    return Text.assemble(stop, " ", (format_task(record.title), "bold"), "\n", (summary, "dim"))


def format_summary(record: RunRecord) -> str:
    """Format models, counts, cost and time as one line."""
    return _SEPARATOR.join(list_summary(record))


def list_summary(record: RunRecord) -> list[str]:
    """List models, counts, cost and time."""
    data = record.data
    models = dict.fromkeys(event.text("model") for event in record.events if event.text("event") == "model_requested")
    counts = [(data.integer("turns"), "turn"), (data.integer("requests"), "request"), (record.call_count, "call")]
    parts = [
        ", ".join(filter(None, models)) or "no model was asked",
        ", ".join(pluralize(*count) for count in counts),
        f"${record.cost:.4g}" if record.cost else "",
        f"{data.number('seconds'):.1f} s",
        f"{record.started} UTC" if record.started else "",
    ]
    return [escape_unprintable(part) for part in parts if part]


def _build_table(record: RunRecord, width: int, ascii_only: bool, show_all: bool) -> Table:
    from rich.table import Column, Table

    is_narrow, has_track = width < NARROW_COLUMNS, width >= _MIN_WIDTH_FOR_TRACK
    columns = [Column("turn", justify="right"), Column("what", ratio=1, overflow="fold")]
    columns.append(Column("took", justify="right", no_wrap=True))
    if not is_narrow:
        columns.insert(1, Column("at", justify="right", no_wrap=True))
        columns.insert(3, Column("tokens", justify="right", no_wrap=True))
    if has_track:
        columns.append(Column("", no_wrap=True, width=_TRACK_WIDTH))
    table = Table(*columns, box=None, pad_edge=False, collapse_padding=is_narrow, expand=True, header_style="dim")
    for row, turn in iter_numbered_rows(record, show_all):
        tokens, seconds = format_spent(row)
        cells: list[Any] = [turn, _render_subject(row), seconds]
        if not is_narrow:
            cells = [turn, f"{row.at:.1f}", _render_subject(row), tokens, seconds]
        if has_track:
            cells.append(_render_track(row, record.data.number("seconds"), ascii_only))
        table.add_row(*cells)
    return table


def _build_tree(record: RunRecord, width: int, ascii_only: bool, show_all: bool) -> Table:
    """Build the table of the run and its children with their usage."""
    from rich.table import Column, Table
    from rich.text import Text

    name_header, *amount_headers, reason_header = HEADERS
    columns = [Column(name_header, no_wrap=True, overflow="ellipsis", max_width=_MAX_NAME_WIDTH)]
    shown = slice(1 if width < NARROW_COLUMNS else None)
    columns += [Column(head, justify="right", no_wrap=True) for head in amount_headers[shown]]
    table = Table(
        *columns, Column(reason_header, ratio=1, overflow="fold"), box=None, pad_edge=False, header_style="dim"
    )
    for row in build_tree_rows(record, show_all, ascii_only):
        *amounts, reason = row.cells
        style = choose_colour(row.stop) if row.is_run else "dim"
        table.add_row(Text(row.branch + row.name), *map(Text, amounts[shown]), Text(reason, style=style))
    return table


def _render_subject(row: TimelineRow) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    style = STYLES.get(row.severity, "")
    details = f": {escape_unprintable(row.details)}" if row.details else ""
    if row.kind is RowKind.MODEL:
        return Text.assemble(
            (escape_unprintable(row.subject), "bold"), " ", (escape_unprintable(row.outcome) + details, style)
        )
    if row.kind is RowKind.CALL:
        status = (f" {escape_unprintable(row.outcome)}", style or "green")
        text = Text.assemble(escape_unprintable(row.subject), status, (details, style or "dim"))
        if row.severity is Severity.GOOD:  # one line is enough here; the record has the whole result
            text.no_wrap, text.overflow = True, "ellipsis"
    else:
        text = Text.assemble((row.kind.value, f"bold {style}"), " ", (escape_unprintable(row.subject), style))
    return Padding(text, (0, 0, 0, 2))


def _render_track(row: TimelineRow, total: float, ascii_only: bool) -> Text:
    """Draw when in the run the row was, and for how long."""
    from rich.text import Text

    share = _TRACK_WIDTH / max(total, row.at + (row.seconds or 0.0), 1e-9)
    start = min(_TRACK_WIDTH - 1, int(row.at * share))
    long, dot = ("#", ".") if ascii_only else ("━", "·")
    length = max(1, min(_TRACK_WIDTH - start, round((row.seconds or 0.0) * share)))
    drawn = dot if row.seconds is None else long * length
    return Text(
        " " * start + drawn, style=STYLES.get(row.severity) or ("blue" if row.kind is RowKind.MODEL else "green")
    )


def iter_numbered_rows(record: RunRecord, show_all: bool = False) -> Iterator[tuple[TimelineRow, str]]:
    """Yield timeline rows; only the first row of a turn carries its number."""
    rows = build_rows(record.events, record.calls, record.outcomes)
    previous_turn = 0
    for row in rows if show_all else shorten_rows(rows):
        yield row, str(row.turn) if row.turn != previous_turn else ""
        previous_turn = row.turn


def format_spent(row: TimelineRow) -> tuple[str, str]:
    """Format tokens and seconds, each empty if unknown."""
    tokens = "" if row.tokens is None else f"{row.tokens:,}"
    return tokens, "" if row.seconds is None else f"{row.seconds:.1f} s"


def iter_end_sections(record: RunRecord) -> Iterator[tuple[str, str, str]]:
    """Yield heading, text and colour of each section about the end."""
    data, ended = record.data, record.stop is not None
    text_heading = "answer" if record.stop is Stop.COMPLETED else "report" if ended else "last text"
    yield text_heading, format_paragraph(data.text("text")), ""
    yield (
        "why it ended" if ended else "status",
        format_paragraph(data.text("explanation")),
        choose_colour(record.stop),
    )
    if conversations := [*_iter_conversations(record)]:
        yield "conversations", "\n".join(conversations), ""
    if data.nested("state").nested("plan").get("is_cost_imputed") is True:
        yield "subscription", "\n".join(_iter_plan(record)), ""
    forecast = find_recorded_forecast(record) if record.stop in (None, Stop.PAUSED) else None
    if forecast is not None:
        yield "forecast", f"At this pace, {forecast}.", ""
    for question in data.nested_list("questions"):
        yield "open question", format_paragraph(question.text("text")), "cyan"
    if hints := build_hints(record):
        yield "how to continue", "\n".join(map(escape_unprintable, hints)), "cyan"
    if dropped := data.integer("events_dropped"):
        yield "not shown", f"the first {dropped:,} events, which are not in the record", "dim"


def _iter_conversations(record: RunRecord) -> Iterator[str]:
    """Yield the spending of each conversation of a program under a gateway."""
    for chat in record.data.nested("state").nested_list("conversations"):
        tokens = chat.integer("input_tokens") + chat.integer("output_tokens")
        parts = [
            pluralize(chat.integer("turns"), "turn"),
            pluralize(chat.integer("requests"), "request"),
            f"{tokens:,} tokens",
            f"${chat.number('cost_usd'):.4g}" if chat.number("cost_usd") else "",
            "reported" if chat.get("reported") is True else "",
        ]
        name = escape_unprintable(" · ".join(filter(None, (chat.text("name"), chat.text("model")))))
        yield f"{name}: {', '.join(filter(None, parts))}"


def _iter_plan(record: RunRecord) -> Iterator[str]:
    """Yield how much of a subscription was used, as its provider told."""
    yield "Dollars are imputed, because the program used a subscription."
    windows = record.data.nested("state").nested("plan").nested("windows")
    for name in windows:
        yield escape_unprintable(f"{100 * windows.nested(name).number('used'):.3g} % of the plan for {name} was used.")


def choose_colour(stop: Stop | None) -> str:
    return "yellow" if stop is None else _STOP_COLOURS.get(stop, "yellow")


def format_task(text: str) -> str:
    return escape_unprintable(" ".join(text.split())) or "(no task)"


def format_paragraph(text: str) -> str:
    return escape_control_characters(text.strip().expandtabs(4)) or "(no text)"


def render_markdown(record: RunRecord, show_all: bool = False) -> str:
    """Render the report as Markdown; text of models and tools is escaped."""
    return "\n".join(_iter_markdown(record, show_all))


def _iter_markdown(record: RunRecord, show_all: bool) -> Iterator[str]:
    yield f"### {escape_markdown(format_task(record.title))}"
    yield ""
    yield f"**{record.status}** · {escape_markdown(format_summary(record))}"
    yield ""
    yield "| turn | at | what | tokens | took |"
    yield "|---:|---:|---|---:|---:|"
    for row, turn in iter_numbered_rows(record, show_all):
        line = escape_markdown(escape_unprintable(row.line))
        yield f"| {turn} | {row.at:.1f} | {line} | {' | '.join(format_spent(row))} |"
    yield ""
    yield "| budget | used |"
    yield "|---|---:|"
    for bar in build_bars(record.budgets, record.data.number("seconds"), record.work_seconds):
        yield f"| {bar.name} | {bar.amount} |"
    if record.children:
        yield ""
        yield f"| {' | '.join(HEADERS)} |"
        yield "|---|---:|---:|---:|---:|---|"
        for line in build_tree_rows(record, show_all):
            yield f"| {escape_markdown(line.name)} | {' | '.join(map(escape_markdown, line.cells))} |"
    for name, text, _ in iter_end_sections(record):
        yield ""
        yield f"**{name}:**"
        yield ""
        yield from (f"> {escape_markdown(line)}" for line in text.splitlines())


def escape_markdown(text: str) -> str:
    return text.translate(_MARKUP)
