"""Lines from events: in the order in which things began, with amounts in their units, whatever the events lack."""

from collections.abc import Callable
from typing import Any

import pytest

from flyball._internal.json_reader import JsonReader
from flyball._internal.text import to_one_line
from flyball.display.timeline import (
    RowKind,
    Severity,
    TimelineReader,
    TimelineRow,
    build_rows,
    format_call,
)
from flyball.event import Event, event_types


def told(event: str, at: float = 0.0, **fields: Any) -> JsonReader:
    return JsonReader({"event": event, "at": at, "turn": 1, **fields})


def line(event: str, **fields: Any) -> TimelineRow:
    row = TimelineReader().read(told(event, **fields))
    assert row is not None
    return row


def test_calls_stand_where_they_began_though_the_second_ended_first() -> None:
    events = [
        told("tool_started", 1.0, call_id="a", tool="slow", arguments={}),
        told("tool_started", 2.0, call_id="b", tool="fast", arguments={"n": 1}),
        told("tool_ended", 3.0, call_id="b", tool="fast", status="done", seconds=1.0),
        told("tool_ended", 5.0, call_id="a", tool="slow", status="timed_out", seconds=4.0),
    ]
    slow, fast = build_rows(events, {}, {})
    assert (slow.subject, slow.outcome, slow.at, slow.seconds, slow.severity) == (
        "slow()",
        "timed out",
        1.0,
        4.0,
        Severity.BAD,
    )
    assert (fast.subject, fast.outcome, fast.at, fast.seconds, fast.severity) == (
        "fast(n=1)",
        "done",
        2.0,
        1.0,
        Severity.GOOD,
    )


def test_a_call_that_was_never_made_has_the_arguments_that_the_model_wrote() -> None:
    denied = told("tool_ended", call_id="a", tool="look", status="denied", reason="budget")
    [bare], [known] = (
        build_rows([denied], {}, {}),
        build_rows([denied], {"a": {"path": "x"}}, {"a": JsonReader({"message": "No."})}),
    )
    assert bare.text == "look: denied (budget)"
    assert known.text == "look(path='x'): denied (budget): No."


EVENTS: list[tuple[str, dict[str, Any], RowKind, list[str]]] = [
    ("extended", {"budget": "usd", "amount": 500_000_000, "by": "Ada"}, RowKind.EXTENDED, ["usd", "$0.50", "Ada"]),
    ("extended", {"budget": "turns", "amount": 1_000, "by": "Ada"}, RowKind.EXTENDED, ["turns", "1,000", "Ada"]),
    (
        "extended",
        {"budget": "usd", "amount": 10**8, "by": "Ada", "maximum": 10**9},
        RowKind.EXTENDED,
        ["maximum", "$1.00"],
    ),
    ("postponed", {"seconds": 30.0, "reason": "asked"}, RowKind.EXTENDED, ["30", "asked"]),
    ("budget_warned", {"budget": "turns", "used": 7, "ceiling": 10}, RowKind.WARNED, ["turns", "7", "10"]),
    ("elided", {"messages": 4, "tokens": 1_200}, RowKind.ELIDED, ["4", "1,200"]),
    ("repeated", {"tool": "look", "times": 3, "action": "noticed"}, RowKind.REPEATS, ["look", "3", "noticed"]),
    ("late_result_dropped", {"tool": "look"}, RowKind.LATE, ["look"]),
    ("rule_failed", {"rule": "r", "reason": "no\nway"}, RowKind.RULE, ["r ", "no way"]),
    ("rule_emitted", {"rule": "r", "name": "n", "data": {"a": 1}}, RowKind.RULE, ["r ", "n: a=1"]),
    ("rule_emitted", {"rule": "r", "name": "n", "data": {}}, RowKind.RULE, ["r ", " n"]),
    ("person_answered", {"approved": None, "text": ""}, RowKind.ANSWERED, []),
    ("person_answered", {"approved": True, "text": "go"}, RowKind.ANSWERED, ["yes", "go"]),
    ("steered", {"text": "Only\nthe tests."}, RowKind.STEERED, ["Only the tests."]),
    ("model_replied", {"purpose": "grace", "finish": "cut"}, RowKind.MODEL, []),
    ("model_replied", {"purpose": "turn", "finish": "odd"}, RowKind.MODEL, ["odd"]),
]


@pytest.mark.parametrize(("event", "fields", "kind", "facts"), EVENTS)
def test_an_event_is_told_with_its_kind_and_facts(
    event: str, fields: dict[str, Any], kind: RowKind, facts: list[str]
) -> None:
    row = line(event, **fields)
    assert row.kind is kind
    assert [fact for fact in facts if fact not in row.text] == []


def test_texts_of_events_are_as_stored(snapshot: Callable[..., None]) -> None:
    snapshot("\n".join(f"{event}: {line(event, **fields).text}" for event, fields, _, _ in EVENTS))


@pytest.mark.parametrize("event", event_types())
def test_every_kind_of_event_can_be_read_even_if_it_says_nothing(event: str) -> None:
    TimelineReader().read(JsonReader({"event": event}))
    TimelineReader().read(
        JsonReader({"event": event, "at": "soon", "turn": [], "text": 5, "arguments": 7, "data": None})
    )
    assert issubclass(event_types()[event], Event)


def test_what_is_long_is_cut_into_one_line() -> None:
    assert to_one_line("a\n b\t c") == "a b c"
    assert len(to_one_line("word " * 10_000)) <= 401
    assert len(format_call("look", {"a": "x" * 1_000, "b": "y" * 1_000, "c": 3})) <= 401
    assert format_call("look", "no mapping") == "look()"
