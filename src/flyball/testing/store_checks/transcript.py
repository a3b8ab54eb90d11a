"""What a transcript and a state promise."""

from __future__ import annotations

import math
from dataclasses import replace

from ...errors import SessionBusy, StaleFence, StoreError
from ...message import Message, MessageType, Role
from ...store import Guard
from .store_fixture import StoreFixture, refused, said


def messages_come_back_as_they_were_in_their_order(desk: StoreFixture) -> None:
    """Also odd ones."""
    call = {"call_id": "c", "name": "add", "arguments": {"a": [1, 2.5, None, True], "b": "ü 漢 \ud800 \x00"}}
    odd = Message("r", 7, 0.1 + 0.2, MessageType.TOOL_CALL, Role.ASSISTANT, "", call, {"wire": {"$": 1}}, 6)
    given = [*said("one", "two"), odd]
    desk.store.transcript.append(desk.hold(), given)
    assert desk.store.transcript.read("s") == given


def appends_add_to_the_end_and_can_be_read_from_any_place(desk: StoreFixture) -> None:
    """One position for each message."""
    guard = desk.hold()
    desk.store.transcript.append(guard, said("one", "two"))
    desk.store.transcript.append(guard, said("three", first=2))
    assert [message.content for message in desk.store.transcript.read("s", after=1)] == ["two", "three"]
    assert desk.store.transcript.read("s", after=3) == []


def what_is_read_or_was_given_is_a_copy(desk: StoreFixture) -> None:
    """Nobody changes a transcript by changing a message."""
    given = said("one")
    desk.store.transcript.append(desk.hold(), given)
    given[0].content = "changed"
    desk.store.transcript.read("s")[0].content = "changed"
    assert desk.store.transcript.read("s") == said("one")


def a_message_that_is_no_json_is_kept_as_far_as_it_is(desk: StoreFixture) -> None:
    """It must not lose the step that it came with."""
    odd = replace(said("one")[0], metadata={"at": math.inf, "who": {1}})
    desk.store.transcript.append(desk.hold(), [odd, *said("two", first=1)])
    assert [message.content for message in desk.store.transcript.read("s")] == ["one", "two"]


def sessions_are_apart_and_a_stranger_is_empty(desk: StoreFixture) -> None:
    """No message shows up elsewhere."""
    desk.store.transcript.append(desk.hold("a"), said("one"))
    desk.store.transcript.append(desk.hold("b"), said("two"))
    assert desk.store.transcript.read("a") == said("one")
    assert desk.store.transcript.read("nobody") == []
    assert desk.store.transcript.sessions("nobody") == []


def an_append_with_a_fence_that_is_not_the_newest_is_refused_whole(desk: StoreFixture) -> None:
    """A holder that slept past its lease writes nothing."""
    old = desk.hold(seconds=10)
    desk.clock.move(11)
    new = desk.hold(owner="two")
    error = refused(StaleFence, lambda: desk.store.transcript.append(old, said("late")))
    assert f"fence {new.fence}" in str(error)
    refused(StaleFence, lambda: desk.store.transcript.append(Guard("s", new.fence + 1), said("never given")))
    refused(StaleFence, lambda: desk.store.transcript.append(Guard("other", new.fence), said("another session")))
    assert desk.store.transcript.read("s") == []
    assert desk.store.transcript.sessions() == []


def a_holder_whose_lease_has_expired_may_write_until_somebody_takes_it(desk: StoreFixture) -> None:
    """Nobody else can have written meanwhile."""
    guard = desk.hold(seconds=10)
    desk.clock.move(11)
    desk.store.transcript.append(guard, said("one"))
    assert desk.store.transcript.read("s") == said("one")


