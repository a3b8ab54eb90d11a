"""State of the child runs that work in the background of one run."""

from __future__ import annotations

from collections.abc import Sequence

from ..result import Result
from .child_task import ChildTask
from .effects import ChildDone


class BackgroundRuns:
    """Child runs of one run that work in the background."""

    __slots__ = ("answer_waits", "cancelled", "ended", "open", "received", "unread")

    def __init__(self) -> None:
        self.open: dict[str, ChildTask] = {}
        """Child runs that have not ended, by id."""
        self.received: list[ChildDone] = []
        """Child runs that have ended and are not settled yet."""
        self.ended: dict[str, tuple[ChildTask, Result]] = {}
        """Child runs that have ended, by handle."""
        self.unread: list[str] = []
        """Handles of ended child runs whose results the model has not read."""
        self.answer_waits = False
        """True if the model has given its last answer, which does not count before it has read all results."""
        self.cancelled: tuple[str, ...] = ()
        """Ids of child runs that were cancelled because the run ended."""

    def start(self, tasks: Sequence[ChildTask]) -> None:
        """Note child runs that have started."""
        self.open |= {task.run_id: task for task in tasks}

    def find(self, handle: str) -> ChildTask | None:
        """Return the child run of a handle, or None."""
        known = [*self.open.values(), *(task for task, _ in self.ended.values())]
        return next((task for task in known if handle in (task.handle, task.run_id)), None)
