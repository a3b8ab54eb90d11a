"""Checks of the list of runs."""

from __future__ import annotations

from ...errors import StoreError
from ...store import Entry, Pruned, Query, RunFinish, Start, Step
from .store_fixture import StoreFixture, assert_raises, build_events, build_messages


def a_run_is_entered_when_it_starts_and_closed_when_it_ends(fixture: StoreFixture) -> None:
    """Check that a run keeps its start and its finish."""
    start = Start(at=5.5, agent="writer", session="s", task="Write.", metadata={"job": [7, None]})
    fixture.store.runs.start("r", start)
    assert fixture.store.runs.get("r") == Entry("r", start, None, fixture.clock.wall())
    fixture.clock.move(3)
    finish = RunFinish(at=9.25, stop="completed", record={"text": "ü", "turns": 2})
    fixture.store.runs.finish("r", finish)
    assert fixture.store.runs.get("r") == Entry("r", start, finish, fixture.clock.wall())
    assert fixture.store.runs.get("nobody") is None


def a_list_leaves_records_out(fixture: StoreFixture) -> None:
    """Check that a list has no records, because they are large."""
    fixture.start_run()
    fixture.store.runs.finish("r", RunFinish(at=9.0, stop="budget", record={"text": "x"}))
    entry = fixture.store.runs.list()[0]
    assert entry.finish == RunFinish(at=9.0, stop="budget")


def a_run_is_started_once(fixture: StoreFixture) -> None:
    """Check that a second start, or an end without a start, is refused."""
    fixture.start_run()
    assert "'r'" in str(assert_raises(StoreError, lambda: fixture.start_run()))
    assert_raises(StoreError, lambda: fixture.store.runs.finish("nobody", RunFinish(at=1.0, stop="completed")))
    assert len(fixture.store.runs.list()) == 1


def an_end_is_not_final(fixture: StoreFixture) -> None:
    """Check that a resumed run has no finish until it ends again."""
    fixture.start_run()
    fixture.store.runs.finish("r", RunFinish(at=1.0, stop="budget", record={"text": "part"}))
    fixture.store.keep(Step(run_id="r", again=True))
    entry = fixture.store.runs.get("r")
    assert entry is not None
    assert entry.finish is None
    finish = RunFinish(at=2.0, stop="completed", record={"text": "all"})
    fixture.store.runs.finish("r", finish)
    entry = fixture.store.runs.get("r")
    assert entry is not None
    assert entry.finish == finish


def a_resumed_run_can_drop_the_events_of_its_pause(fixture: StoreFixture) -> None:
    """Check that a step removes later events before it adds its own, whose numbers go on rising."""
    fixture.start_run()
    fixture.store.keep(Step(run_id="r", events=build_events(0, 1)))
    fixture.store.keep(Step(run_id="r", events=build_events(2, 3, 4)))
    fixture.store.keep(Step(run_id="r", events=build_events(5)))
    fixture.store.keep(Step(run_id="r", again=True, drop_events_after=2, events=build_events(6)))
    fixture.store.keep(Step(run_id="r", events=build_events(7)))
    assert [event["seq"] for event in fixture.store.runs.events("r")] == [0, 1, 2, 6, 7]
    assert [event["seq"] for event in fixture.store.runs.events("r", after=2)] == [6, 7]


def runs_are_listed_newest_first_page_by_page(fixture: StoreFixture) -> None:
    """Check order and pages. Child runs are listed only on request."""
    for n in range(5):
        fixture.start_run(f"r{n}")
        fixture.clock.move(1)
    fixture.start_run("child", parent="r0")
    names = [entry.run_id for entry in fixture.store.runs.list(Query(limit=2))]
    assert names == ["r4", "r3"]
    last = fixture.store.runs.list(Query(limit=2))[-1].start.at
    assert [entry.run_id for entry in fixture.store.runs.list(Query(before=last))] == ["r2", "r1", "r0"]
    assert [entry.run_id for entry in fixture.store.runs.list(Query(children=True, limit=2))] == ["child", "r4"]
    assert [entry.run_id for entry in fixture.store.runs.list(Query(parent="r0"))] == ["child"]


