"""What one sees of a run while it goes on: lines as they come; on a terminal also bars, and what goes on now."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol, Self

from .. import event as events
from ..event import Event
from ..progress import Point, Progress
from ..snapshot import BudgetSnapshot
from ..terminal import visible
from .bar import bars
from .line import put
from .timeline import Kind, Mark, Reader, Row, call_text, one_line
from .told import Told

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

STYLES = {Mark.TOLD: "cyan", Mark.WARN: "yellow", Mark.BAD: "red"}
_TAIL = 400
"""Characters of the streamed text that are shown."""


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
    """A line for each thing that a person may want to know, as it happens."""

    left_out: frozenset[Kind] = frozenset()
    """What is seen elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._reader = Reader()
        self._said = ""

    def show(self, event: Event) -> None:
        """Print what there is to say of it."""
        if isinstance(event, events.Delta):
            self._said += event.text
            return
        row = self._reader.read(Told(event.to_dict()))
        if isinstance(event, events.ModelReplied):
            row = self._replied(event, row)
        if row is not None and row.kind not in self.left_out:
            head = f"turn {row.turn}" if row.kind in (Kind.CALL, Kind.MODEL) else row.kind.value
            self.say(f"{head:8} {visible(row.text)}", row.mark)

    def say(self, line: str, mark: Mark) -> None:
        """Print one line, and not with rich, which would end the program where a pipe is closed."""
        put(line, self._console.file)

    def _replied(self, event: events.ModelReplied, row: Row | None) -> Row | None:
        """What the model said beside its calls; an answer is printed when the run has ended, and not twice."""
        said, self._said = one_line(self._said), ""
        if event.error is None and not (said and event.calls):
            return None
        assert row is not None, "every reply is a line"
        if event.error is not None:
            return row
        return Row(Kind.MODEL, event.turn, event.at, said)


class Live(Lines):
    """The same lines, and below them one bar for each budget, what goes on now, and the text as it comes."""

    left_out = frozenset({Kind.ASKED})  # the person is

    def __init__(self, console: Console) -> None:
        from rich.live import Live as RichLive

        super().__init__(console)
        self._live = RichLive(self, console=console, refresh_per_second=8, transient=True)
        self._budgets: Mapping[str, BudgetSnapshot] = {}
        self._work_seconds = 0.0
        self._at, self._heard = 0.0, time.monotonic()
        self._calls: dict[str, str] = {}
        self._turn, self._now, self._tail = 0, "starts", ""
        self._asking = self._ended = False

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._live.stop()
        if self._asking:  # nobody will answer any more, and what follows begins a line of its own
            self._console.print()

    def watch(self, point: Point, progress: Progress, about: object = None) -> None:
        """Keep the newest reading."""
        self._budgets = progress.budgets
        self._work_seconds = progress.envelope.seconds - progress.envelope.reserve_s

    def say(self, line: str, mark: Mark) -> None:
        """Print one line above the bars."""
        self._console.print(line, style=STYLES.get(mark), soft_wrap=True)

    def show(self, event: Event) -> None:
        """Print what there is to say, and bring the rest up to date."""
        self._at, self._heard, self._turn = event.at, time.monotonic(), event.turn
        if isinstance(event, events.Delta):  # these come too fast, and are drawn with the next refresh
            self._tail = (self._tail + event.text)[-_TAIL:]
        super().show(event)
        self._follow(event)
        if not isinstance(event, events.Delta):
            self._live.refresh()

    def _follow(self, event: Event) -> None:
        match event:
            case events.ModelRequested():
                what = {"grace": "asks for the report:", "reflection": "looks back:"}.get(event.purpose, "asks")
                self._now, self._tail = f"{what} {event.model or 'the model'}", ""
            case events.ToolStarted():
                self._calls[event.call_id] = call_text(event.tool, event.arguments)
                self._now = ", ".join(self._calls.values())
            case events.ToolEnded():
                self._calls.pop(event.call_id, None)
                self._now = ", ".join(self._calls.values()) or self._now
            case events.ToolReported():
                self._now = f"{event.tool}: {event.text}"
            case events.AskedPerson():
                self._now = "waits for a person"
            case _:
                pass

    @contextmanager
    def aside(self) -> Generator[None]:
        """Take the bars away while somebody types."""
        self._asking = True
        self._live.stop()
        try:
            yield
        finally:
            self._asking = False
            if not self._ended:
                self._live.start()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        seconds = self._at + time.monotonic() - self._heard
        for bar in bars(self._budgets, seconds, self._work_seconds):
            yield Text(bar.text(options.ascii_only), style="red" if bar.full else "cyan", no_wrap=True)
        now = f"turn {self._turn}: {self._now}" if self._turn else self._now
        yield Text(visible(" ".join(now.split())), no_wrap=True, overflow="ellipsis")
        if self._tail:
            yield Text(visible(" ".join(self._tail.split())), style="dim")
