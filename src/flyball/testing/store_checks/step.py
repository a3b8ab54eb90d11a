"""Checks of `keep`: it stores all of a step, or nothing."""

from __future__ import annotations

from ...errors import ConfigError, FlyballError, StaleFence, StoreError
from ...store import Guard, Kind, Query, Row, RunFinish, Start, Step
from .store_fixture import StoreFixture, assert_raises, build_events, build_messages, run_in_threads


def a_step_brings_all_of_its_parts(fixture: StoreFixture) -> None:
    """Check that one call of `keep` stores every part of a step."""
    guard = fixture.acquire_lease()
    fixture.store.keep(_build_step(guard))
    assert fixture.store.journal.read("r") == [Row(0, Kind.RUN), Row(1, Kind.ANSWER)]
    assert fixture.store.transcript.read("s") == build_messages("one", "two")
    assert fixture.store.state.get("s") == {"a": 1}
    assert fixture.store.runs.events("r") == build_events(0, 1)
    entry = fixture.store.runs.get("r")
    assert entry is not None
    assert entry.finish == RunFinish(at=2.0, stop="completed", record={"text": "x"})
    assert fixture.store.lease.holder("s") is not None


def a_step_of_an_old_holder_brings_nothing(fixture: StoreFixture) -> None:
    """Check that a stale step starts neither a run nor a session."""
    guard = fixture.acquire_lease(seconds=1)
    fixture.clock.move(2)
    new = fixture.acquire_lease(owner="two")
    assert_raises(StaleFence, lambda: fixture.store.keep(_build_step(guard)))
    fixture.store.lease.release(new)
    assert_raises(StaleFence, lambda: fixture.store.keep(_build_step(guard)))
    assert _is_empty(fixture)


def a_step_with_one_part_that_is_refused_brings_nothing(fixture: StoreFixture) -> None:
    """Check that a rejected second answer also rejects the messages beside it."""
    guard = fixture.acquire_lease()
    step = _build_step(guard)
    step.rows = [Row(1, Kind.ANSWER), Row(1, Kind.ANSWER)]
    assert_raises(StoreError, lambda: fixture.store.keep(step))
    assert _is_empty(fixture)
    fixture.store.keep(_build_step(guard))


def a_step_may_give_the_lease_back(fixture: StoreFixture) -> None:
    """Check that `keep` can release the lease in the same call.

    There is no moment between the end of a run and the release of its lease.
    """
    guard = fixture.acquire_lease()
    step = _build_step(guard)
    step.release = True
    fixture.store.keep(step)
    assert fixture.store.lease.holder("s") is None
    assert fixture.store.transcript.read("s") == build_messages("one", "two")


def a_step_without_state_leaves_the_state(fixture: StoreFixture) -> None:
    """Check that None leaves the state, and that an empty dict clears it."""
    guard = fixture.acquire_lease()
    fixture.store.keep(_build_step(guard))
    fixture.store.keep(Step(run_id="r", guard=guard, messages=build_messages("three", first=2)))
    assert fixture.store.state.get("s") == {"a": 1}
    fixture.store.keep(Step(run_id="r", guard=guard, state={}))
    assert fixture.store.state.get("s") == {}


def a_step_that_belongs_to_nobody_or_has_no_order_is_a_mistake(fixture: StoreFixture) -> None:
    """Check that the error names what is missing, as `Step.check` finds it."""
    mistakes: list[tuple[Step, str]] = [
        (Step(run_id="r", messages=build_messages("one")), "guard"),
        (Step(run_id="r", state={}), "guard"),
        (Step(release=True), "guard"),
        (Step(rows=[Row(1, Kind.ANSWER)]), "run_id"),
        (Step(events=build_events(1)), "run_id"),
        (Step(run_id="r", start=Start(at=1.0), events=build_events(1, 1)), "events"),
        (Step(run_id="r", start=Start(at=1.0), events=[{"event": "delta"}]), "events"),
    ]
    for step, missing in mistakes:
        error = assert_raises(ConfigError, lambda step=step: fixture.store.keep(step))
        assert missing in str(error)
    assert _is_empty(fixture)


def a_child_writes_under_the_guard_of_its_root(fixture: StoreFixture) -> None:
    """Check that a child can write until its root loses the lease."""
    guard = fixture.acquire_lease(seconds=10)
    fixture.start_run("r", session="s")
    child = Step(
        run_id="c", guard=guard, start=Start(at=1.0, parent="r"), rows=[Row(0, Kind.RUN)], events=build_events(0)
    )
    fixture.store.keep(child)
    assert fixture.store.runs.events("c") == build_events(0)
    fixture.clock.move(11)
    fixture.acquire_lease(owner="two")
    assert_raises(StaleFence, lambda: fixture.store.keep(Step(run_id="c", guard=guard, rows=[Row(1, Kind.ANSWER)])))
    assert fixture.store.journal.read("c") == [Row(0, Kind.RUN)]


def many_runs_at_once_lose_nothing_and_mix_nothing(fixture: StoreFixture) -> None:
    """Check that parallel steps are all stored, except the rejected ones."""
    runs, steps = 8, 12
    guards = [fixture.acquire_lease(f"s{n}") for n in range(runs)]
    for n in range(runs):
        fixture.start_run(f"r{n}", session=f"s{n}")

    def work(n: int) -> int:
        failed = 0
        for index in range(steps):
            rows = [Row(index, Kind.STARTED), Row(0 if index % 4 == 3 else index, Kind.ANSWER)]
            messages = build_messages(f"{n}.{index}", run=f"r{n}", first=index)
            try:
                fixture.store.keep(
                    Step(run_id=f"r{n}", guard=guards[n], rows=rows, messages=messages, events=build_events(index))
                )
            except FlyballError:
                failed += 1
        return failed

    assert run_in_threads([lambda n=n: work(n) for n in range(runs)]) == [steps // 4] * runs
    kept = [index for index in range(steps) if index % 4 != 3]
    for n in range(runs):
        assert [message.content for message in fixture.store.transcript.read(f"s{n}")] == [f"{n}.{p}" for p in kept]
        assert [row.n for row in fixture.store.journal.read(f"r{n}")] == [p for index in kept for p in (index, index)]
        assert fixture.store.runs.events(f"r{n}") == build_events(*kept)


def _build_step(guard: Guard, run_id: str = "r") -> Step:
    return Step(
        run_id=run_id,
        guard=guard,
        start=Start(at=1.0, session=guard.session),
        rows=[Row(0, Kind.RUN), Row(1, Kind.ANSWER)],
        messages=build_messages("one", "two"),
        state={"a": 1},
        events=build_events(0, 1),
        finish=RunFinish(at=2.0, stop="completed", record={"text": "x"}),
    )


def _is_empty(fixture: StoreFixture, session: str = "s") -> bool:
    store = fixture.store
    lists = (store.runs.list(Query(children=True)), store.transcript.sessions(), store.transcript.read(session))
    return not any(lists) and not store.journal.read("r") and not store.runs.events("r") and not store.state.get("s")
