"""What one sees of a run while it goes on: lines as they come; on a terminal also bars, and what goes on now."""

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
from .._internal.jsonable import to_jsonable
from ..budget.snapshot import BudgetSnapshot
from ..event import Event
from ..history.record import JsonReader
from ..history.timeline import RowKind, Severity, TimelineReader, TimelineRow, format_call, to_one_line
from ..person import escape_unprintable
from ..progress import Point, Progress
from ..result import Stop
from .budget_bars import build_bars
from .output import print_raw
from .run_tree import iter_branches

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_TAIL_CHARS = 400
"""Characters of the streamed text that are kept."""
_CHILD_TAIL_CHARS = 48
"""Characters of them in the line of a child."""
_PURPOSES = {"grace": "asks for the report:", "reflection": "looks back:"}


@dataclass(slots=True, eq=False)
class RunNode:
    """One run, as far as its events have told."""

    name: str
    tree_path: str = ""
    """Where it stands: 2.1 is the first child of the second; nothing is the top."""
    children: list[RunNode] = field(default_factory=list["RunNode"])
    reader: TimelineReader = field(default_factory=TimelineReader)
    reply_text: str = ""
    """What the model has said of its reply so far."""
    reply_tail: str = ""
    """The last of that; it stays until the next reply."""
    turn: int = 0
    max_turns: int | None = None
    tokens: int = 0
    activity: str = "waits"
    stop: str = ""
    """Why it ended; nothing while it goes on."""
    _at: float = 0.0
    _last_event_at: float = field(default_factory=time.monotonic)
    _calls: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def label(self) -> str:
        """Its name, and its place, as several may have the same name."""
        return f"{self.name} {self.tree_path}".rstrip()

    @property
    def level(self) -> int:
        """How far below the top it is."""
        return self.tree_path.count(".") + 1 if self.tree_path else 0

    @property
    def is_started(self) -> bool:
        """Whether it is more than announced: children may have to wait for others."""
        return self.activity != "waits"

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return self._at if self.stop or not self.is_started else self._at + time.monotonic() - self._last_event_at

    @property
    def severity(self) -> Severity:
        """How bad its end is."""
        return Severity.WARN if self.stop and self.stop != Stop.COMPLETED else Severity.GOOD

    @property
    def usage_text(self) -> str:
        """What it took, of what."""
        return f"{self.turn}{self._of_turns} turns, {self._spent}"

    @property
    def line(self) -> str:
        """It in one line: its end and what it took; or how far it is, and what it does."""
        if self.stop:
            told = f"{self.stop}, {self.usage_text}"
        elif self.is_started:
            doing = f"…{self.reply_tail[-_CHILD_TAIL_CHARS:]}" if self.reply_text else self.activity
            told = f"turn {self.turn}{self._of_turns}, {self._spent}: {doing}"
        else:
            told = self.activity
        return escape_unprintable(" ".join(f"{self.label}: {told}".split()))

    @property
    def _of_turns(self) -> str:
        return "" if self.max_turns is None else f" of {self.max_turns}"

    @property
    def _spent(self) -> str:
        return f"{self.tokens:,} tokens, {self.seconds:.1f} s"

    def add_child(self, name: str) -> RunNode:
        """One more child."""
        made = RunNode(name, f"{self.tree_path}.{len(self.children) + 1}".lstrip("."))
        self.children.append(made)
        return made

    def update(self, event: Event) -> None:
        """Take in what an event of its own tells."""
        self._at, self._last_event_at, self.turn = event.at, time.monotonic(), event.turn
        match event:
            case events.RunStarted():
                most = event.limits.get("steps_max")
                self.max_turns, self.activity = most if isinstance(most, int) else None, "starts"
            case events.RunEnded():
                self.turn, self.stop = event.turns, event.stop
            case events.ModelRequested():
                self.activity = f"{_PURPOSES.get(event.purpose, 'asks')} {event.model or 'the model'}"
                self.reply_text = self.reply_tail = ""
            case events.Delta():
                self.reply_text += event.text
                self.reply_tail = (self.reply_tail + event.text)[-_TAIL_CHARS:]
            case events.ModelReplied():
                self.tokens += event.input_tokens + event.output_tokens
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
        """What the model has said of a reply that is over now, in one line."""
        said, self.reply_text = to_one_line(self.reply_text), ""
        return said


