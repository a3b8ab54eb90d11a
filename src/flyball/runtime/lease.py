"""Tenure: a session that one run works on, and nobody else, for as long as its lease is renewed."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Lock, Thread
from time import monotonic

from .._internal.workers import WorkerPool
from ..errors import StoreError, format_with_code
from ..store import Guard, Holder, Store

log = logging.getLogger(__name__)
_RENEWED_AFTER, _LOST_AFTER = 1 / 3, 2 / 3
"""Of its seconds: a lease is renewed after a third of them; one that could not be after two thirds counts as lost."""
_DEAD = frozenset("ZXx")
"""What the system says of processes that have ended; one stays in the list until its parent has asked for its end."""
_RENEWERS = WorkerPool(max_workers=100, max_hung=1_000)


class SessionLease:
    """The lease of a session. `lost` is called once, on any thread, when it cannot be had any longer."""

    def __init__(self, store: Store, session: str, seconds: float, wait_s: float = 0.0) -> None:
        self.store = store
        self.session = session
        self.wait_s = wait_s
        """How long a run may wait for another that holds it."""
        self.guard: Guard | None = None
        self.on_lost: Callable[[], object] = lambda: None
        self._seconds = seconds
        self._renewed_at = 0.0
        self._ended = False

    @property
    def is_held(self) -> bool:
        """Whether it is ours beyond doubt: this clock stands still for nobody, also not for a process that was."""
        return self.guard is not None and not self._ended and monotonic() < self.lost_at

    @property
    def due_at(self) -> float:
        """When it should be renewed."""
        return self._renewed_at + self._seconds * _RENEWED_AFTER

    @property
    def lost_at(self) -> float:
        """When it is lost, if it was not renewed."""
        return self._renewed_at + self._seconds * _LOST_AFTER

    @property
    def retry_s(self) -> float:
        """How soon a renewal that failed is tried again."""
        return self._seconds / 12

    def acquire(self) -> Holder | None:
        """Have the lease, and it is renewed from now on; or who else has it. It blocks."""
        with (
            LEASE_RENEWER.acquire_lock
        ):  # or another run of this process might take one for left behind that was just taken
            began, owner = monotonic(), build_owner(os.getpid())
            found = self.store.lease.acquire(self.session, owner, self._seconds)
            if isinstance(found, Holder) and _is_abandoned(found, owner):
                self.store.lease.release(Guard(self.session, found.fence))  # nobody writes under it any more
                found = self.store.lease.acquire(self.session, owner, self._seconds)
            if isinstance(found, Holder):
                return found
            self.guard, self._renewed_at = found, began
            LEASE_RENEWER.add(self)
        return None

    def renew(self) -> bool:
        """Have it for longer; whether it still makes sense to try. It blocks."""
        if self._ended or self.guard is None:
            return False
        began = monotonic()
        try:
            renewed = self.store.lease.renew(self.guard, self._seconds)
        except StoreError as error:
            log.warning("the lease of session %s could not be renewed: %s", self.session, format_with_code(error))
            if monotonic() < self.lost_at:
                return True
            renewed = False
        if renewed:
            self._renewed_at = began
        elif not self._ended:
            self.end()
            self.on_lost()
        return renewed

    def end(self) -> None:
        """It is not ours any more, and nobody renews it."""
        self._ended = True
        LEASE_RENEWER.remove(self)

    def release(self) -> None:
        """Leave it to others. It blocks."""
        held, guard = not self._ended, self.guard
        self.end()
        if held and guard is not None:
            try:
                self.store.lease.release(guard)
            except StoreError as error:
                log.warning(
                    "the lease of session %s was not released: %s",
                    self.session,
                    format_with_code(error),
                )


class LeaseRenewer:
    """Has leases renewed when they are due: one thread for a whole process, however busy its event loops are."""

    def __init__(self) -> None:
        self._pid = 0
        self._acquire_lock = Lock()

    @property
    def acquire_lock(self) -> Lock:
        """Held while a lease is taken."""
        if self._pid != os.getpid():
            self._reset()
        return self._acquire_lock

    def is_renewing(self, guard: Guard) -> bool:
        """Whether a run of this process has that lease; else it was left behind, as its store could not be reached."""
        with self._changed:
            return any(tenure.guard == guard for tenure in self._due)

    def _reset(self) -> None:
        """At first, and in a forked child, where no thread of its parent lives."""
        self._pid = os.getpid()
        self._acquire_lock = Lock()
        self._changed = Condition()
        self._due: dict[SessionLease, float] = {}
        self._thread: Thread | None = None

    def add(self, lease: SessionLease) -> None:
        """Renew it from now on."""
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            self._due[lease] = lease.due_at
            if self._thread is None:
                self._thread = Thread(target=self._run, name="flyball-clerk", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, lease: SessionLease) -> None:
        """Renew it no longer."""
        if self._pid == os.getpid():
            with self._changed:
                self._due.pop(lease, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now, next_at = monotonic(), min(self._due.values(), default=monotonic() + 3_600)
                if next_at > now:
                    self._changed.wait(next_at - now)
                    continue
                for tenure in [one for one, at in self._due.items() if at <= now]:
                    self._due[tenure] = now + tenure.retry_s
                    worker = _RENEWERS.acquire()
                    if worker is not None:
                        worker.start(lambda tenure=tenure: self._renew(tenure))

    def _renew(self, lease: SessionLease) -> None:
        goes_on = lease.renew()
        with self._changed:
            if goes_on and lease in self._due:
                self._due[lease] = max(lease.due_at, monotonic() + lease.retry_s)


LEASE_RENEWER = LeaseRenewer()
"""Idle until the first lease is taken."""


def _is_abandoned(holder: Holder, owner: str) -> bool:
    """Whether nobody works under a lease that was not given back."""
    if holder.owner == owner:
        return not LEASE_RENEWER.is_renewing(Guard(holder.session, holder.fence))
    return is_owner_dead(holder.owner)


def build_owner(pid: int) -> str:
    """Who holds a lease: a process of this machine, and no other that may get its number later."""
    return f"{socket.gethostname()}:{pid}:{_read_process_start(pid)}"


def _read_process_start(pid: int) -> str:
    """When a process began, and among which others it is; empty where that cannot be known, or it is dead."""
    try:
        state, *more = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if state in _DEAD:
            return ""
        return f"{more[18]}/{Path('/proc/self/ns/pid').readlink()}"
    except (OSError, ValueError, IndexError):
        return ""


def is_owner_dead(owner: str) -> bool:
    """Whether the process that holds a lease is one of this machine, and dead; where nobody knows, it is not."""
    host, _, rest = owner.partition(":")
    pid, _, began = rest.partition(":")
    own = _read_process_start(os.getpid())
    if host != socket.gethostname() or not own or own.partition("/")[2] != began.partition("/")[2]:
        return False
    return pid.isdigit() and _read_process_start(int(pid)) != began
