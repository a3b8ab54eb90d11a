"""Views of a run in progress.

`Lines` prints a line per notable event. `Live` adds budget bars and the current activity on a terminal. Both keep a
`RunTree` of the run and its children up to date from the events.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Protocol, Self

from .. import event as events
from .._internal.json_reader import JsonReader
from .._internal.jsonable import to_jsonable
from .._internal.text import to_one_line
from ..budget.forecast import Forecast
from ..budget.snapshot import BudgetSnapshot
from ..display.timeline import RowKind, Severity, TimelineReader, TimelineRow, format_call
from ..event import Event
from ..person import escape_unprintable
from ..progress import Point, Progress
from ..result import Stop
from .budget_bars import build_bars, render_bars
from .output import print_raw
from .quiet_terminal import restore_echo, stop_echo
from .run_tree import iter_branches
from .wrapping import wrap_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_TAIL_CHARS = 400
"""Number of characters of streamed text that are kept."""
_CHILD_TAIL_CHARS = 48
"""Number of those in the line of a child."""
_PURPOSES = {"grace": "asks for the report:", "reflection": "reflects:"}
STYLES = {Severity.INFO: "cyan", Severity.WARN: "yellow", Severity.BAD: "red"}
_RESERVED_LINES = 4
"""Lines besides bars and children; also the minimum for children."""


class RunView(Protocol):
    """View of one run, active inside its `with` block."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, event: Event) -> None:
        """Show an event, on the command's thread.

        Raises `BrokenPipeError` if the output is closed.
        """
        ...

    def watch(self, point: Point, progress: Progress, about: object = None) -> None:
        """Record the budgets.

        This is a hook: it is called on the run's thread and must not block.
        """
        ...

    def pause_output(self) -> AbstractContextManager[object]:
        """Suspend output while a person is asked on the same terminal."""
        ...


class SilentView:
    """View that shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        pass

    def watch(self, point: Point, progress: Progress, about: object = None) -> None:
        pass

    def pause_output(self) -> AbstractContextManager[object]:
        return nullcontext()


class JsonLinesView(SilentView):
    """View that prints each event as a line of JSON."""

    def show(self, event: Event) -> None:
        print_raw(json.dumps(event.to_dict()))


class Lines(SilentView):
    """View that prints a line per notable event, indented for children."""

    hidden_kinds: frozenset[RowKind] = frozenset()
    """Kinds that the view shows in another way."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tree = RunTree()

    def show(self, event: Event) -> None:
        node = self._tree.update(event)
        if isinstance(event, events.Delta):
            return
        row = _build_row(event, node)
        if row is not None and row.kind not in self.hidden_kinds:
            prefix = f"{'  ' * node.level}{escape_unprintable(node.label)}  " if node.level else ""
            head = f"turn {row.turn}" if row.kind in (RowKind.CALL, RowKind.MODEL) else row.kind.value
            self.print_line(f"{prefix}{head:8} ", escape_unprintable(row.text), row.severity)

    def print_line(self, head: str, text: str, severity: Severity) -> None:
        """Print one line.

        Not with rich, which exits the program when a pipe is closed.
        """
        print_raw(head + text, self._console.file)


def _build_row(event: Event, node: RunNode) -> TimelineRow | None:
    row = node.reader.read(JsonReader(event.to_dict()))
    match event:
        case events.ModelReplied():
            return _build_reply_row(event, node, row)
        case events.RunStarted() if node.level:
            limits = JsonReader(event.limits)
            summary = f"at most {limits.integer('steps_max'):,} turns, {limits.number('remaining_s'):,.0f} s"
            return TimelineRow(RowKind.STARTED, 0, event.at, summary)
        case events.RunEnded() if node.level:
            return TimelineRow(RowKind.ENDED, event.turn, event.at, event.stop, node.usage_text, severity=node.severity)
        case _:
            return row


def _build_reply_row(event: events.ModelReplied, node: RunNode, row: TimelineRow | None) -> TimelineRow | None:
    """Build the row of a reply.

    Only text beside calls, and text of children, gets a row: the final answer is printed after the run.
    """
    text = node.take_reply_text()
    if event.error is not None:
        return row
    return TimelineRow(RowKind.MODEL, event.turn, event.at, text) if text and (event.calls or node.level) else None


