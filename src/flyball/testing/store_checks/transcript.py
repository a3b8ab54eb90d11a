"""Checks of transcripts and state."""

from __future__ import annotations

import math
from dataclasses import replace

from ...errors import SessionBusy, StaleFence, StoreError
from ...message import Message, MessageType, Role
from ...store import Guard
from .store_fixture import StoreFixture, assert_raises, build_messages


def messages_come_back_as_they_were_in_their_order(fixture: StoreFixture) -> None:
    """Check that messages are unchanged, even unusual ones."""
    call = {"call_id": "c", "name": "add", "arguments": {"a": [1, 2.5, None, True], "b": "ü 漢 \ud800 \x00"}}
    odd = Message("r", 7, 0.1 + 0.2, MessageType.TOOL_CALL, Role.ASSISTANT, "", call, {"wire": {"$": 1}}, 6)
    messages = [*build_messages("one", "two"), odd]
    fixture.store.transcript.append(fixture.acquire_lease(), messages)
    assert fixture.store.transcript.read("s") == messages


def appends_add_to_the_end_and_can_be_read_from_any_place(fixture: StoreFixture) -> None:
    """Check that each message has one position."""
    guard = fixture.acquire_lease()
    fixture.store.transcript.append(guard, build_messages("one", "two"))
    fixture.store.transcript.append(guard, build_messages("three", first=2))
    assert [message.content for message in fixture.store.transcript.read("s", after=1)] == ["two", "three"]
    assert fixture.store.transcript.read("s", after=3) == []


def what_is_read_or_was_given_is_a_copy(fixture: StoreFixture) -> None:
    """Check that changing a message object does not change the transcript."""
    messages = build_messages("one")
    fixture.store.transcript.append(fixture.acquire_lease(), messages)
    messages[0].content = "changed"
    fixture.store.transcript.read("s")[0].content = "changed"
    assert fixture.store.transcript.read("s") == build_messages("one")


def a_message_that_is_no_json_is_kept_as_far_as_it_is(fixture: StoreFixture) -> None:
    """Check that a value that is not JSON does not lose the step."""
    odd = replace(build_messages("one")[0], metadata={"at": math.inf, "who": {1}})
    fixture.store.transcript.append(fixture.acquire_lease(), [odd, *build_messages("two", first=1)])
    assert [message.content for message in fixture.store.transcript.read("s")] == ["one", "two"]


def sessions_are_apart_and_a_stranger_is_empty(fixture: StoreFixture) -> None:
    """Check that a message appears only in its own session."""
    fixture.store.transcript.append(fixture.acquire_lease("a"), build_messages("one"))
    fixture.store.transcript.append(fixture.acquire_lease("b"), build_messages("two"))
    assert fixture.store.transcript.read("a") == build_messages("one")
    assert fixture.store.transcript.read("nobody") == []
    assert fixture.store.transcript.sessions("nobody") == []


def an_append_with_a_fence_that_is_not_the_newest_is_refused_whole(fixture: StoreFixture) -> None:
    """Check that a holder whose lease was taken over cannot write."""
    old = fixture.acquire_lease(seconds=10)
    fixture.clock.move(11)
    new = fixture.acquire_lease(owner="two")
    error = assert_raises(StaleFence, lambda: fixture.store.transcript.append(old, build_messages("late")))
    assert f"fence {new.fence}" in str(error)
    assert_raises(
        StaleFence, lambda: fixture.store.transcript.append(Guard("s", new.fence + 1), build_messages("never given"))
    )
    assert_raises(
        StaleFence,
        lambda: fixture.store.transcript.append(Guard("other", new.fence), build_messages("another session")),
    )
    assert fixture.store.transcript.read("s") == []
    assert fixture.store.transcript.sessions() == []


def a_holder_whose_lease_has_expired_may_write_until_somebody_takes_it(fixture: StoreFixture) -> None:
    """Check that an expired lease still permits writes.

    No other holder can have written meanwhile.
    """
    guard = fixture.acquire_lease(seconds=10)
    fixture.clock.move(11)
    fixture.store.transcript.append(guard, build_messages("one"))
    assert fixture.store.transcript.read("s") == build_messages("one")


