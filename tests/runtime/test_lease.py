"""A session that is held: renewed in time, lost when it cannot be, and left to others at the end."""

import os
import time

import pytest

from flyball.errors import StoreError
from flyball.runtime.lease import LEASE_RENEWER, SessionLease, build_owner
from flyball.store import Guard, Holder, MemoryStore
from flyball.store.memory import MemoryLease, MemoryTables

LONG = 60.0


class Moody(MemoryLease):
    """Renews as a test says."""

    def __init__(self, shelf: MemoryTables) -> None:
        super().__init__(shelf)
        self.renewals = 0
        self.mood = "well"

    def renew(self, guard: Guard, seconds: float) -> bool:
        self.renewals += 1
        if self.mood == "broken":
            raise StoreError("runs.db", "it is locked")
        return self.mood == "well" and super().renew(guard, seconds)


class MoodyStore(MemoryStore):
    """A store with such leases."""

    def __init__(self) -> None:
        super().__init__()
        self.moody = self.lease = Moody(self.tables)


def until(wanted: object) -> None:
    end = time.monotonic() + LONG
    assert callable(wanted)
    while not wanted():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def test_a_lease_is_renewed_for_as_long_as_it_is_held_and_not_any_longer() -> None:
    store = MoodyStore()
    tenure = SessionLease(store, "talk", 3.0)
    assert (tenure.is_held, tenure.acquire(), tenure.is_held) == (False, None, True)
    assert tenure.guard is not None
    until(lambda: store.moody.renewals >= 2)
    assert (tenure.is_held, LEASE_RENEWER.is_renewing(tenure.guard)) == (True, True)
    tenure.release()
    assert (tenure.is_held, store.lease.holder("talk")) == (False, None)
    assert not LEASE_RENEWER.is_renewing(tenure.guard)


@pytest.mark.parametrize("mood", ["refused", "broken"])
def test_a_lease_that_cannot_be_renewed_is_lost_once(mood: str) -> None:
    store, lost = MoodyStore(), list[bool]()
    tenure = SessionLease(store, "talk", 0.6)
    tenure.on_lost = lambda: lost.append(tenure.is_held)
    assert tenure.acquire() is None
    store.moody.mood = mood
    until(lambda: lost)
    assert (lost, tenure.is_held) == ([False], False)
    assert tenure.guard is not None
    assert not LEASE_RENEWER.is_renewing(tenure.guard)  # so nobody looks at it again


def test_a_lease_that_could_not_be_renewed_for_a_while_is_kept() -> None:
    store, lost = MoodyStore(), list[bool]()
    tenure = SessionLease(store, "talk", 3.0)
    tenure.on_lost = lambda: lost.append(True)
    store.moody.mood = "broken"
    assert tenure.acquire() is None
    until(lambda: store.moody.renewals >= 2)
    store.moody.mood = "well"
    until(lambda: store.moody.renewals >= 5)
    assert (lost, tenure.is_held) == ([], True)
    tenure.release()


def test_a_lease_counts_as_lost_by_its_own_clock_though_nobody_has_said_so() -> None:
    tenure = SessionLease(MoodyStore(), "talk", 0.3)
    assert tenure.acquire() is None
    tenure.end()
    assert not tenure.is_held
    assert tenure.lost_at - tenure.due_at == pytest.approx(0.1)


def test_a_process_that_lives_is_not_taken_over() -> None:
    store = MemoryStore()
    assert not isinstance(store.lease.acquire("talk", build_owner(os.getppid()), 300), Holder)
    assert isinstance(SessionLease(store, "talk", 300).acquire(), Holder)


def test_another_run_of_this_process_is_not_taken_over_but_what_it_left_behind_is() -> None:
    store = MemoryStore()
    first, second = SessionLease(store, "talk", 300), SessionLease(store, "talk", 300)
    assert first.acquire() is None
    assert isinstance(second.acquire(), Holder)
    first.end()  # without giving it back
    assert second.acquire() is None
    second.release()


@pytest.mark.parametrize("owner", ["elsewhere:1:x", "", "no colons", f"{build_owner(1).partition(':')[0]}:x:y"])
def test_an_owner_of_whom_nothing_is_known_is_not_taken_over(owner: str) -> None:
    store = MemoryStore()
    assert not isinstance(store.lease.acquire("talk", owner, 300), Holder)
    assert isinstance(SessionLease(store, "talk", 300).acquire(), Holder)
