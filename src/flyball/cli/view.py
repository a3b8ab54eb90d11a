"""What one sees of a run while it goes on: bars and the newest line on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol, Self

from .. import event as told
from ..event import Event
from ..progress import Point, Progress
from ..snapshot import BudgetSnapshot
from .line import plain
from .timeline import call_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_TAIL = 400
"""Characters of the streamed text that are shown."""
_BAR = 32


class View(Protocol):
    """Shows the events of one run, between `with` and its end."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """End, whatever happened."""
        ...

    def show(self, event: Event) -> None:
        """Take an event; on the thread of the command."""
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


class Lines(Silence):
    """A line for each thing that a person may want to know, as it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._calls: dict[str, str] = {}
        self._said = ""

    def show(self, event: Event) -> None:
        """Print what there is to say of it."""
        match event:
            case told.Delta():
                self._said += event.text
            case told.ToolStarted():
                self._calls[event.call_id] = call_text(event.tool, event.arguments)
            case _:
                pass
        line = self._line(event)
        if line is not None:
            self.say(*line)

    def say(self, head: str, text: str, style: str = "") -> None:
        """Print one line."""
        self._console.print(f"{head:9}{plain(text)}", style=style or None, soft_wrap=True)

    def _line(self, event: Event) -> tuple[str, str, str] | None:
        turn = f"turn {event.turn}"
        match event:
            case told.ToolEnded():
                call = self._calls.pop(event.call_id, event.tool)
                reason = f" ({event.reason})" if event.reason else ""
                style = "" if event.status == "done" else "yellow"
                return turn, f"{call}: {event.status.replace('_', ' ')}{reason}", style
            case told.ModelReplied(error=None, calls=calls) if calls or event.purpose != "turn":
                said, self._said = self._said, ""
                return (turn, " ".join(said.split()), "dim") if said.strip() and event.purpose == "turn" else None
            case told.ModelReplied():
                self._said = ""
                return None if event.error is None else ("failed", event.error, "yellow")
            case told.Retried():
                return "again", f"after {event.wait_s:.1f} s", "yellow"
            case told.NoticeDelivered():
                return "notice", event.text, "cyan"
            case told.Nudged():
                return "nudge", event.text, "cyan"
            case told.Repeated():
                return "repeats", f"{event.tool}, {event.times} times: {event.action}", "yellow"
            case told.BudgetRefused():
                return "refused", event.flag, "red"
            case told.Extended():
                return "extended", f"{event.budget} by {event.amount} ({event.by})", "cyan"
            case told.Elided():
                return "elided", f"{event.messages} old messages", "dim"
            case told.RuleFailed():
                return "rule", f"{event.rule} failed: {event.reason}", "yellow"
            case told.GraceStarted():
                return "grace", "one last request, without tools, from what was set aside", "cyan"
            case told.PersonAnswered(approved=None):
                return "pauses", "nobody answered", "yellow"
            case _:
                return None


class Live(Lines):
    """The same lines, and below them one bar for each budget, what goes on now, and the text as it comes."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live as RichLive

        super().__init__(console)
        self._live = RichLive(self, console=console, refresh_per_second=8, transient=True)
        self._budgets: Mapping[str, BudgetSnapshot] = {}
        self._now = "starts"
        self._tail = ""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def watch(self, point: Point, progress: Progress, about: object = None) -> None:
        """Keep the newest reading."""
        self._budgets = progress.budgets

    def show(self, event: Event) -> None:
        """Print what there is to say, and bring the rest up to date."""
        super().show(event)
        match event:
            case told.ModelRequested():
                what = {"grace": "asks for the report", "reflection": "looks back"}.get(event.purpose, "asks")
                self._now, self._tail = f"turn {event.turn}: {what} {event.model or 'the model'}", ""
            case told.ToolStarted():
                self._now = f"turn {event.turn}: {call_text(event.tool, event.arguments)}"
            case told.ToolReported():
                self._now = f"turn {event.turn}: {event.tool}: {event.text}"
            case told.Delta():
                self._tail = (self._tail + event.text)[-_TAIL:]
            case told.AskedPerson():
                self._now = "waits for a person"
            case _:
                pass
        if not isinstance(event, told.Delta):  # these come too fast, and are shown with the next refresh
            self._live.refresh()

    @contextmanager
    def aside(self) -> Generator[None]:
        """Take the bars away while somebody types."""
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for name, budget in self._budgets.items():
            if budget.ceiling:
                yield Text(bar(name, budget), style="red" if budget.used >= budget.ceiling else "cyan", no_wrap=True)
        yield Text(plain(self._now), no_wrap=True, overflow="ellipsis")
        if self._tail:
            yield Text(plain(" ".join(self._tail.split())), style="dim")


def bar(name: str, budget: BudgetSnapshot) -> str:
    """One budget that has a ceiling, in one line, drawn in plain characters."""
    show, ceiling = budget.unit.show, budget.ceiling or 1
    filled = min(_BAR, budget.used * _BAR // ceiling)
    return f"{name:>12} {'━' * filled}{'─' * (_BAR - filled)} {show(budget.used)} of {show(ceiling)}"