def sessions_are_listed_newest_first_with_their_title_and_count(fixture: StoreFixture) -> None:
    """Check the order and the fields of sessions, and the limit."""
    fixture.store.transcript.append(fixture.acquire_lease("a"), build_messages("one", "two"))
    fixture.clock.move(5)
    fixture.store.transcript.title("b", "Titled before anything is said")
    fixture.clock.move(5)
    fixture.store.transcript.title("a", "A plan")
    sessions = fixture.store.transcript.sessions()
    assert len(sessions) == 2
    first, second = sessions
    assert (first.id, first.title, first.messages, first.updated_at - first.created_at) == ("a", "A plan", 2, 10.0)
    assert (second.id, second.title, second.messages) == ("b", "Titled before anything is said", 0)
    assert fixture.store.transcript.sessions(limit=1) == [first]
    assert fixture.store.transcript.sessions("b") == [second]


def a_title_is_not_lost_when_more_is_said(fixture: StoreFixture) -> None:
    """Check that an append keeps the title and the creation time."""
    fixture.store.transcript.title("s", "A plan")
    fixture.clock.move(5)
    fixture.store.transcript.append(fixture.acquire_lease(), build_messages("one"))
    session = fixture.store.transcript.sessions()[0]
    assert (session.title, session.updated_at - session.created_at) == ("A plan", 5.0)


def a_session_that_is_deleted_takes_its_runs_and_its_state_with_it(fixture: StoreFixture) -> None:
    """Check that runs, child runs and state are deleted, and others kept."""
    guard = fixture.acquire_lease()
    fixture.start_run("r", session="s")
    fixture.start_run("child", parent="r")
    fixture.start_run("other", session="t")
    fixture.store.transcript.append(guard, build_messages("one"))
    fixture.store.state.put(guard, {"a": 1})
    fixture.store.lease.release(guard)
    assert fixture.store.transcript.delete("s") is True
    assert fixture.store.transcript.read("s") == []
    assert fixture.store.state.get("s") == {}
    assert [fixture.store.runs.get(name) is None for name in ("r", "child", "other")] == [True, True, False]
    assert [session.id for session in fixture.store.transcript.sessions()] == ["t"]
    assert fixture.store.transcript.delete("s") is False


def a_session_that_is_held_is_not_deleted(fixture: StoreFixture) -> None:
    """Check that the error names the holder, and that expiry permits deletion."""
    fixture.store.transcript.append(fixture.acquire_lease(owner="worker 7", seconds=10), build_messages("one"))
    assert "worker 7" in str(assert_raises(SessionBusy, lambda: fixture.store.transcript.delete("s")))
    assert fixture.store.transcript.read("s") == build_messages("one")
    fixture.clock.move(11)
    assert fixture.store.transcript.delete("s") is True


def whoever_held_a_deleted_session_writes_nothing_any_more(fixture: StoreFixture) -> None:
    """Check that an old holder cannot bring a deleted session back."""
    guard = fixture.acquire_lease(seconds=10)
    fixture.store.transcript.append(guard, build_messages("one"))
    fixture.clock.move(11)
    fixture.store.transcript.delete("s")
    assert_raises(StaleFence, lambda: fixture.store.transcript.append(guard, build_messages("two", first=1)))
    assert fixture.store.transcript.sessions() == []


def a_state_comes_back_as_it_was(fixture: StoreFixture) -> None:
    """Check that tuples, sets and infinity survive, and that `put` replaces all."""
    guard = fixture.acquire_lease()
    assert fixture.store.state.get("s") == {}
    state = {"a": (1, 2), "b": {"$": [None]}, "c": math.inf, "d": frozenset({"x"})}
    fixture.store.state.put(guard, state)
    assert fixture.store.state.get("s") == state
    fixture.store.state.put(guard, {"e": 1})
    assert fixture.store.state.get("s") == {"e": 1}


def a_state_is_fenced_like_a_transcript(fixture: StoreFixture) -> None:
    """Check that a stale holder cannot change the state."""
    old = fixture.acquire_lease(seconds=1)
    fixture.clock.move(2)
    fixture.store.state.put(fixture.acquire_lease(owner="two"), {"a": "new"})
    assert_raises(StaleFence, lambda: fixture.store.state.put(old, {"a": "old"}))
    assert fixture.store.state.get("s") == {"a": "new"}


def a_store_that_is_closed_says_so(fixture: StoreFixture) -> None:
    """Check that a closed store refuses calls, and can be closed again."""
    guard = fixture.acquire_lease()
    fixture.store.close()
    fixture.store.close()
    assert_raises(StoreError, lambda: fixture.store.transcript.append(guard, build_messages("one")))
    assert_raises(StoreError, lambda: fixture.store.transcript.read("s"))
