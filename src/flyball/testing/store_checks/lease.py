"""What a lease promises."""

from __future__ import annotations

from ...errors import StaleFence
from ...store import Guard, Holder
from .store_fixture import StoreFixture, refused, said, together


def a_lease_is_held_by_one(desk: StoreFixture) -> None:
    """The other is told by whom, since when and until when; also if it calls itself the same."""
    guard, now = desk.hold(owner="one", seconds=60), desk.clock.wall()
    desk.clock.move(10)
    holder = Holder("s", "one", guard.fence, now, now + 60)
    assert desk.store.lease.acquire("s", "two", 60) == holder
    assert desk.store.lease.acquire("s", "one", 60) == holder
    assert desk.store.lease.holder("s") == holder


def a_lease_that_was_given_back_is_free(desk: StoreFixture) -> None:
    """And whoever gave it back has it no more."""
    guard = desk.hold()
    assert desk.store.lease.release(guard) is True
    assert desk.store.lease.holder("s") is None
    assert desk.store.lease.release(guard) is False
    assert desk.store.lease.renew(guard, 60) is False
    refused(StaleFence, lambda: desk.store.transcript.append(guard, said("late")))
    desk.hold(owner="two")


def a_lease_that_has_expired_is_free(desk: StoreFixture) -> None:
    """At the very moment."""
    desk.hold(seconds=60)
    desk.clock.move(59)
    assert isinstance(desk.store.lease.acquire("s", "two", 60), Holder)
    desk.clock.move(1)
    assert desk.store.lease.holder("s") is None
    desk.hold(owner="two")


def a_lease_that_is_renewed_lasts_from_then_on(desk: StoreFixture) -> None:
    """Since when it is held stays."""
    guard, began = desk.hold(seconds=60), desk.clock.wall()
    desk.clock.move(50)
    assert desk.store.lease.renew(guard, 60) is True
    desk.clock.move(59)
    assert desk.store.lease.holder("s") == Holder("s", "one", guard.fence, began, began + 110)


def a_lease_that_has_expired_can_be_renewed_until_somebody_takes_it(desk: StoreFixture) -> None:
    """Then it is lost for good."""
    guard = desk.hold(seconds=10)
    desk.clock.move(11)
    assert desk.store.lease.renew(guard, 10) is True
    desk.clock.move(11)
    new = desk.hold(owner="two")
    assert desk.store.lease.renew(guard, 10) is False
    assert desk.store.lease.release(guard) is False
    holder = desk.store.lease.holder("s")
    assert holder is not None
    assert (holder.owner, holder.fence) == ("two", new.fence)


def fences_rise_and_never_come_again(desk: StoreFixture) -> None:
    """Also when leases are given back, expire, or their session is deleted."""
    fences: list[int] = []
    for turn in range(6):
        guard = desk.hold(seconds=5)
        fences.append(guard.fence)
        desk.store.transcript.append(guard, said("one"))
        if turn % 2:
            desk.store.lease.release(guard)
        desk.clock.move(6)
        if turn == 3:
            desk.store.transcript.delete("s")
    assert fences == sorted(set(fences))


def leases_of_other_sessions_are_other_leases(desk: StoreFixture) -> None:
    """And what is leased need not have a transcript."""
    one, two = desk.hold("a"), desk.hold("b")
    assert one.fence != two.fence
    assert desk.store.transcript.sessions() == []
    desk.store.lease.release(one)
    assert desk.store.lease.holder("b") is not None


def of_many_that_ask_at_once_one_gets_it(desk: StoreFixture) -> None:
    """The rest are told who."""
    given = together([lambda name=f"worker {n}": desk.store.lease.acquire("s", name, 60) for n in range(8)])
    guards = [one for one in given if isinstance(one, Guard)]
    assert len(guards) == 1, f"one was to get the lease, but {len(guards)} did"
    assert {one.fence for one in given} == {guards[0].fence}
