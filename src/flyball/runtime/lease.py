"""Leases: a session belongs to one run for as long as its lease is renewed."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Condition, Lock, Thread
from time import monotonic

from .._internal.workers import Worker, WorkerPool
from ..errors import StoreError, format_with_code
from ..store import Guard, Holder, Store

log = logging.getLogger(__name__)
_RENEWED_AFTER, _LOST_AFTER = 1 / 3, 2 / 3
"""Fractions of the lease: renewed after a third, lost if it was not renewed after two thirds."""
_DEAD = frozenset("ZXx")
"""States of ended processes in /proc. A zombie stays listed until its parent waits for it."""
_RENEWERS = WorkerPool(max_workers=100, max_hung=1_000)


class SessionLease:
    """Lease of a session. `on_lost` is called once, on any thread, when the lease is lost."""

    def __init__(self, store: Store, session: str, seconds: float, wait_s: float = 0.0) -> None:
        self.store = store
        self.session = session
        self.wait_s = wait_s
        """Seconds that a run may wait for another run that holds the session."""
        self.guard: Guard | None = None
        self.on_lost: Callable[[], object] = lambda: None
        self._seconds = seconds
        self._lost_after_s = seconds * _LOST_AFTER
        self._renewed_at = 0.0
        self._ended = False
        self._lock = Lock()
        """Guards `guard` and `_ended`. Never held during a call of the store, which may hang."""

    @property
    def is_held(self) -> bool:
        """True if the lease certainly belongs to this run. The clock also counts while the process is suspended."""
        return self.guard is not None and not self._ended and monotonic() < self._renewed_at + self._lost_after_s

    @property
    def due_at(self) -> float:
        """Monotonic time at which the lease should be renewed."""
        return self._renewed_at + self._seconds * _RENEWED_AFTER

    @property
    def lost_at(self) -> float:
        """Monotonic time at which the lease is lost if it was not renewed."""
        return self._renewed_at + self._lost_after_s

    @property
    def retry_s(self) -> float:
        """Seconds after which a failed renewal is retried."""
        return self._seconds / 12

    def acquire(self) -> Holder | None:
        """Acquire the lease and keep renewing it, or return its holder. This blocks.

        If `end` was called meanwhile, the lease is released again.
        """
        owner = _build_own_owner(os.getpid())
        with LEASE_RENEWER.acquiring(self):
            started_at, found = monotonic(), self.store.lease.acquire(self.session, owner, self._seconds)
            if isinstance(found, Holder) and LEASE_RENEWER.is_abandoned(found, owner, self):
                self.store.lease.release(Guard(self.session, found.fence))  # its run is dead
                started_at, found = monotonic(), self.store.lease.acquire(self.session, owner, self._seconds)
            if isinstance(found, Holder):
                return found
            with self._lock:
                if not self._ended:
                    self.guard, self._renewed_at = found, started_at
                    LEASE_RENEWER.add(self)
        if self.guard is None:
            self.store.lease.release(found)
        return None

    def renew(self) -> bool:
        """Renew the lease. Return False if there is no point in trying again. This blocks."""
        if self._ended or self.guard is None:
            return False
        started_at = monotonic()
        try:
            renewed = self.store.lease.renew(self.guard, self._seconds)
        except StoreError as error:
            log.warning("the lease of session %s could not be renewed: %s", self.session, format_with_code(error))
            if monotonic() < self.lost_at:
                return True
            renewed = False
        if renewed:
            self._renewed_at = started_at
        elif not self._ended:
            self.end()
            self.on_lost()
        return renewed

    def expire(self) -> None:
        """Lose a lease whose renewal did not return in time."""
        if not self._ended and not self.is_held:
            self.end()
            self.on_lost()

    def end(self) -> None:
        """Stop renewing the lease, and treat it as not held."""
        with self._lock:
            self._ended = True
            LEASE_RENEWER.remove(self)

    def release(self) -> None:
        """Release the lease for other runs. This blocks."""
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
    """Renews leases when they are due, on one thread per process. Busy event loops do not delay it."""

    def __init__(self) -> None:
        self._pid = 0

    def _reset(self) -> None:
        """Start empty: at first use, and in a forked child, which has no threads of its parent."""
        self._pid = os.getpid()
        self._changed = Condition()
        """Guards the attributes below. Never held during a call of a store."""
        self._due: dict[SessionLease, float] = {}
        """Monotonic time of the next renewal, or of the loss of a lease whose renewal is in progress."""
        self._in_progress: dict[SessionLease, Worker] = {}
        self._acquiring: list[SessionLease] = []
        self._wake_at = 0.0
        self._thread: Thread | None = None

    @contextmanager
    def acquiring(self, lease: SessionLease) -> Generator[None]:
        """Note that a run of this process acquires a lease."""
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            self._acquiring.append(lease)
        try:
            yield
        finally:
            with self._changed:
                self._acquiring.remove(lease)

    def is_abandoned(self, holder: Holder, owner: str, lease: SessionLease) -> bool:
        """Return True if the run that holds a session is dead, so that `lease` may take it over.

        A lease of this process that it does not renew is left over from an unreachable store, unless another run
        acquires it at this moment.
        """
        if holder.owner != owner:
            return is_owner_dead(holder.owner)
        with self._changed:
            is_acquired_now = any(one.session == holder.session and one is not lease for one in self._acquiring)
        return not is_acquired_now and not self.is_renewing(Guard(holder.session, holder.fence))

    def is_renewing(self, guard: Guard) -> bool:
        """Return True if a run of this process has the lease."""
        with self._changed:
            return any(lease.guard == guard for lease in self._due)

    def add(self, lease: SessionLease) -> None:
        """Renew a lease from now on."""
        with self._changed:
            self._due[lease] = lease.due_at
            if self._thread is None:
                self._thread = Thread(target=self._run, name="flyball-lease-renewer", daemon=True)
                self._thread.start()
            elif lease.due_at < self._wake_at:
                self._changed.notify()

    def remove(self, lease: SessionLease) -> None:
        """Stop renewing a lease."""
        if self._pid == os.getpid():
            with self._changed:
                self._due.pop(lease, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now, self._wake_at = monotonic(), min(self._due.values(), default=monotonic() + 3_600)
                if self._wake_at > now:
                    self._changed.wait(self._wake_at - now)
                    continue
                for lease in [one for one, at in self._due.items() if at <= now]:
                    self._on_due(lease, now)

    def _on_due(self, lease: SessionLease, now: float) -> None:
        self._due[lease] = now + lease.retry_s
        hung = self._in_progress.pop(lease, None)
        if hung is not None:
            _RENEWERS.abandon(hung)
        worker = _RENEWERS.acquire()
        if worker is None:
            return
        if hung is not None:
            worker.start(lease.expire)
            return
        self._due[lease], self._in_progress[lease] = lease.lost_at, worker
        worker.start(lambda: self._renew(lease))

    def _renew(self, lease: SessionLease) -> None:
        retries = True
        try:
            retries = lease.renew()
        finally:
            with self._changed:
                self._in_progress.pop(lease, None)
                if retries and lease in self._due:
                    self._due[lease] = max(lease.due_at, monotonic() + lease.retry_s)
                    self._changed.notify()


LEASE_RENEWER = LeaseRenewer()
"""Renewer of this process. It has no thread until the first lease is acquired."""


def build_owner(pid: int) -> str:
    """Return the owner of a lease: host, process id and process start, because process ids are reused."""
    return f"{socket.gethostname()}:{pid}:{_read_process_start(pid)}"


_build_own_owner = cache(build_owner)
"""Owner of this process, which does not change. A forked child has another pid."""


def _read_process_start(pid: int) -> str:
    """Return start time and pid namespace of a process. Empty if it is dead or this is not known."""
    try:
        state, *more = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if state in _DEAD:
            return ""
        return f"{more[18]}/{Path('/proc/self/ns/pid').readlink()}"
    except (OSError, ValueError, IndexError):
        return ""


def is_owner_dead(owner: str) -> bool:
    """Return True if the owner is a dead process of this machine. False if this is not known."""
    host, _, rest = owner.partition(":")
    pid, _, started = rest.partition(":")
    own = _read_process_start(os.getpid())
    if host != socket.gethostname() or not own or own.partition("/")[2] != started.partition("/")[2]:
        return False
    return pid.isdigit() and _read_process_start(int(pid)) != started
