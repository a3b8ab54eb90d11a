"""What one sees of a run while it goes on: lines as they come; on a terminal also bars, and what goes on now."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING, Protocol, Self

from .. import event as events
from ..budget.snapshot import BudgetSnapshot
from ..event import Event
from ..history.timeline import Kind, Mark, Row
from ..history.told import Told
from ..progress import Point, Progress
from ..terminal import visible
from .budget_bars import bars
from .output import put
from .tree import Member, Tree

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

STYLES = {Mark.TOLD: "cyan", Mark.WARN: "yellow", Mark.BAD: "red"}
_OTHERS = 4
"""Lines beside bars and children, and the least that children have."""


class View(Protocol):
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

    left_out: frozenset[Kind] = frozenset()
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
            head = f"turn {row.turn}" if row.kind in (Kind.CALL, Kind.MODEL) else row.kind.value
            self.say(f"{who}{head:8} {visible(row.text)}", row.mark)

    def say(self, line: str, mark: Mark) -> None:
        """Print one line, and not with rich, which would end the program where a pipe is closed."""
        put(line, self._console.file)


def _row(event: Event, member: Member) -> Row | None:
    """The line of an event, if it has one."""
    row = member.reader.read(Told(event.to_dict()))
    match event:
        case events.ModelReplied():
            return _reply(event, member, row)
        case events.RunStarted() if member.level:
            limits = Told(event.limits)
            most = f"at most {limits.whole('steps_max'):,} turns, {limits.number('remaining_s'):,.0f} s"
            return Row(Kind.STARTED, 0, event.at, most)
        case events.RunEnded() if member.level:
            return Row(Kind.ENDED, event.turn, event.at, event.stop, member.used, mark=member.mark)
        case _:
            return row


def _reply(event: events.ModelReplied, member: Member, row: Row | None) -> Row | None:
    """What the model said beside its calls; the run's own answer is printed when it has ended, and not twice."""
    said = member.take_words()
    if event.error is not None:
        return row
    return Row(Kind.MODEL, event.turn, event.at, said) if said and (event.calls or member.level) else None


class Live(Lines):
    """The same lines, and below them a bar for each budget, what goes on, the children, and the text as it comes."""

    left_out = frozenset({Kind.ASKED})  # the person is

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