class Live(Lines):
    """View with lines, and below them bars, activity, children and streamed text."""

    hidden_kinds = frozenset({RowKind.ASKED})  # the question itself is on the terminal

    def __init__(self, console: Console) -> None:
        from rich.live import Live as RichLive
        from rich.spinner import Spinner

        super().__init__(console)
        self._live = RichLive(self, console=console, refresh_per_second=8, transient=True)
        self._budgets: Mapping[str, BudgetSnapshot] = {}
        self._forecast: Forecast | None = None
        self._work_seconds = 0.0
        self._spinner = Spinner("dots" if console.encoding.startswith("utf") else "line")
        self._queued_lines: deque[tuple[str, str, Severity]] = deque()
        self._asking = self._ended = False
        self._draw_lock = Lock()
        """Held while drawing: questions come from another thread and must not be drawn over."""

    def __enter__(self) -> Self:
        stop_echo()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._draw_lock:
            self._ended = True
            self._live.stop()
            restore_echo()
            if self._asking:  # end the line of the unanswered question
                self._console.print()
            self._print_queued()

    def watch(self, point: Point, progress: Progress, about: object = None) -> None:
        self._budgets = progress.budgets
        if point in (Point.TURN_STARTED, Point.TURN_ENDED):
            self._forecast = progress.forecast
        self._work_seconds = progress.envelope.seconds - progress.envelope.reserve_s

    def print_line(self, head: str, text: str, severity: Severity) -> None:
        """Print one line above the bars.

        Lines that arrive while a person is asked are queued: other children continue meanwhile.
        """
        with self._draw_lock:
            self._queued_lines.append((head, text, severity))
            if not self._asking:
                self._print_queued()

    def _print_queued(self) -> None:
        while self._queued_lines:
            head, text, severity = self._queued_lines.popleft()
            for line in wrap_line(head, text, self._console.width):
                self._console.print(line, style=STYLES.get(severity), soft_wrap=True)

    def show(self, event: Event) -> None:
        super().show(event)
        with self._draw_lock:
            if not isinstance(event, events.Delta) and not self._asking:  # deltas come too fast to refresh for each
                self._live.refresh()

    @contextmanager
    def pause_output(self) -> Generator[None]:
        with self._draw_lock:
            self._asking = True
            self._live.stop()
            restore_echo(drops_typed=True)
        try:
            yield
        finally:
            with self._draw_lock:
                self._asking = False
                if not self._ended:
                    self._print_queued()
                    stop_echo()
                    self._live.start()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        top = self._tree.top
        free_lines = options.max_height - _RESERVED_LINES
        bars = build_bars(self._budgets, top.seconds, self._work_seconds)
        for bar, line in render_bars(bars, options.max_width, options.ascii_only):
            yield Text(line, style="red" if bar.is_full else "cyan", no_wrap=True)
            free_lines -= 1
        if self._forecast is not None:
            yield Text(str(self._forecast), style="dim")
            free_lines -= 1
        status = f"turn {top.turn}: {top.activity}" if top.turn else top.activity
        if top.is_silent:
            status = f"{self._spinner.render(console.get_time())} {status}"
        yield Text(escape_unprintable(" ".join(status.split())), no_wrap=True, overflow="ellipsis")
        for line, severity in self._tree.iter_lines(max(_RESERVED_LINES, free_lines), options.ascii_only):
            yield Text(line, style=STYLES.get(severity, ""), no_wrap=True, overflow="ellipsis")
        if top.reply_tail:
            yield Text(escape_unprintable(" ".join(top.reply_tail.split())), style="dim")


class RunTree:
    """Top run and all runs below it, as known from their events."""

    def __init__(self) -> None:
        self.top = RunNode("")
        self._nodes: dict[str, RunNode] = {}

    def update(self, event: Event) -> RunNode:
        """Apply an event and return the run it belongs to."""
        node = self._find_node(event)
        node.update(event)
        if isinstance(event, events.ChildStarted) and event.child_id not in self._nodes:
            self._nodes[event.child_id] = node.add_child(event.agent)
        return node

    def _find_node(self, event: Event) -> RunNode:
        run_id = event.header.run_id
        if run_id not in self._nodes:
            parent = self._nodes.get(event.header.parent_run_id or "", self.top)
            name = event.agent if isinstance(event, events.RunStarted) else None
            self._nodes[run_id] = parent.add_child(name or "child") if self._nodes else self.top
        return self._nodes[run_id]

    def iter_lines(self, max_lines: int, ascii_only: bool = False) -> Iterator[tuple[str, Severity]]:
        """Yield a line per child, at most `max_lines`.

        If there are more children, running ones come first and the last line counts the rest.
        """
        nodes = list(self._iter_descendants())
        has_more = len(nodes) > max_lines
        # A running child has a running parent, so each child shown has its parents shown.
        ordered = sorted(nodes, key=lambda node: (bool(node.stop), not node.is_started))
        shown, others = set(ordered[: max_lines - has_more]), ordered[max_lines - has_more :]

        def shown_children(node: RunNode) -> list[RunNode]:
            return [child for child in node.children if child in shown]

        for branch, node in iter_branches(shown_children(self.top), shown_children, ascii_only):
            yield branch + node.line, node.severity
        if has_more:
            counts = Counter(node.stop or ("running" if node.is_started else "waiting") for node in others)
            yield f"and {len(others)} more: {', '.join(f'{n} {status}' for status, n in counts.items())}", Severity.GOOD

    def _iter_descendants(self) -> Iterator[RunNode]:
        return (node for _, node in iter_branches(self.top.children, lambda node: node.children))


