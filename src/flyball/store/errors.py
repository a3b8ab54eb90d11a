"""The words in which stores refuse, the same for all of them."""

from __future__ import annotations

from datetime import UTC, datetime

from ..errors import SessionBusy, StaleFence, StoreError, shown
from .records import Guard, Holder


def stale(where: str, guard: Guard, newest: int | None) -> StaleFence:
    """The guard is not the newest of its session."""
    now = "the lease was given back" if newest is None else f"fence {newest} has been given since"
    return StaleFence(where, f"session {shown(guard.session)}: found a write with fence {guard.fence}, but {now}")


def busy(where: str, holder: Holder) -> SessionBusy:
    """Somebody holds the session."""
    until = datetime.fromtimestamp(holder.expires, UTC)
    return SessionBusy(
        where,
        f"session {shown(holder.session)} is held by {holder.owner} until {until:%Y-%m-%d %H:%M:%S} UTC; "
        "expected one that no run holds",
    )


def twice(where: str, run_id: str) -> StoreError:
    """An effect has its answer already."""
    return StoreError(
        where, f"run {shown(run_id)}: found a second answer to one effect; expected one, from one process"
    )


def unknown(where: str, run_id: str) -> StoreError:
    """No such run was started."""
    return StoreError(
        where, f"found a step of run {shown(run_id)}, which has no start; expected the start in its first"
    )


def known(where: str, run_id: str) -> StoreError:
    """A run of that id was started before."""
    return StoreError(where, f"found a second start of run {shown(run_id)}; expected an id of its own for each run")


def closed(where: str) -> StoreError:
    """The store was closed."""
    return StoreError(where, "the store is closed; expected one that is open")


def forked(where: str) -> StoreError:
    """The process that opened the store is another."""
    return StoreError(where, "found a store that was opened before a fork; expected one that is opened in each process")


def forked_in_use(where: str) -> StoreError:
    """The process was forked while the file was in use."""
    return StoreError(
        where,
        "this process was forked while its parent was using the file, so SQLite cannot lock it here; "
        "start such processes by spawn or forkserver, or close the store before the fork",
    )


def moved(where: str) -> StoreError:
    """The name is another file's now."""
    return StoreError(where, "the file was moved or replaced while it was open. Expected it where it was")


def gap(where: str, session: str) -> StoreError:
    """Messages that were there are not any more."""
    return StoreError(
        where, f"the file is damaged: messages of session {shown(session)} are missing. Expected all of them"
    )


def interrupted(where: str) -> StoreError:
    """Whoever was writing for several was interrupted."""
    return StoreError(where, "the thread that was writing was interrupted; whether this was kept is not known")