def sessions_are_listed_newest_first_with_their_title_and_count(desk: StoreFixture) -> None:
    """As many as are wanted."""
    desk.store.transcript.append(desk.hold("a"), said("one", "two"))
    desk.clock.move(5)
    desk.store.transcript.title("b", "Titled before anything is said")
    desk.clock.move(5)
    desk.store.transcript.title("a", "A plan")
    found = desk.store.transcript.sessions()
    assert len(found) == 2
    first, second = found
    assert (first.id, first.title, first.messages, first.updated_at - first.created_at) == ("a", "A plan", 2, 10.0)
    assert (second.id, second.title, second.messages) == ("b", "Titled before anything is said", 0)
    assert desk.store.transcript.sessions(limit=1) == [first]
    assert desk.store.transcript.sessions("b") == [second]


def a_title_is_not_lost_when_more_is_said(desk: StoreFixture) -> None:
    """Nor is the day on which the session began."""
    desk.store.transcript.title("s", "A plan")
    desk.clock.move(5)
    desk.store.transcript.append(desk.hold(), said("one"))
    session = desk.store.transcript.sessions()[0]
    assert (session.title, session.updated_at - session.created_at) == ("A plan", 5.0)


def a_session_that_is_deleted_takes_its_runs_and_its_state_with_it(desk: StoreFixture) -> None:
    """Also their children; and the rest stays."""
    guard = desk.hold()
    desk.begin("r", session="s")
    desk.begin("child", parent="r")
    desk.begin("other", session="t")
    desk.store.transcript.append(guard, said("one"))
    desk.store.state.put(guard, {"a": 1})
    desk.store.lease.release(guard)
    assert desk.store.transcript.delete("s") is True
    assert desk.store.transcript.read("s") == []
    assert desk.store.state.get("s") == {}
    assert [desk.store.runs.get(name) is None for name in ("r", "child", "other")] == [True, True, False]
    assert [session.id for session in desk.store.transcript.sessions()] == ["t"]
    assert desk.store.transcript.delete("s") is False


def a_session_that_is_held_is_not_deleted(desk: StoreFixture) -> None:
    """The error names the holder; after its lease it can be."""
    desk.store.transcript.append(desk.hold(owner="worker 7", seconds=10), said("one"))
    assert "worker 7" in str(refused(SessionBusy, lambda: desk.store.transcript.delete("s")))
    assert desk.store.transcript.read("s") == said("one")
    desk.clock.move(11)
    assert desk.store.transcript.delete("s") is True


def whoever_held_a_deleted_session_writes_nothing_any_more(desk: StoreFixture) -> None:
    """What was deleted does not come back."""
    guard = desk.hold(seconds=10)
    desk.store.transcript.append(guard, said("one"))
    desk.clock.move(11)
    desk.store.transcript.delete("s")
    refused(StaleFence, lambda: desk.store.transcript.append(guard, said("two", first=1)))
    assert desk.store.transcript.sessions() == []


def a_state_comes_back_as_it_was(desk: StoreFixture) -> None:
    """Tuples, sets and infinity too; all of it is set anew each time."""
    guard = desk.hold()
    assert desk.store.state.get("s") == {}
    given = {"a": (1, 2), "b": {"$": [None]}, "c": math.inf, "d": frozenset({"x"})}
    desk.store.state.put(guard, given)
    assert desk.store.state.get("s") == given
    desk.store.state.put(guard, {"e": 1})
    assert desk.store.state.get("s") == {"e": 1}


def a_state_is_fenced_like_a_transcript(desk: StoreFixture) -> None:
    """An old holder changes nothing."""
    old = desk.hold(seconds=1)
    desk.clock.move(2)
    desk.store.state.put(desk.hold(owner="two"), {"a": "new"})
    refused(StaleFence, lambda: desk.store.state.put(old, {"a": "old"}))
    assert desk.store.state.get("s") == {"a": "new"}


def a_store_that_is_closed_says_so(desk: StoreFixture) -> None:
    """Closing again does nothing."""
    guard = desk.hold()
    desk.store.close()
    desk.store.close()
    refused(StoreError, lambda: desk.store.transcript.append(guard, said("one")))
    refused(StoreError, lambda: desk.store.transcript.read("s"))
