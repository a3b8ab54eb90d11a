"""Records that a store keeps: journal rows, run entries, sessions, and the step that writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..errors import ConfigError, UsageError
from ..message import Message


@dataclass(frozen=True, slots=True)
class Guard:
    """Permission to write to a session, proved by the fence of its lease."""

    session: str
    fence: int
    """Number of the lease. Rises with each lease of the store and is never reused."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Owner of a session's lease. Times are seconds since the epoch."""

    session: str
    owner: str
    fence: int
    since: float
    expires: float


class Kind(StrEnum):
    """Type of a journal row."""

    RUN = "run"
    """Inputs of the run."""
    STARTED = "started"
    """An effect is about to start."""
    OUTCOME = "outcome"
    """One call of a batch has its outcome while others are in progress."""
    ANSWER = "answer"
    """Answer to an effect. Answers follow the order of their effects, so none occurs twice."""
    EXTENDED = "extended"
    """A limit of an ended run was raised."""


@dataclass(slots=True, unsafe_hash=True)
class Row:
    """One row of a journal.

    `data` is JSON from `Codec.dumps`; stores do not parse it. Not frozen, for speed; treat it as a value.
    """

    n: int
    """Number of the effect that the row belongs to."""
    kind: Kind
    data: str = "null"
    fingerprint: int = 0
    take: int = 0
    """Number of times the run had been resumed before. A later take may answer an effect again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Facts about a run at its start."""

    at: float
    """Seconds since the epoch."""
    agent: str = ""
    session: str | None = None
    """Session of the run. None means that it has none."""
    parent: str | None = None
    """Id of the parent run. None for a run at the top of its tree."""
    task: str = ""
    """First words of the task, for lists."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinish:
    """End of a run.

    A resumed run replaces it by a new one.
    """

    at: float
    """Seconds since the epoch."""
    stop: str
    record: Mapping[str, Any] | None = None
    """`Result.to_dict()` without events, and without the messages that the session's transcript has. None in lists,
    which leave it out."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Stored run."""

    run_id: str
    start: Start
    finish: RunFinish | None
    """None while the run is in progress, and after its process was killed."""
    updated_at: float
    """Time of the last write for the run, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Session:
    """Stored session. Times are seconds since the epoch."""

    id: str
    title: str
    created_at: float
    updated_at: float
    messages: int
    """Number of messages in its transcript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Filter for runs, newest first. None means any."""

    session: str | None = None
    agent: str | None = None
    parent: str | None = None
    """Only the children of this run."""
    children: bool = False
    """Include runs that have a parent. If False and `parent` is None, only runs at the top of their tree match."""
    stop: str | None = None
    finished: bool | None = None
    before: float | None = None
    """Only runs that started before this time, in seconds since the epoch. Used to fetch the next page."""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Pruned:
    """Numbers of deleted runs and sessions."""

    runs: int
    sessions: int


@dataclass(slots=True, kw_only=True)
class Step:
    """Data of one step of a run, written whole or not at all.

    Every field is optional.
    """

    run_id: str | None = None
    guard: Guard | None = None
    """If set, the store writes the step only while this guard's lease is the newest."""
    start: Start | None = None
    rows: Sequence[Row] = ()
    messages: Sequence[Message] = ()
    """Appended to the transcript of the guard's session."""
    state: Mapping[str, Any] | None = None
    """Complete new state of the session. None means unchanged."""
    events: Sequence[Mapping[str, Any]] = ()
    """Events from `Event.to_dict`, in the order of their `seq`. The store skips an event that is not after the run's
    last one, because a resumed run emits its earlier events again."""
    finish: RunFinish | None = None
    again: bool = False
    """Whether the run was resumed after its end. Removes its finish until the next one."""
    drop_events_after: int | None = None
    """Remove the run's events with a `seq` above this one, before `events` are added. None keeps all. A run that is
    resumed from a question removes the events of its pause, because its turn and its calls have not ended there."""
    release: bool = False
    """Whether to release the guard's lease in the same commit."""

    def check(self) -> None:
        """Raise ConfigError for a missing guard or run id, or for events out of order."""
        if self.guard is None and (self.messages or self.state is not None or self.release):
            raise UsageError("a step with messages, state or a release needs the guard of the session")
        if not self.run_id and (
            self.rows or self.events or self.start or self.finish or self.again or self.drop_events_after is not None
        ):
            raise UsageError("a step with a start, rows, events or a finish needs the run_id")
        last_seq = -1
        for seq in self.seqs:
            if not isinstance(seq, int) or seq <= last_seq:
                raise ConfigError("step, events", seq, f"a seq above {last_seq}, that of the previous event")
            last_seq = seq

    @property
    def seqs(self) -> Sequence[Any]:
        """The `seq` of each event."""
        seqs: Sequence[Any] | None = getattr(self.events, "seqs", None)  # of encoded events, which need not be decoded
        return [event.get("seq") for event in self.events] if seqs is None else seqs
