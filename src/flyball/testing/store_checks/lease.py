"""Checks of leases."""

from __future__ import annotations

from ...errors import StaleFence
from ...store import Guard, Holder
from .store_fixture import StoreFixture, assert_raises, build_messages, run_in_threads


def a_lease_is_held_by_one(fixture: StoreFixture) -> None:
    """Check that a second owner gets the holder and its times.

    This is so even if it has the same owner name.
    """
    guard, now = fixture.acquire_lease(owner="one", seconds=60), fixture.clock.wall()
    fixture.clock.move(10)
    holder = Holder("s", "one", guard.fence, now, now + 60)
    assert fixture.store.lease.acquire("s", "two", 60) == holder
    assert fixture.store.lease.acquire("s", "one", 60) == holder
    assert fixture.store.lease.holder("s") == holder


def a_lease_that_was_given_back_is_free(fixture: StoreFixture) -> None:
    """Check that a released lease is free, and useless to its old holder."""
    guard = fixture.acquire_lease()
    assert fixture.store.lease.release(guard) is True
    assert fixture.store.lease.holder("s") is None
    assert fixture.store.lease.release(guard) is False
    assert fixture.store.lease.renew(guard, 60) is False
    assert_raises(StaleFence, lambda: fixture.store.transcript.append(guard, build_messages("late")))
    fixture.acquire_lease(owner="two")


def a_lease_that_has_expired_is_free(fixture: StoreFixture) -> None:
    """Check that a lease is free from the moment of its expiry."""
    fixture.acquire_lease(seconds=60)
    fixture.clock.move(59)
    assert isinstance(fixture.store.lease.acquire("s", "two", 60), Holder)
    fixture.clock.move(1)
    assert fixture.store.lease.holder("s") is None
    fixture.acquire_lease(owner="two")


def a_lease_that_is_renewed_lasts_from_then_on(fixture: StoreFixture) -> None:
    """Check that renewal extends a lease and keeps its start."""
    guard, started_at = fixture.acquire_lease(seconds=60), fixture.clock.wall()
    fixture.clock.move(50)
    assert fixture.store.lease.renew(guard, 60) is True
    fixture.clock.move(59)
    assert fixture.store.lease.holder("s") == Holder("s", "one", guard.fence, started_at, started_at + 110)


def a_lease_that_has_expired_can_be_renewed_until_somebody_takes_it(fixture: StoreFixture) -> None:
    """Check that an expired lease can be renewed until another owner takes it."""
    guard = fixture.acquire_lease(seconds=10)
    fixture.clock.move(11)
    assert fixture.store.lease.renew(guard, 10) is True
    fixture.clock.move(11)
    new = fixture.acquire_lease(owner="two")
    assert fixture.store.lease.renew(guard, 10) is False
    assert fixture.store.lease.release(guard) is False
    holder = fixture.store.lease.holder("s")
    assert holder is not None
    assert (holder.owner, holder.fence) == ("two", new.fence)


def fences_rise_and_never_come_again(fixture: StoreFixture) -> None:
    """Check that fences rise after releases, expiries and deletions."""
    fences: list[int] = []
    for turn in range(6):
        guard = fixture.acquire_lease(seconds=5)
        fences.append(guard.fence)
        fixture.store.transcript.append(guard, build_messages("one"))
        if turn % 2:
            fixture.store.lease.release(guard)
        fixture.clock.move(6)
        if turn == 3:
            fixture.store.transcript.delete("s")
    assert fences == sorted(set(fences))


def leases_of_other_sessions_are_other_leases(fixture: StoreFixture) -> None:
    """Check that leases are independent, and need no transcript."""
    first, second = fixture.acquire_lease("a"), fixture.acquire_lease("b")
    assert first.fence != second.fence
    assert fixture.store.transcript.sessions() == []
    fixture.store.lease.release(first)
    assert fixture.store.lease.holder("b") is not None


def of_many_that_ask_at_once_one_gets_it(fixture: StoreFixture) -> None:
    """Check that one of many threads gets the lease, and the others its holder."""
    answers = run_in_threads([lambda name=f"worker {n}": fixture.store.lease.acquire("s", name, 60) for n in range(8)])
    guards = [answer for answer in answers if isinstance(answer, Guard)]
    assert len(guards) == 1, f"expected one holder of the lease, found {len(guards)}"
    assert {answer.fence for answer in answers} == {guards[0].fence}
