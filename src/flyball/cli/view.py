"""What one sees of a run while it goes on, where there is no terminal to draw on."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, Self

from .. import event as events
from ..event import Event
from ..progress import Point, Progress
from ..terminal import visible
from .line import put
from .timeline import Kind, Mark, Reader, Row, one_line
from .told import Told


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
    """A line on standard error for each thing that a person may want to know, as it happens."""

    def __init__(self) -> None:
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
        if row is not None:
            head = f"turn {row.turn}" if row.kind in (Kind.CALL, Kind.MODEL) else row.kind.value
            self.say(f"{head:9}{visible(row.text)}", row.mark)

    def say(self, line: str, mark: Mark) -> None:
        """Print one line."""
        put(line, err=True)

    def _replied(self, event: events.ModelReplied, row: Row | None) -> Row | None:
        """What the model said beside its calls; an answer is printed when the run has ended, and not twice."""
        said, self._said = one_line(self._said), ""
        if event.error is None and not (said and event.calls):
            return None
        assert row is not None, "every reply is a line"
        if event.error is not None:
            return row
        return Row(Kind.MODEL, event.turn, event.at, said)
