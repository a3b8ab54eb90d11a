"""Protocols of a store and its five parts. All methods are synchronous and may block.

Every method may raise StoreError. A method that takes a guard raises StaleFence when another owner has the lease, and
then has changed nothing. When a writing method returns, its data is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from ..message import Message
from .records import Entry, Guard, Holder, Pruned, Query, Row, RunFinish, Session, Start, Step


class Store(Protocol):
    """Storage of runs and sessions beyond the life of a process."""

    @property
    def transcript(self) -> Transcript:
        """Messages of each session."""
        ...

    @property
    def journal(self) -> Journal:
        """Effects of each run and their answers."""
        ...

    @property
    def lease(self) -> Lease:
        """Leases of sessions."""
        ...

    @property
    def state(self) -> State:
        """Values that tools have set."""
        ...

    @property
    def runs(self) -> Runs:
        """Start, events and finish of each run."""
        ...

    def keep(self, step: Step) -> None:
        """Write all of a step in one commit, or nothing."""
        ...

    def prune(self, before: float) -> Pruned:
        """Delete run trees and sessions that were last updated before a time.

        `before` is in seconds since the epoch. Runs and sessions under an unexpired lease stay.
        """
        ...

    def close(self) -> None:
        """Release files and threads. Stored data stays; a second call does nothing."""
        ...

    def __enter__(self) -> Store: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Transcript(Protocol):
    """Append-only messages of each session."""

    def append(self, guard: Guard, messages: Sequence[Message]) -> None:
        """Append messages to the transcript of the guard's session."""
        ...

    def read(self, session: str, after: int = 0) -> list[Message]:
        """Return the messages after the first `after` ones.

        An unknown session has none.
        """
        ...

    def sessions(self, session: str | None = None, limit: int = 100) -> list[Session]:
        """Return all sessions or the named one, most recently updated first."""
        ...

    def title(self, session: str, title: str) -> None:
        """Set the title of a session.

        Create the session if it is unknown.
        """
        ...

    def delete(self, session: str) -> bool:
        """Delete a session with its state and runs. Return whether it existed.

        Raises SessionBusy while a run holds the session's lease.
        """
        ...


class Journal(Protocol):
    """Effects of each run, and the answers they got."""

    def write(self, run_id: str, rows: Sequence[Row], guard: Guard | None = None) -> None:
        """Append rows to the journal of a run.

        Raises StoreError for an answer that does not belong to a later effect, or a later take, than the one before.
        """
        ...

    def read(self, run_id: str, after: int = 0) -> list[Row]:
        """Return the rows after the first `after` ones, in the order of writing."""
        ...


class Lease(Protocol):
    """Expiring locks that say who may write to a session.

    A session is any text. It can be leased without having a transcript.
    """

    def acquire(self, session: str, owner: str, seconds: float) -> Guard | Holder:
        """Take the lease if it is free or expired.

        Otherwise return its holder.
        """
        ...

    def renew(self, guard: Guard, seconds: float) -> bool:
        """Extend the lease to this many seconds from now.

        Return False if another owner has taken the lease, or it was released.
        """
        ...

    def release(self, guard: Guard) -> bool:
        """Release the lease. Return whether it was still held."""
        ...

    def holder(self, session: str) -> Holder | None:
        """Return the holder of an unexpired lease, or None."""
        ...


class State(Protocol):
    """Values that tools have set in each session."""

    def get(self, session: str) -> dict[str, Any]:
        """Return the state of a session. Empty if none was set."""
        ...

    def put(self, guard: Guard, state: Mapping[str, Any]) -> None:
        """Replace the state of the guard's session. `Codec` encodes the values."""
        ...


class Runs(Protocol):
    """Start, events and finish of each run."""

    def start(self, run_id: str, start: Start, guard: Guard | None = None) -> None:
        """Record the start of a run.

        Raises StoreError if its id is taken.
        """
        ...

    def finish(self, run_id: str, finish: RunFinish, guard: Guard | None = None) -> None:
        """Record how a run ended. Replaces an earlier finish."""
        ...

    def events(self, run_id: str, after: int = -1) -> list[dict[str, Any]]:
        """Return the run's events whose `seq` is above `after`, in order."""
        ...

    def list(self, query: Query | None = None) -> list[Entry]:
        """Return the runs that match a query, newest first, without records."""
        ...

    def get(self, run_id: str) -> Entry | None:
        """Return one run with its record. None if it is unknown."""
        ...


class Closing:
    """Mixin whose `with` block closes the object."""

    def close(self) -> None:
        """Release the object's resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