class RunTree:
    """All runs of which events come: the first is the top, and the others are below it."""

    def __init__(self) -> None:
        self.top = RunNode("")
        self._nodes: dict[str, RunNode] = {}

    def update(self, event: Event) -> RunNode:
        """Take an event; the run whose it is."""
        member = self._find_node(event)
        member.update(event)
        if isinstance(event, events.ChildStarted) and event.child_id not in self._nodes:
            self._nodes[event.child_id] = member.add_child(event.agent)
        return member

    def _find_node(self, event: Event) -> RunNode:
        run_id = event.header.run_id
        if run_id not in self._nodes:
            above = self._nodes.get(event.header.parent_run_id or "", self.top)
            name = event.agent if isinstance(event, events.RunStarted) else None
            self._nodes[run_id] = above.add_child(name or "child") if self._nodes else self.top
        return self._nodes[run_id]

    def iter_lines(self, max_lines: int, ascii_only: bool = False) -> Iterator[tuple[str, Severity]]:
        """Each child in a line; where there is no room for all, first those that go on, and the others counted."""
        everyone = list(self._iter_descendants())
        more = len(everyone) > max_lines
        # Who goes on has a parent that goes on, so nobody is shown without those above.
        first = sorted(everyone, key=lambda one: (bool(one.stop), not one.is_started))
        shown, others = set(first[: max_lines - more]), first[max_lines - more :]

        def shown_children(node: RunNode) -> list[RunNode]:
            return [child for child in node.children if child in shown]

        for branch, member in iter_branches(shown_children(self.top), shown_children, ascii_only):
            yield branch + member.line, member.severity
        if more:
            counts = Counter(one.stop or ("going on" if one.is_started else "waiting") for one in others)
            yield f"and {len(others)} more: {', '.join(f'{n} {what}' for what, n in counts.items())}", Severity.GOOD

    def _iter_descendants(self) -> Iterator[RunNode]:
        return (member for _, member in iter_branches(self.top.children, lambda one: one.children))


STYLES = {Severity.INFO: "cyan", Severity.WARN: "yellow", Severity.BAD: "red"}
_RESERVED_LINES = 4
"""Lines beside bars and children, and the least that children have."""


class RunView(Protocol):
    """Shows the events of one run, between `with` and its end."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """End, whatever happened."""
        ...

    def show(self, event: Event) -> None:
        """Take an event; on the thread of the command. A BrokenPipeError says that nobody looks any more."""
        ...

    def watch(self, point: Point, progress: Progress, about: object = None) -> None:
        """Look at the budgets; a hook of the run, called on its thread, and it does not block."""
        ...

    def pause_output(self) -> AbstractContextManager[object]:
        """Keep quiet meanwhile: somebody is asked on the same terminal."""
        ...


class SilentView:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        """Nothing."""

    def watch(self, point: Point, progress: Progress, about: object = None) -> None:
        """Nothing."""

    def pause_output(self) -> AbstractContextManager[object]:
        """There is nothing to be quiet about."""
        return nullcontext()


class JsonLinesView(SilentView):
    """Every event as a line of JSON on standard output."""

    def show(self, event: Event) -> None:
        """Print it."""
        print_raw(json.dumps(event.to_dict()))


class Lines(SilentView):
    """A line for each thing that a person may want to know, as it happens; those of children stand further in."""

    hidden_kinds: frozenset[RowKind] = frozenset()
    """What is seen elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tree = RunTree()

    def show(self, event: Event) -> None:
        """Print what there is to say of it."""
        member = self._tree.update(event)
        if isinstance(event, events.Delta):
            return
        row = _build_row(event, member)
        if row is not None and row.kind not in self.hidden_kinds:
            who = f"{'  ' * member.level}{escape_unprintable(member.label)}  " if member.level else ""
            head = f"turn {row.turn}" if row.kind in (RowKind.CALL, RowKind.MODEL) else row.kind.value
            self.print_line(f"{who}{head:8} {escape_unprintable(row.text)}", row.severity)

    def print_line(self, line: str, severity: Severity) -> None:
        """Print one line, and not with rich, which would end the program where a pipe is closed."""
        print_raw(line, self._console.file)


