"""The contracts of a store: five small ones, and one for them together. All are sync, and may block.

Every method may raise StoreError; those that take a guard raise StaleFence where somebody else has the lease, and have
then changed nothing. What a writing method has returned from is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from ..message import Message
from .records import Entry, Guard, Holder, Pruned, Query, Row, RunFinish, Session, Start, Step


class Transcript(Protocol):
    """What was said in each session; it only grows."""

    def append(self, guard: Guard, messages: Sequence[Message]) -> None:
        """Add messages to the end of the guard's session."""
        ...

    def read(self, session: str, after: int = 0) -> list[Message]:
        """The messages behind the first `after` ones; none of a session that nobody knows."""
        ...

    def sessions(self, session: str | None = None, limit: int = 100) -> list[Session]:
        """All sessions, or this one; the newest first."""
        ...

    def title(self, session: str, title: str) -> None:
        """Name a session; one that nobody knows begins with that."""
        ...

    def delete(self, session: str) -> bool:
        """Forget a session with its state and all of its runs; whether there was one. SessionBusy while it is held."""
        ...


class Journal(Protocol):
    """Every effect of each run, and the answer it got."""

    def write(self, run_id: str, rows: Sequence[Row], guard: Guard | None = None) -> None:
        """Add rows. An answer that is not to a later effect (or in a later take) than the last is a StoreError."""
        ...

    def read(self, run_id: str, after: int = 0) -> list[Row]:
        """The rows behind the first `after` ones, in the order they were written."""
        ...


class Lease(Protocol):
    """Who may write to a session, and until when. A session is any text: what is leased need not have a transcript."""

    def acquire(self, session: str, owner: str, seconds: float) -> Guard | Holder:
        """Take the lease if it is free or has expired; else who has it."""
        ...

    def renew(self, guard: Guard, seconds: float) -> bool:
        """Have it for so many seconds from now; False if somebody else has taken it, or it was given back."""
        ...

    def release(self, guard: Guard) -> bool:
        """Give it back; whether it was still held."""
        ...

    def holder(self, session: str) -> Holder | None:
        """Who has it, if anybody."""
        ...


class State(Protocol):
    """What tools have set in each session."""

    def get(self, session: str) -> dict[str, Any]:
        """All of it; empty where nothing was set."""
        ...

    def put(self, guard: Guard, state: Mapping[str, Any]) -> None:
        """Set all of it anew. Values are kept as `Code` does."""
        ...


class Runs(Protocol):
    """The runs: how they began, what happened, what they came to."""

    def start(self, run_id: str, start: Start, guard: Guard | None = None) -> None:
        """Enter a run; a StoreError where one of that id is there already."""
        ...

    def finish(self, run_id: str, finish: RunFinish, guard: Guard | None = None) -> None:
        """Write down what it came to, in place of what it had come to before."""
        ...

    def list(self, query: Query | None = None) -> list[Entry]:
        """Those that are wanted, the newest first, without their records."""
        ...

    def get(self, run_id: str) -> Entry | None:
        """One of them, with its record."""
        ...

    def events(self, run_id: str, after: int = -1) -> list[dict[str, Any]]:
        """Its events whose `seq` is above `after`, in order."""
        ...


class Store(Protocol):
    """Where runs and sessions outlive their process."""

    @property
    def transcript(self) -> Transcript:
        """What was said."""
        ...

    @property
    def journal(self) -> Journal:
        """What was done, and what it came to."""
        ...

    @property
    def lease(self) -> Lease:
        """Who may write."""
        ...

    @property
    def state(self) -> State:
        """What tools have set."""
        ...

    @property
    def runs(self) -> Runs:
        """Which runs there were."""
        ...

    def keep(self, step: Step) -> None:
        """Keep all of a step in one commit, or nothing of it."""
        ...

    def prune(self, before: float) -> Pruned:
        """Throw away runs (with all of their tree) and sessions untouched since then, but for those that are held."""
        ...

    def close(self) -> None:
        """Let go of files and threads. What was kept stays; a second time does nothing."""
        ...

    def __enter__(self) -> Store: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Closing:
    """Closes itself when its block is left."""

    def close(self) -> None:
        """Let go of what it has."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
