"""The notices of a run: short messages that the model is shown once, and that are no part of the history."""

from __future__ import annotations

from ..progress import Deliver, Notice
from ..request import Purpose, tokens_of
from ..rules.engine import in_order

_TURN = Purpose.TURN  # found once: see course.py


class Notices:
    """Those that wait for a request, and those that wait for the result of a tool first."""

    __slots__ = ("_later", "tokens", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Notice] = []
        self.tokens = 0
        """More than those that wait take of a request."""
        self._later: list[Notice] = []

    def add(self, notice: Notice) -> None:
        """Have it in the next request, once."""
        if notice in self.waiting:
            return
        self.waiting.append(notice)
        self.tokens += tokens_of(notice.text)

    def later(self, notice: Notice) -> None:
        """Have it in the request behind the next result of a tool."""
        self._later.append(notice)

    @property
    def waits_for_a_tool(self) -> bool:
        """Whether some wait for a result first."""
        return bool(self._later)

    def tool_ended(self) -> None:
        """Now there is a result of a tool."""
        for notice in self._later:
            self.add(notice)
        self._later.clear()

    def due(self, purpose: Purpose) -> tuple[Notice, ...]:
        """Those that go with a request for this, the most urgent first."""
        if purpose is _TURN:
            return tuple(in_order(self.waiting))
        return tuple(in_order(notice for notice in self.waiting if notice.deliver_at == Deliver.IMMEDIATE))

    def seen(self, notices: tuple[Notice, ...]) -> None:
        """The model has seen these."""
        self.waiting = [notice for notice in self.waiting if all(notice is not one for one in notices)]
        self.tokens = sum(tokens_of(notice.text) for notice in self.waiting)
