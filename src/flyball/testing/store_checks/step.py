"""What `keep` promises: all of a step, or nothing of it."""

from __future__ import annotations

from ...errors import ConfigError, FlyballError, StaleFence, StoreError
from ...store import Guard, Kind, Query, Row, RunFinish, Start, Step
from .store_fixture import StoreFixture, refused, said, together, told


def _whole(guard: Guard, run_id: str = "r") -> Step:
    return Step(
        run_id=run_id,
        guard=guard,
        start=Start(at=1.0, session=guard.session),
        rows=[Row(0, Kind.RUN), Row(1, Kind.ANSWER)],
        messages=said("one", "two"),
        state={"a": 1},
        events=told(0, 1),
        finish=RunFinish(at=2.0, stop="completed", record={"text": "x"}),
    )


def _is_empty(desk: StoreFixture, session: str = "s") -> bool:
    store = desk.store
    found = (store.runs.list(Query(children=True)), store.transcript.sessions(), store.transcript.read(session))
    return not any(found) and not store.journal.read("r") and not store.runs.events("r") and not store.state.get("s")


def a_step_brings_all_of_its_parts(desk: StoreFixture) -> None:
    """In one call."""
    guard = desk.hold()
    desk.store.keep(_whole(guard))
    assert desk.store.journal.read("r") == [Row(0, Kind.RUN), Row(1, Kind.ANSWER)]
    assert desk.store.transcript.read("s") == said("one", "two")
    assert desk.store.state.get("s") == {"a": 1}
    assert desk.store.runs.events("r") == told(0, 1)
    entry = desk.store.runs.get("r")
    assert entry is not None
    assert entry.finish == RunFinish(at=2.0, stop="completed", record={"text": "x"})
    assert desk.store.lease.holder("s") is not None


def a_step_of_an_old_holder_brings_nothing(desk: StoreFixture) -> None:
    """Neither a run nor a session begins with it."""
    guard = desk.hold(seconds=1)
    desk.clock.move(2)
    new = desk.hold(owner="two")
    refused(StaleFence, lambda: desk.store.keep(_whole(guard)))
    desk.store.lease.release(new)
    refused(StaleFence, lambda: desk.store.keep(_whole(guard)))
    assert _is_empty(desk)


def a_step_with_one_part_that_is_refused_brings_nothing(desk: StoreFixture) -> None:
    """A second answer takes the messages beside it down."""
    guard = desk.hold()
    step = _whole(guard)
    step.rows = [Row(1, Kind.ANSWER), Row(1, Kind.ANSWER)]
    refused(StoreError, lambda: desk.store.keep(step))
    assert _is_empty(desk)
    desk.store.keep(_whole(guard))


def a_step_may_give_the_lease_back(desk: StoreFixture) -> None:
    """With what it keeps: there is no moment between the end of a run and its lease."""
    guard = desk.hold()
    step = _whole(guard)
    step.release = True
    desk.store.keep(step)
    assert desk.store.lease.holder("s") is None
    assert desk.store.transcript.read("s") == said("one", "two")


def a_step_without_state_leaves_the_state(desk: StoreFixture) -> None:
    """And an empty one empties it."""
    guard = desk.hold()
    desk.store.keep(_whole(guard))
    desk.store.keep(Step(run_id="r", guard=guard, messages=said("three", first=2)))
    assert desk.store.state.get("s") == {"a": 1}
    desk.store.keep(Step(run_id="r", guard=guard, state={}))
    assert desk.store.state.get("s") == {}


def a_step_that_belongs_to_nobody_or_has_no_order_is_a_mistake(desk: StoreFixture) -> None:
    """The error names what is missing. `Step.check` knows."""
    mistakes: list[tuple[Step, str]] = [
        (Step(run_id="r", messages=said("one")), "guard"),
        (Step(run_id="r", state={}), "guard"),
        (Step(release=True), "guard"),
        (Step(rows=[Row(1, Kind.ANSWER)]), "run_id"),
        (Step(events=told(1)), "run_id"),
        (Step(run_id="r", start=Start(at=1.0), events=told(1, 1)), "events"),
        (Step(run_id="r", start=Start(at=1.0), events=[{"event": "delta"}]), "events"),
    ]
    for step, missing in mistakes:
        error = refused(ConfigError, lambda step=step: desk.store.keep(step))
        assert missing in error.where
    assert _is_empty(desk)


def a_child_writes_under_the_guard_of_its_root(desk: StoreFixture) -> None:
    """And stops with it."""
    guard = desk.hold(seconds=10)
    desk.begin("r", session="s")
    child = Step(run_id="c", guard=guard, start=Start(at=1.0, parent="r"), rows=[Row(0, Kind.RUN)], events=told(0))
    desk.store.keep(child)
    assert desk.store.runs.events("c") == told(0)
    desk.clock.move(11)
    desk.hold(owner="two")
    refused(StaleFence, lambda: desk.store.keep(Step(run_id="c", guard=guard, rows=[Row(1, Kind.ANSWER)])))
    assert desk.store.journal.read("c") == [Row(0, Kind.RUN)]


def many_runs_at_once_lose_nothing_and_mix_nothing(desk: StoreFixture) -> None:
    """One that is refused takes none of the others down."""
    runs, steps = 8, 12
    guards = [desk.hold(f"s{n}") for n in range(runs)]
    for n in range(runs):
        desk.begin(f"r{n}", session=f"s{n}")

    def work(n: int) -> int:
        failed = 0
        for place in range(steps):
            rows = [Row(place, Kind.STARTED), Row(0 if place % 4 == 3 else place, Kind.ANSWER)]
            words = said(f"{n}.{place}", run=f"r{n}", first=place)
            try:
                desk.store.keep(Step(run_id=f"r{n}", guard=guards[n], rows=rows, messages=words, events=told(place)))
            except FlyballError:
                failed += 1
        return failed

    assert together([lambda n=n: work(n) for n in range(runs)]) == [steps // 4] * runs
    kept = [place for place in range(steps) if place % 4 != 3]
    for n in range(runs):
        assert [message.content for message in desk.store.transcript.read(f"s{n}")] == [f"{n}.{p}" for p in kept]
        assert [row.n for row in desk.store.journal.read(f"r{n}")] == [p for place in kept for p in (place, place)]
        assert desk.store.runs.events(f"r{n}") == told(*kept)
