"""The runs of a tree while they go on: each child under its parent, how far it is, and its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from .. import event as events
from .._internal.jsonable import jsonable
from ..event import Event
from ..history.timeline import Mark, Reader, call_text, one_line
from ..result import Stop
from ..terminal import visible
from .branch import branches

_TAIL = 400
"""Characters of the streamed text that are kept."""
_HEARD = 48
"""Characters of them in the line of a child."""
_PURPOSES = {"grace": "asks for the report:", "reflection": "looks back:"}


@dataclass(slots=True, eq=False)
class Member:
    """One run, as far as its events have told."""

    name: str
    place: str = ""
    """Where it stands: 2.1 is the first child of the second; nothing is the top."""
    children: list[Member] = field(default_factory=list["Member"])
    reader: Reader = field(default_factory=Reader)
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

    def child(self, name: str) -> Member:
        """One more child."""
        made = Member(name, f"{self.place}.{len(self.children) + 1}".lstrip("."))
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
        self.top = Member("")
        self._members: dict[str, Member] = {}

    def follow(self, event: Event) -> Member:
        """Take an event; the run whose it is."""
        member = self._of(event)
        member.follow(event)
        if isinstance(event, events.ChildStarted) and event.child_id not in self._members:
            self._members[event.child_id] = member.child(event.agent)
        return member

    def _of(self, event: Event) -> Member:
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

        def below(member: Member) -> list[Member]:
            return [child for child in member.children if child in shown]

        for branch, member in branches(below(self.top), below, ascii_only):
            yield branch + member.line, member.mark
        if more:
            counts = Counter(one.stop or ("going on" if one.begun else "waiting") for one in others)
            yield f"and {len(others)} more: {', '.join(f'{n} {what}' for what, n in counts.items())}", Mark.GOOD

    def _below(self) -> Iterator[Member]:
        return (member for _, member in branches(self.top.children, lambda one: one.children))