def _build_row(event: Event, node: RunNode) -> TimelineRow | None:
    """The line of an event, if it has one."""
    row = node.reader.read(JsonReader(event.to_dict()))
    match event:
        case events.ModelReplied():
            return _build_reply_row(event, node, row)
        case events.RunStarted() if node.level:
            limits = JsonReader(event.limits)
            most = f"at most {limits.integer('steps_max'):,} turns, {limits.number('remaining_s'):,.0f} s"
            return TimelineRow(RowKind.STARTED, 0, event.at, most)
        case events.RunEnded() if node.level:
            return TimelineRow(RowKind.ENDED, event.turn, event.at, event.stop, node.usage_text, severity=node.severity)
        case _:
            return row


def _build_reply_row(event: events.ModelReplied, node: RunNode, row: TimelineRow | None) -> TimelineRow | None:
    """What the model said beside its calls; the run's own answer is printed when it has ended, and not twice."""
    said = node.take_reply_text()
    if event.error is not None:
        return row
    return TimelineRow(RowKind.MODEL, event.turn, event.at, said) if said and (event.calls or node.level) else None


class Live(Lines):
    """The same lines, and below them a bar for each budget, what goes on, the children, and the text as it comes."""

    hidden_kinds = frozenset({RowKind.ASKED})  # the person is

    def __init__(self, console: Console) -> None:
        from rich.live import Live as RichLive

        super().__init__(console)
        self._live = RichLive(self, console=console, refresh_per_second=8, transient=True)
        self._budgets: Mapping[str, BudgetSnapshot] = {}
        self._work_seconds = 0.0
        self._queued_lines: deque[tuple[str, Severity]] = deque()
        self._asking = self._ended = False
        self._draw_lock = Lock()
        """Whoever draws holds it: a question comes on another thread, and nothing may be drawn behind it."""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._draw_lock:
            self._ended = True
            self._live.stop()
            if self._asking:  # nobody will answer any more, and what follows begins a line of its own
                self._console.print()
            self._print_queued()

    def watch(self, point: Point, progress: Progress, about: object = None) -> None:
        """Keep the newest reading."""
        self._budgets = progress.budgets
        self._work_seconds = progress.envelope.seconds - progress.envelope.reserve_s

    def print_line(self, line: str, severity: Severity) -> None:
        """Print one line above the bars; when somebody has answered, as children go on while one of them asks."""
        with self._draw_lock:
            self._queued_lines.append((line, severity))
            if not self._asking:
                self._print_queued()

    def _print_queued(self) -> None:
        while self._queued_lines:
            line, mark = self._queued_lines.popleft()
            self._console.print(line, style=STYLES.get(mark), soft_wrap=True)

    def show(self, event: Event) -> None:
        """Print what there is to say, and bring the rest up to date."""
        super().show(event)
        with self._draw_lock:
            if not isinstance(event, events.Delta) and not self._asking:  # the former come too fast for that
                self._live.refresh()

    @contextmanager
    def pause_output(self) -> Generator[None]:
        """Take the bars away while somebody types."""
        with self._draw_lock:
            self._asking = True
            self._live.stop()
        try:
            yield
        finally:
            with self._draw_lock:
                self._asking = False
                if not self._ended:
                    self._print_queued()
                    self._live.start()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        top = self._tree.top
        room = options.max_height - _RESERVED_LINES
        for bar in build_bars(self._budgets, top.seconds, self._work_seconds):
            yield Text(bar.render(options.ascii_only), style="red" if bar.is_full else "cyan", no_wrap=True)
            room -= 1
        now = f"turn {top.turn}: {top.activity}" if top.turn else top.activity
        yield Text(escape_unprintable(" ".join(now.split())), no_wrap=True, overflow="ellipsis")
        for line, mark in self._tree.iter_lines(max(_RESERVED_LINES, room), options.ascii_only):
            yield Text(line, style=STYLES.get(mark, ""), no_wrap=True, overflow="ellipsis")
        if top.reply_tail:
            yield Text(escape_unprintable(" ".join(top.reply_tail.split())), style="dim")
