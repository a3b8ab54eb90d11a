"""Errors that all stores raise, each built by one function."""

from __future__ import annotations

from datetime import UTC, datetime

from ..errors import SessionBusy, StaleFence, StoreError, quote_value
from .records import Guard, Holder


def stale_fence(where: str, guard: Guard, newest_fence: int | None) -> StaleFence:
    """Return the error for a guard that was superseded or released."""
    now = "the lease was released" if newest_fence is None else f"fence {newest_fence} is newer"
    return StaleFence(where, f"session {quote_value(guard.session)} rejected a write with fence {guard.fence}: {now}")


def session_busy(where: str, holder: Holder) -> SessionBusy:
    """Return the error for a session that another run holds."""
    until = datetime.fromtimestamp(holder.expires, UTC)
    return SessionBusy(
        where,
        f"session {quote_value(holder.session)} is held by {holder.owner} until {until:%Y-%m-%d %H:%M:%S} UTC; "
        "wait until that run has ended",
    )


def duplicate_answer(where: str, run_id: str) -> StoreError:
    """Return the error for a second answer to one effect."""
    return StoreError(where, f"run {quote_value(run_id)} got a second answer to one effect: run it in one process only")


def unknown_run(where: str, run_id: str) -> StoreError:
    """Return the error for a step of a run that was never started."""
    return StoreError(where, f"run {quote_value(run_id)} has no start: its first step must contain one")


def duplicate_run(where: str, run_id: str) -> StoreError:
    """Return the error for a second start under one run id."""
    return StoreError(where, f"run {quote_value(run_id)} was already started: use another run id")


def store_closed(where: str) -> StoreError:
    """Return the error for the use of a closed store."""
    return StoreError(where, "the store is closed: open it again")


def opened_before_fork(where: str) -> StoreError:
    """Return the error for a store that the parent process opened."""
    return StoreError(where, "the store was opened before a fork: open it in each process")


def forked_in_use(where: str) -> StoreError:
    """Return the error for a process forked while the file was in use."""
    return StoreError(
        where,
        "this process was forked while its parent was using the file, so SQLite cannot lock it here; "
        "start such processes with spawn or forkserver, or close the store before the fork",
    )


def file_moved(where: str) -> StoreError:
    """Return the error for a path that now names another file."""
    return StoreError(where, "the file was moved or replaced while it was open: move it back, or open the store again")


def missing_messages(where: str, session: str) -> StoreError:
    """Return the error for a transcript with missing messages."""
    return StoreError(
        where, f"the file is damaged: messages of session {quote_value(session)} are missing; restore a backup"
    )


def writer_interrupted(where: str) -> StoreError:
    """Return the error for the interruption of a thread that wrote for several."""
    return StoreError(where, "the writing thread was interrupted, so it is not known whether this was stored")