def runs_are_found_by_session_agent_and_end(fixture: StoreFixture) -> None:
    """Check each filter alone, and several together."""
    for name, session, agent, stop in (("a", "s", "x", "budget"), ("b", "s", "y", None), ("c", None, "x", "completed")):
        fixture.store.runs.start(name, Start(at=1.0, session=session, agent=agent))
        if stop:
            fixture.store.runs.finish(name, RunFinish(at=2.0, stop=stop))

    def find(query: Query) -> str:
        return "".join(sorted(entry.run_id for entry in fixture.store.runs.list(query)))

    assert find(Query()) == "abc"
    assert find(Query(session="s")) == "ab"
    assert find(Query(agent="x")) == "ac"
    assert find(Query(stop="budget")) == "a"
    assert find(Query(finished=False)) == "b"
    assert find(Query(finished=True, agent="x", session="s")) == "a"


def events_are_read_from_a_cursor(fixture: StoreFixture) -> None:
    """Check that event numbers are the cursor. Numbers may be missing."""
    fixture.start_run()
    fixture.store.keep(Step(run_id="r", events=build_events(0, 1, 3)))
    fixture.store.keep(Step(run_id="r", events=build_events(4)))
    assert fixture.store.runs.events("r") == build_events(0, 1, 3, 4)
    assert fixture.store.runs.events("r", after=1) == build_events(3, 4)
    assert fixture.store.runs.events("r", after=4) == []
    assert fixture.store.runs.events("nobody") == []


def an_event_that_is_told_again_is_kept_once(fixture: StoreFixture) -> None:
    """Check that the first version of an event is kept."""
    fixture.start_run()
    fixture.store.keep(Step(run_id="r", events=build_events(0, 1)))
    again = [{**event, "at": 99.0} for event in build_events(0, 1)]
    fixture.store.keep(Step(run_id="r", events=[*again, *build_events(2)]))
    assert fixture.store.runs.events("r") == build_events(0, 1, 2)


def what_nobody_has_touched_for_long_is_pruned(fixture: StoreFixture) -> None:
    """Check that old runs are pruned, killed ones too.

    A tree of runs is pruned or kept as a whole.
    """
    guard = fixture.acquire_lease("old")
    fixture.start_run("old", session="old")
    fixture.store.transcript.append(guard, build_messages("one"))
    fixture.store.lease.release(guard)
    fixture.start_run("killed")
    fixture.start_run("parent")
    fixture.clock.move(100)
    before = fixture.clock.wall()
    fixture.start_run("child", parent="parent")
    fixture.start_run("new", session="new")
    assert fixture.store.prune(before) == Pruned(2, 1)
    names = {entry.run_id for entry in fixture.store.runs.list(Query(children=True))}
    assert names == {"parent", "child", "new"}
    assert [session.id for session in fixture.store.transcript.sessions()] == ["new"]
    assert fixture.store.transcript.read("old") == []
    assert fixture.store.prune(before) == Pruned(0, 0)


def what_is_held_is_not_pruned(fixture: StoreFixture) -> None:
    """Check that a leased session or run is kept, however old.

    Its run may be waiting for a person.
    """
    guard = fixture.acquire_lease(seconds=1_000)
    fixture.start_run("r", session="s")
    fixture.store.transcript.append(guard, build_messages("one"))
    alone = fixture.acquire_lease("alone", seconds=1_000)
    fixture.start_run("alone")
    silent = fixture.acquire_lease("silent", seconds=1_000)
    fixture.store.transcript.title("silent", "It has no run yet")
    fixture.clock.move(500)
    assert fixture.store.prune(fixture.clock.wall()) == Pruned(0, 0)
    fixture.store.lease.release(guard)
    fixture.store.lease.release(alone)
    fixture.store.lease.release(silent)
    assert fixture.store.prune(fixture.clock.wall()) == Pruned(2, 2)
