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
from .._internal.jsonable import jsonable
from ..budget.snapshot import BudgetSnapshot
from ..event import Event
from ..history.record import JsonReader
from ..history.timeline import Mark, RowKind, TimelineReader, TimelineRow, call_text, one_line
from ..person import visible
from ..progress import Point, Progress
from ..result import Stop
from .budget_bars import bars
from .output import put
from .run_tree import branches

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_TAIL = 400
"""Characters of the streamed text that are kept."""
_HEARD = 48
"""Characters of them in the line of a child."""
_PURPOSES = {"grace": "asks for the report:", "reflection": "looks back:"}


@dataclass(slots=True, eq=False)
class RunNode:
    """One run, as far as its events have told."""

    name: str
    place: str = ""
    """Where it stands: 2.1 is the first child of the second; nothing is the top."""
    children: list[RunNode] = field(default_factory=list["RunNode"])
    reader: TimelineReader = field(default_factory=TimelineReader)
    said: str = ""
    """What the model has said of its reply so far."""
    tail: str = ""
    """The last of that; it stays until the next reply."""
    turn: int = 0
    most_turns: int | None = None
    tokens: int = 0
    now: str = "waits"
    stop: str = ""
    """Why it ended; nothing while it goes on."""
    _at: float = 0.0
    _heard: float = field(default_factory=time.monotonic)
    _calls: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def label(self) -> str:
        """Its name, and its place, as several may have the same name."""
        return f"{self.name} {self.place}".rstrip()

    @property
    def level(self) -> int:
        """How far below the top it is."""
        return self.place.count(".") + 1 if self.place else 0

    @property
    def begun(self) -> bool:
        """Whether it is more than announced: children may have to wait for others."""
        return self.now != "waits"

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return self._at if self.stop or not self.begun else self._at + time.monotonic() - self._heard

    @property
    def mark(self) -> Mark:
        """How bad its end is."""
        return Mark.WARN if self.stop and self.stop != Stop.COMPLETED else Mark.GOOD

    @property
    def used(self) -> str:
        """What it took, of what."""
        return f"{self.turn}{self._of_turns} turns, {self._spent}"

    @property
    def line(self) -> str:
        """It in one line: its end and what it took; or how far it is, and what it does."""
        if self.stop:
            told = f"{self.stop}, {self.used}"
        elif self.begun:
            doing = f"…{self.tail[-_HEARD:]}" if self.said else self.now
            told = f"turn {self.turn}{self._of_turns}, {self._spent}: {doing}"
        else:
            told = self.now
        return visible(" ".join(f"{self.label}: {told}".split()))

    @property
    def _of_turns(self) -> str:
        return "" if self.most_turns is None else f" of {self.most_turns}"

    @property
    def _spent(self) -> str:
        return f"{self.tokens:,} tokens, {self.seconds:.1f} s"

    def child(self, name: str) -> RunNode:
        """One more child."""
        made = RunNode(name, f"{self.place}.{len(self.children) + 1}".lstrip("."))
        self.children.append(made)
        return made

    def follow(self, event: Event) -> None:
        """Take in what an event of its own tells."""
        self._at, self._heard, self.turn = event.at, time.monotonic(), event.turn
        match event:
            case events.RunStarted():
                most = event.limits.get("steps_max")
                self.most_turns, self.now = most if isinstance(most, int) else None, "starts"
            case events.RunEnded():
                self.turn, self.stop = event.turns, event.stop
            case events.ModelRequested():
                self.now = f"{_PURPOSES.get(event.purpose, 'asks')} {event.model or 'the model'}"
                self.said = self.tail = ""
            case events.Delta():
                self.said += event.text
                self.tail = (self.tail + event.text)[-_TAIL:]
            case events.ModelReplied():
                self.tokens += event.input_tokens + event.output_tokens
            case _:
                self._work(event)

    def _work(self, event: Event) -> None:
        match event:
            case events.ChildStarted():
                self.now = "waits for its children"
            case events.ToolStarted():
                self._calls[event.call_id] = call_text(event.tool, jsonable(event.arguments))
                self.now = ", ".join(self._calls.values())
            case events.ToolEnded():
                self._calls.pop(event.call_id, None)
                self.now = ", ".join(self._calls.values()) or self.now
            case events.ToolReported():
                self.now = f"{event.tool}: {event.text}"
            case events.AskedPerson():
                self.now = "waits for a person"
            case _:
                pass

    def take_words(self) -> str:
        """What the model has said of a reply that is over now, in one line."""
        said, self.said = one_line(self.said), ""
        return said


