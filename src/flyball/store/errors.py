"""Errors that all stores raise, each built by one function."""

from __future__ import annotations

from datetime import UTC, datetime

from ..errors import SessionBusy, StaleFence, StoreError, quote_value
from .records import Guard, Holder


def stale_fence(where: str, guard: Guard, newest_fence: int | None) -> StaleFence:
    """Return the error for a guard that was superseded or released."""
    now = "the lease was given back" if newest_fence is None else f"fence {newest_fence} has been given since"
    return StaleFence(where, f"session {quote_value(guard.session)}: found a write with fence {guard.fence}, but {now}")


def session_busy(where: str, holder: Holder) -> SessionBusy:
    """Return the error for a session that another run holds."""
    until = datetime.fromtimestamp(holder.expires, UTC)
    return SessionBusy(
        where,
        f"session {quote_value(holder.session)} is held by {holder.owner} until {until:%Y-%m-%d %H:%M:%S} UTC; "
        "expected one that no run holds",
    )


def duplicate_answer(where: str, run_id: str) -> StoreError:
    """Return the error for a second answer to one effect."""
    return StoreError(
        where, f"run {quote_value(run_id)}: found a second answer to one effect; expected one, from one process"
    )


def unknown_run(where: str, run_id: str) -> StoreError:
    """Return the error for a step of a run that was never started."""
    return StoreError(
        where, f"found a step of run {quote_value(run_id)}, which has no start; expected the start in its first"
    )


def duplicate_run(where: str, run_id: str) -> StoreError:
    """Return the error for a second start under one run id."""
    return StoreError(
        where, f"found a second start of run {quote_value(run_id)}; expected an id of its own for each run"
    )


def store_closed(where: str) -> StoreError:
    """Return the error for the use of a closed store."""
    return StoreError(where, "the store is closed; expected one that is open")


def opened_before_fork(where: str) -> StoreError:
    """Return the error for a store that the parent process opened."""
    return StoreError(where, "found a store that was opened before a fork; expected one that is opened in each process")


def forked_in_use(where: str) -> StoreError:
    """Return the error for a process forked while the file was in use."""
    return StoreError(
        where,
        "this process was forked while its parent was using the file, so SQLite cannot lock it here; "
        "start such processes by spawn or forkserver, or close the store before the fork",
    )


def file_moved(where: str) -> StoreError:
    """Return the error for a path that now names another file."""
    return StoreError(where, "the file was moved or replaced while it was open. Expected it where it was")


def missing_messages(where: str, session: str) -> StoreError:
    """Return the error for a transcript with missing messages."""
    return StoreError(
        where, f"the file is damaged: messages of session {quote_value(session)} are missing. Expected all of them"
    )


def writer_interrupted(where: str) -> StoreError:
    """Return the error for the interruption of a thread that wrote for several."""
    return StoreError(where, "the thread that was writing was interrupted; whether this was kept is not known")
