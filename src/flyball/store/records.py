"""What a store keeps: the rows of a journal, the entry of a run, and the step that brings them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..errors import ConfigError
from ..message import Message


@dataclass(frozen=True, slots=True)
class Guard:
    """Who may write to a session: whoever holds its lease, which the fence tells."""

    session: str
    fence: int
    """Rises with every lease that the store gives, and never comes again."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the lease of a session; times are seconds since the epoch."""

    session: str
    owner: str
    fence: int
    since: float
    expires: float


class Kind(StrEnum):
    """What a row of a journal tells."""

    RUN = "run"
    """What the run began with."""
    STARTED = "started"
    """An effect is about to be done."""
    OUTCOME = "outcome"
    """One call of a batch has its outcome, while others are under way."""
    ANSWER = "answer"
    """What the effect came to. Answers come in the order of their effects, and so none comes twice."""
    EXTENDED = "extended"
    """A run that had ended was given more."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a journal. `data` is JSON, as `Code.dumps` writes it; stores do not look into it."""

    n: int
    """The number of the effect that it belongs to."""
    kind: Kind
    data: str = "null"
    fingerprint: int = 0
    take: int = 0
    """How often the run had been taken up again when this was written: a later take may answer an effect anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is known of a run when it begins."""

    at: float
    """Seconds since the epoch."""
    agent: str = ""
    session: str | None = None
    parent: str | None = None
    """The run that has delegated it."""
    task: str = ""
    """The first words of what it is about, for lists."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinish:
    """What a run came to. It is not final: a run that is taken up again comes to another."""

    at: float
    """Seconds since the epoch."""
    stop: str
    record: Mapping[str, Any] | None = None
    """`Result.to_dict()`. Lists leave it out."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A run as a store knows it."""

    run_id: str
    start: Start
    finish: RunFinish | None
    """None while it is going on, and for one that was killed."""
    updated_at: float
    """When something was last written for it, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session as a store knows it."""

    id: str
    title: str
    created_at: float
    updated_at: float
    messages: int
    """How many there are in its transcript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which runs are wanted; the newest come first."""

    session: str | None = None
    agent: str | None = None
    parent: str | None = None
    """Only the children of this run."""
    children: bool = False
    """Also runs that have a parent; without, and without `parent`, only those at the top."""
    stop: str | None = None
    finished: bool | None = None
    before: float | None = None
    """Only those that began before; for the next page of a list."""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Pruned:
    """How much was thrown away."""

    runs: int
    sessions: int


@dataclass(slots=True, kw_only=True)
class Step:
    """What one step of a run leaves: it is kept whole, or not at all. Everything may be left out."""

    run_id: str | None = None
    guard: Guard | None = None
    """Where it is given, the step is kept only if nobody else has the lease since."""
    start: Start | None = None
    rows: Sequence[Row] = ()
    messages: Sequence[Message] = ()
    """Appended to the transcript of the guard's session."""
    state: Mapping[str, Any] | None = None
    """All of the session's new state; None where it did not change."""
    events: Sequence[Mapping[str, Any]] = ()
    """As `Event.to_dict` gives them, in the order of their `seq`. One that is not behind the run's last is left out: a
    run that is played again tells them again."""
    finish: RunFinish | None = None
    again: bool = False
    """The run is taken up again after its end: until its next finish it has none."""
    release: bool = False
    """Give the guard's lease back, in the same commit."""

    def check(self) -> None:
        """That each part has whom it belongs to, and events their order; a ConfigError names the first mistake."""
        if not self.guard and (self.messages or self.state is not None or self.release):
            raise ConfigError("step, guard", None, "the guard of the session whose messages, state or lease these are")
        if not self.run_id and (self.start or self.rows or self.events or self.finish or self.again):
            raise ConfigError("step, run_id", self.run_id, "the id of the run whose rows or events these are")
        last = -1
        for event in self.events:
            number = event.get("seq")
            if not isinstance(number, int) or number <= last:
                raise ConfigError("step, events", number, f"a `seq` above {last}, that of the event before")
            last = number