class Tree:
    """All runs of which events come: the first is the top, and the others are below it."""

    def __init__(self) -> None:
        self.top = RunNode("")
        self._members: dict[str, RunNode] = {}

    def follow(self, event: Event) -> RunNode:
        """Take an event; the run whose it is."""
        member = self._of(event)
        member.follow(event)
        if isinstance(event, events.ChildStarted) and event.child_id not in self._members:
            self._members[event.child_id] = member.child(event.agent)
        return member

    def _of(self, event: Event) -> RunNode:
        run_id = event.header.run_id
        if run_id not in self._members:
            above = self._members.get(event.header.parent_run_id or "", self.top)
            name = event.agent if isinstance(event, events.RunStarted) else None
            self._members[run_id] = above.child(name or "child") if self._members else self.top
        return self._members[run_id]

    def lines(self, room: int, ascii_only: bool = False) -> Iterator[tuple[str, Mark]]:
        """Each child in a line; where there is no room for all, first those that go on, and the others counted."""
        everyone = list(self._below())
        more = len(everyone) > room
        # Who goes on has a parent that goes on, so nobody is shown without those above.
        first = sorted(everyone, key=lambda one: (bool(one.stop), not one.begun))
        shown, others = set(first[: room - more]), first[room - more :]

        def below(member: RunNode) -> list[RunNode]:
            return [child for child in member.children if child in shown]

        for branch, member in branches(below(self.top), below, ascii_only):
            yield branch + member.line, member.mark
        if more:
            counts = Counter(one.stop or ("going on" if one.begun else "waiting") for one in others)
            yield f"and {len(others)} more: {', '.join(f'{n} {what}' for what, n in counts.items())}", Mark.GOOD

    def _below(self) -> Iterator[RunNode]:
        return (member for _, member in branches(self.top.children, lambda one: one.children))


STYLES = {Mark.TOLD: "cyan", Mark.WARN: "yellow", Mark.BAD: "red"}
_OTHERS = 4
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

    def aside(self) -> AbstractContextManager[object]:
        """Keep quiet meanwhile: somebody is asked on the same terminal."""
        ...


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        """Nothing."""

    def watch(self, point: Point, progress: Progress, about: object = None) -> None:
        """Nothing."""

    def aside(self) -> AbstractContextManager[object]:
        """There is nothing to be quiet about."""
        return nullcontext()


class Events(Silence):
    """Every event as a line of JSON on standard output."""

    def show(self, event: Event) -> None:
        """Print it."""
        put(json.dumps(event.to_dict()))


