"""What one sees of a run on a terminal: lines as they come, and below them bars, what goes on now, and the text."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from .. import event as events
from ..event import Event
from ..progress import Point, Progress
from ..snapshot import BudgetSnapshot
from ..terminal import visible
from .bar import bars
from .timeline import Mark, call_text
from .view import Lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

STYLES = {Mark.TOLD: "cyan", Mark.WARN: "yellow", Mark.BAD: "red"}
_TAIL = 400
"""Characters of the streamed text that are shown."""


class Live(Lines):
    """The same lines, and below them one bar for each budget, what goes on now, and the text as it comes."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live as RichLive

        super().__init__()
        self._console = console
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
