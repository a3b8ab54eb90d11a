"""What is heard of runs at a service."""

from typing import Any

import pytest

from flyball.event import Event, RunEnded
from flyball.serve.remote_run import RemoteEvents


def told(kind: str, run_id: str, above: str | None = None, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"event": kind, "seq": 4, "time": "2031-01-31T12:00:00+00:00", "at": 1.0, "turn": 2}
    ids: dict[str, Any] = {"run_id": run_id, "parent_run_id": above, "session_id": None, "metadata": {}}
    started: dict[str, Any] = {"limits": {}, "agent": "far"} if kind == "run_started" else {}
    ended: dict[str, Any] = {"stop": "completed", "stopped_by": None, "flags": [], "turns": 1, "requests": 1}
    return {**row, **ids, **started, **(ended | {"budgets": {}} if kind == "run_ended" else {}), **more}


def heard(*rows: dict[str, Any]) -> list[Event]:
    events: list[Event] = []
    hearing = RemoteEvents("top.call-0", "top", events.append)
    for row in rows:
        hearing.receive_event(row)
    hearing.close("cancelled")
    return events


def names(events: list[Event]) -> list[tuple[str, str, str | None]]:
    return [(event.kind, event.header.run_id, event.header.parent_run_id) for event in events]


def test_the_run_that_was_asked_for_stands_below_ours_and_others_below_it() -> None:
    rows = [told("run_started", "a", "whatever"), told("run_started", "a.0", "a"), told("turn_started", "a.0", "a")]
    assert names(heard(*rows, told("run_ended", "a.0", "a"), told("run_ended", "a"))) == [
        ("run_started", "a", "top.call-0"),
        ("run_started", "a.0", "a"),
        ("turn_started", "a.0", "a"),
        ("run_ended", "a.0", "a"),
        ("run_ended", "a", "top.call-0"),
    ]


def test_all_events_of_a_run_share_one_header_as_those_of_runs_here_do() -> None:
    events = heard(told("run_started", "a"), told("turn_started", "a"), told("run_ended", "a"))
    assert len({id(event.header) for event in events}) == 1


def test_metadata_of_a_remote_run_are_dropped_if_they_are_too_large() -> None:
    small, large = {"a": "x"}, {"a": "x" * 20_000}
    rows = [told("run_started", "a", metadata=small), told("run_started", "a.0", "a", metadata=large)]
    assert [event.header.metadata for event in heard(*rows)[:2]] == [small, None]


@pytest.mark.parametrize("run_id", ["top", "top.call-0", "top.call-1", "top.call-0.call-7"])
@pytest.mark.parametrize("kind", ["run_started", "turn_started", "run_ended"])
def test_nobody_elsewhere_speaks_for_a_run_here(kind: str, run_id: str) -> None:
    assert heard(told(kind, run_id)) == []
    assert names(heard(told("run_started", "a"), told(kind, run_id, "a"), told("run_ended", "a"))) == [
        ("run_started", "a", "top.call-0"),
        ("run_ended", "a", "top.call-0"),
    ]


@pytest.mark.parametrize(
    "row",
    [
        told("turn_started", "b"), told("run_started", "b", "top"), told("run_started", "b"), told("run_started", "a"),
        told("run_ended", "b", "a"), told("run_started", "b", "c"), {"event": "a_later_event"}, {},
        told("run_started", "b", "a", time="0001-01-01T00:00:00"), told("run_started", "b", "a", limits=3),
    ],
)  # fmt: skip
def test_what_belongs_to_no_run_that_has_begun_there_is_passed_over(row: dict[str, Any]) -> None:
    events = heard(
        told("run_started", "a"), row, told("run_ended", "a"), told("turn_started", "a"), told("run_ended", "a")
    )
    assert [event.kind for event in events] == ["run_started", "run_ended"]


def test_a_run_whose_end_was_not_heard_is_ended_as_the_request_was_and_those_below_it_first() -> None:
    piece = told("delta", "b", "a", seq=-4, text="he")
    events = heard(
        told("run_started", "a"), told("run_started", "b", "a"), told("turn_started", "b", "a", seq=9), piece
    )
    ends = [event for event in events if isinstance(event, RunEnded)]
    assert [(end.header.run_id, end.stop, end.seq, end.turn) for end in ends] == [
        ("b", "cancelled", 10, 2),
        ("a", "cancelled", 5, 2),
    ]


def test_a_service_with_runs_without_end_is_not_listened_to_for_ever() -> None:
    events = heard(told("run_started", "a"), *(told("run_started", f"b{n}", "a") for n in range(2_000)))
    assert len(events) == 2_000, "one thousand that began, and that ended"
