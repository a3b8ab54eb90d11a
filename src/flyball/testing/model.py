"""A model that says what a test wrote down, and remembers what it was asked."""

from __future__ import annotations

import anyio

from ..errors import ModelError
from ..price import Price
from ..request import Purpose, Reply, Request
from .script import Line, lines_of


class ScriptedModel:
    """Says its lines, one for each request; the script begins anew with each run.

    Past its last line a request fails and says so. `grace` is what it says when it is asked for the last report;
    without it, that too is the next line.
    """

    def __init__(
        self,
        *lines: Line,
        grace: Line | None = None,
        name: str = "scripted",
        provider: str | None = "flyball",
        price: Price | None = None,
        not_ready: str | None = None,
    ) -> None:
        self.lines = lines_of(lines)
        self.grace = grace
        self.name = name
        self.provider = provider
        self.price = price
        self.requests: list[Request] = []
        """What it was asked, oldest first."""
        self._loops = False
        self._not_ready = not_ready
        self._places: dict[str, int] = {}

    @classmethod
    def looping(cls, *lines: Line, grace: Line | None = None, price: Price | None = None) -> ScriptedModel:
        """One that begins again behind its last line, and so never ends by itself."""
        model = cls(*lines, grace=grace, price=price)
        model._loops = True
        return model

    def ready(self) -> str | None:
        """Why it cannot be asked, where a test says so."""
        return self._not_ready

    def take(self, request: Request) -> tuple[Line, int]:
        """The line for this request, and how many there were before in this run."""
        self.requests.append(request)
        if request.purpose is Purpose.GRACE and self.grace is not None:
            return self.grace, 900_000
        run = request.messages[-1].run
        place = self._places.get(run, 0)
        self._places[run] = place + 1
        if place >= len(self.lines) and not (self._loops and self.lines):
            raise ModelError(f"the script has {len(self.lines)} lines, and this is request {place + 1} of the run")
        return self.lines[place % len(self.lines)], place

    async def ask(self, request: Request, tell: object = None, /) -> Reply:
        """Say the next line."""
        line, place = self.take(request)
        if line.after_s:
            await anyio.sleep(line.after_s)
        if callable(tell):
            for piece in line.pieces:
                tell(piece)
        return line.reply(place * 100)

    def assert_asked(self, times: int) -> None:
        """Check how often it was asked."""
        assert len(self.requests) == times, f"it was asked {len(self.requests)} times, not {times}"

    def assert_saw(self, text: str) -> None:
        """Check that the last request had this text in it."""
        assert self.requests, "it was never asked"
        last = self.requests[-1]
        seen = [last.instructions or "", *last.notices, *[message.content for message in last.messages]]
        assert any(text in one for one in seen), f"{text!r} is not in what it saw last: {seen}"

    def assert_offered(self, *tools: str) -> None:
        """Check which tools the last request offered."""
        assert self.requests, "it was never asked"
        offered = tuple(tool["name"] for tool in self.requests[-1].tools)
        assert offered == tools, f"it was offered {offered}, not {tools}"