class Lines(Silence):
    """A line for each thing that a person may want to know, as it happens; those of children stand further in."""

    left_out: frozenset[RowKind] = frozenset()
    """What is seen elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tree = Tree()

    def show(self, event: Event) -> None:
        """Print what there is to say of it."""
        member = self._tree.follow(event)
        if isinstance(event, events.Delta):
            return
        row = _row(event, member)
        if row is not None and row.kind not in self.left_out:
            who = f"{'  ' * member.level}{visible(member.label)}  " if member.level else ""
            head = f"turn {row.turn}" if row.kind in (RowKind.CALL, RowKind.MODEL) else row.kind.value
            self.say(f"{who}{head:8} {visible(row.text)}", row.mark)

    def say(self, line: str, mark: Mark) -> None:
        """Print one line, and not with rich, which would end the program where a pipe is closed."""
        put(line, self._console.file)


def _row(event: Event, member: RunNode) -> TimelineRow | None:
    """The line of an event, if it has one."""
    row = member.reader.read(JsonReader(event.to_dict()))
    match event:
        case events.ModelReplied():
            return _reply(event, member, row)
        case events.RunStarted() if member.level:
            limits = JsonReader(event.limits)
            most = f"at most {limits.whole('steps_max'):,} turns, {limits.number('remaining_s'):,.0f} s"
            return TimelineRow(RowKind.STARTED, 0, event.at, most)
        case events.RunEnded() if member.level:
            return TimelineRow(RowKind.ENDED, event.turn, event.at, event.stop, member.used, mark=member.mark)
        case _:
            return row


def _reply(event: events.ModelReplied, member: RunNode, row: TimelineRow | None) -> TimelineRow | None:
    """What the model said beside its calls; the run's own answer is printed when it has ended, and not twice."""
    said = member.take_words()
    if event.error is not None:
        return row
    return TimelineRow(RowKind.MODEL, event.turn, event.at, said) if said and (event.calls or member.level) else None


class Live(Lines):
    """The same lines, and below them a bar for each budget, what goes on, the children, and the text as it comes."""

    left_out = frozenset({RowKind.ASKED})  # the person is

    def __init__(self, console: Console) -> None:
        from rich.live import Live as RichLive

        super().__init__(console)
        self._live = RichLive(self, console=console, refresh_per_second=8, transient=True)
        self._budgets: Mapping[str, BudgetSnapshot] = {}
        self._work_seconds = 0.0
        self._lines: deque[tuple[str, Mark]] = deque()
        self._asking = self._ended = False
        self._pen = Lock()
        """Whoever draws holds it: a question comes on another thread, and nothing may be drawn behind it."""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._pen:
            self._ended = True
            self._live.stop()
            if self._asking:  # nobody will answer any more, and what follows begins a line of its own
                self._console.print()
            self._print()

    def watch(self, point: Point, progress: Progress, about: object = None) -> None:
        """Keep the newest reading."""
        self._budgets = progress.budgets
        self._work_seconds = progress.envelope.seconds - progress.envelope.reserve_s

    def say(self, line: str, mark: Mark) -> None:
        """Print one line above the bars; when somebody has answered, as children go on while one of them asks."""
        with self._pen:
            self._lines.append((line, mark))
            if not self._asking:
                self._print()

    def _print(self) -> None:
        while self._lines:
            line, mark = self._lines.popleft()
            self._console.print(line, style=STYLES.get(mark), soft_wrap=True)

    def show(self, event: Event) -> None:
        """Print what there is to say, and bring the rest up to date."""
        super().show(event)
        with self._pen:
            if not isinstance(event, events.Delta) and not self._asking:  # the former come too fast for that
                self._live.refresh()

    @contextmanager
    def aside(self) -> Generator[None]:
        """Take the bars away while somebody types."""
        with self._pen:
            self._asking = True
            self._live.stop()
        try:
            yield
        finally:
            with self._pen:
                self._asking = False
                if not self._ended:
                    self._print()
                    self._live.start()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        top = self._tree.top
        room = options.max_height - _OTHERS
        for bar in bars(self._budgets, top.seconds, self._work_seconds):
            yield Text(bar.text(options.ascii_only), style="red" if bar.full else "cyan", no_wrap=True)
            room -= 1
        now = f"turn {top.turn}: {top.now}" if top.turn else top.now
        yield Text(visible(" ".join(now.split())), no_wrap=True, overflow="ellipsis")
        for line, mark in self._tree.lines(max(_OTHERS, room), options.ascii_only):
            yield Text(line, style=STYLES.get(mark, ""), no_wrap=True, overflow="ellipsis")
        if top.tail:
            yield Text(visible(" ".join(top.tail.split())), style="dim")
