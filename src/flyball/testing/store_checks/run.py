"""What the list of runs promises."""

from __future__ import annotations

from ...errors import StoreError
from ...store import Entry, Pruned, Query, RunFinish, Start, Step
from .store_fixture import StoreFixture, refused, said, told


def a_run_is_entered_when_it_starts_and_closed_when_it_ends(desk: StoreFixture) -> None:
    """With all that was told of it."""
    start = Start(at=5.5, agent="writer", session="s", task="Write.", metadata={"job": [7, None]})
    desk.store.runs.start("r", start)
    assert desk.store.runs.get("r") == Entry("r", start, None, desk.clock.wall())
    desk.clock.move(3)
    finish = RunFinish(at=9.25, stop="completed", record={"text": "ü", "turns": 2})
    desk.store.runs.finish("r", finish)
    assert desk.store.runs.get("r") == Entry("r", start, finish, desk.clock.wall())
    assert desk.store.runs.get("nobody") is None


def a_list_leaves_records_out(desk: StoreFixture) -> None:
    """They are large."""
    desk.begin()
    desk.store.runs.finish("r", RunFinish(at=9.0, stop="budget", record={"text": "x"}))
    entry = desk.store.runs.list()[0]
    assert entry.finish == RunFinish(at=9.0, stop="budget")


def a_run_is_started_once(desk: StoreFixture) -> None:
    """Another of its id is refused, and so is an end without a start."""
    desk.begin()
    assert "'r'" in str(refused(StoreError, lambda: desk.begin()))
    refused(StoreError, lambda: desk.store.runs.finish("nobody", RunFinish(at=1.0, stop="completed")))
    assert len(desk.store.runs.list()) == 1


def an_end_is_not_final(desk: StoreFixture) -> None:
    """A run that is taken up again has no end until it comes to another."""
    desk.begin()
    desk.store.runs.finish("r", RunFinish(at=1.0, stop="budget", record={"text": "part"}))
    desk.store.keep(Step(run_id="r", again=True))
    entry = desk.store.runs.get("r")
    assert entry is not None
    assert entry.finish is None
    finish = RunFinish(at=2.0, stop="completed", record={"text": "all"})
    desk.store.runs.finish("r", finish)
    entry = desk.store.runs.get("r")
    assert entry is not None
    assert entry.finish == finish


def runs_are_listed_newest_first_page_by_page(desk: StoreFixture) -> None:
    """Those at the top, unless others are asked for."""
    for n in range(5):
        desk.begin(f"r{n}")
        desk.clock.move(1)
    desk.begin("child", parent="r0")
    names = [entry.run_id for entry in desk.store.runs.list(Query(limit=2))]
    assert names == ["r4", "r3"]
    last = desk.store.runs.list(Query(limit=2))[-1].start.at
    assert [entry.run_id for entry in desk.store.runs.list(Query(before=last))] == ["r2", "r1", "r0"]
    assert [entry.run_id for entry in desk.store.runs.list(Query(children=True, limit=2))] == ["child", "r4"]
    assert [entry.run_id for entry in desk.store.runs.list(Query(parent="r0"))] == ["child"]


def runs_are_found_by_session_agent_and_end(desk: StoreFixture) -> None:
    """Each filter alone, and together."""
    for name, session, agent, stop in (("a", "s", "x", "budget"), ("b", "s", "y", None), ("c", None, "x", "completed")):
        desk.store.runs.start(name, Start(at=1.0, session=session, agent=agent))
        if stop:
            desk.store.runs.finish(name, RunFinish(at=2.0, stop=stop))

    def found(query: Query) -> str:
        return "".join(sorted(entry.run_id for entry in desk.store.runs.list(query)))

    assert found(Query()) == "abc"
    assert found(Query(session="s")) == "ab"
    assert found(Query(agent="x")) == "ac"
    assert found(Query(stop="budget")) == "a"
    assert found(Query(finished=False)) == "b"
    assert found(Query(finished=True, agent="x", session="s")) == "a"


def events_are_read_from_a_cursor(desk: StoreFixture) -> None:
    """Their own numbers are the cursor; numbers may be missing."""
    desk.begin()
    desk.store.keep(Step(run_id="r", events=told(0, 1, 3)))
    desk.store.keep(Step(run_id="r", events=told(4)))
    assert desk.store.runs.events("r") == told(0, 1, 3, 4)
    assert desk.store.runs.events("r", after=1) == told(3, 4)
    assert desk.store.runs.events("r", after=4) == []
    assert desk.store.runs.events("nobody") == []


def an_event_that_is_told_again_is_kept_once(desk: StoreFixture) -> None:
    """As the run told it first."""
    desk.begin()
    desk.store.keep(Step(run_id="r", events=told(0, 1)))
    again = [{**event, "at": 99.0} for event in told(0, 1)]
    desk.store.keep(Step(run_id="r", events=[*again, *told(2)]))
    assert desk.store.runs.events("r") == told(0, 1, 2)


def what_nobody_has_touched_for_long_is_pruned(desk: StoreFixture) -> None:
    """Runs that were killed too; a tree goes or stays as one."""
    guard = desk.hold("old")
    desk.begin("old", session="old")
    desk.store.transcript.append(guard, said("one"))
    desk.store.lease.release(guard)
    desk.begin("killed")
    desk.begin("parent")
    desk.clock.move(100)
    before = desk.clock.wall()
    desk.begin("child", parent="parent")
    desk.begin("new", session="new")
    assert desk.store.prune(before) == Pruned(2, 1)
    names = {entry.run_id for entry in desk.store.runs.list(Query(children=True))}
    assert names == {"parent", "child", "new"}
    assert [session.id for session in desk.store.transcript.sessions()] == ["new"]
    assert desk.store.transcript.read("old") == []
    assert desk.store.prune(before) == Pruned(0, 0)


def what_is_held_is_not_pruned(desk: StoreFixture) -> None:
    """However long nothing was written: somebody waits for a person."""
    guard = desk.hold(seconds=1_000)
    desk.begin("r", session="s")
    desk.store.transcript.append(guard, said("one"))
    alone = desk.hold("alone", seconds=1_000)
    desk.begin("alone")
    silent = desk.hold("silent", seconds=1_000)
    desk.store.transcript.title("silent", "It has no run yet")
    desk.clock.move(500)
    assert desk.store.prune(desk.clock.wall()) == Pruned(0, 0)
    desk.store.lease.release(guard)
    desk.store.lease.release(alone)
    desk.store.lease.release(silent)
    assert desk.store.prune(desk.clock.wall()) == Pruned(2, 2)