@dataclass(slots=True, eq=False)
class RunNode:
    """State of one run, as known from its events."""

    name: str
    tree_path: str = ""
    """Position in the tree: 2.1 is the first child of the second child; empty for the top run."""
    children: list[RunNode] = field(default_factory=list["RunNode"])
    reader: TimelineReader = field(default_factory=TimelineReader)
    reply_text: str = ""
    """Text of the current reply so far."""
    reply_tail: str = ""
    """End of that text; kept until the next reply."""
    turn: int = 0
    max_turns: int | None = None
    tokens: int = 0
    activity: str = "waits"
    stop: str = ""
    """Stop reason; empty while the run is in progress."""
    _is_asked: bool = False
    _at: float = 0.0
    _last_event_at: float = field(default_factory=time.monotonic)
    _calls: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def label(self) -> str:
        """Name and tree path; names alone may repeat."""
        return f"{self.name} {self.tree_path}".rstrip()

    @property
    def level(self) -> int:
        """Depth below the top run."""
        return self.tree_path.count(".") + 1 if self.tree_path else 0

    @property
    def is_started(self) -> bool:
        """False while the run is only announced.

        A child may have to wait for others.
        """
        return self.activity != "waits"

    @property
    def seconds(self) -> float:
        """Seconds since the start, or until the end."""
        return self._at if self.stop or not self.is_started else self._at + time.monotonic() - self._last_event_at

    @property
    def is_silent(self) -> bool:
        """True while a model was asked and has not begun to answer."""
        return self._is_asked and not self.reply_tail

    @property
    def severity(self) -> Severity:
        return Severity.WARN if self.stop and self.stop != Stop.COMPLETED else Severity.GOOD

    @property
    def usage_text(self) -> str:
        """Turns, tokens and seconds used."""
        return f"{self.turn}{self._of_turns} turns, {self._spent}"

    @property
    def line(self) -> str:
        """Summary in one line: stop reason and usage, or progress and activity."""
        if self.stop:
            status = f"{self.stop}, {self.usage_text}"
        elif self.is_started:
            doing = f"…{self.reply_tail[-_CHILD_TAIL_CHARS:]}" if self.reply_text else self.activity
            status = f"turn {self.turn}{self._of_turns}, {self._spent}: {doing}"
        else:
            status = self.activity
        return escape_unprintable(" ".join(f"{self.label}: {status}".split()))

    @property
    def _of_turns(self) -> str:
        return "" if self.max_turns is None else f" of {self.max_turns}"

    @property
    def _spent(self) -> str:
        return f"{self.tokens:,} tokens, {self.seconds:.1f} s"

    def add_child(self, name: str) -> RunNode:
        child = RunNode(name, f"{self.tree_path}.{len(self.children) + 1}".lstrip("."))
        self.children.append(child)
        return child

    def update(self, event: Event) -> None:
        """Apply one of the run's own events."""
        self._at, self._last_event_at, self.turn = event.at, time.monotonic(), event.turn
        match event:
            case events.RunStarted():
                max_turns = event.limits.get("steps_max")
                self.max_turns, self.activity = max_turns if isinstance(max_turns, int) else None, "starts"
            case events.RunEnded():
                self.turn, self.stop = event.turns, event.stop
            case events.ModelRequested():
                self.activity = f"{_PURPOSES.get(event.purpose, 'asks')} {event.model or 'the model'}"
                self.reply_text = self.reply_tail = ""
                self._is_asked = True
            case events.Delta():
                self.reply_text += event.text
                self.reply_tail = (self.reply_tail + event.text)[-_TAIL_CHARS:]
            case events.ModelReplied():
                self.tokens += event.input_tokens + event.output_tokens
                self._is_asked = False
            case _:
                self._update_activity(event)

    def _update_activity(self, event: Event) -> None:
        match event:
            case events.ChildStarted():
                self.activity = "waits for its children"
            case events.ToolStarted():
                self._calls[event.call_id] = format_call(event.tool, to_jsonable(event.arguments))
                self.activity = ", ".join(self._calls.values())
            case events.ToolEnded():
                self._calls.pop(event.call_id, None)
                self.activity = ", ".join(self._calls.values()) or self.activity
            case events.ToolReported():
                self.activity = f"{event.tool}: {event.text}"
            case events.AskedPerson():
                self.activity = "waits for a person"
            case _:
                pass

    def take_reply_text(self) -> str:
        """Return the text of the finished reply on one line, and clear it."""
        text, self.reply_text = to_one_line(self.reply_text), ""
        return text
