"""Events that are encoded once: a store reads the same as `Event.to_dict` writes."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.event import Event, Header, ToolStarted, TurnEnded, own_fields
from flyball.store import Step
from flyball.store.encoded_events import EncodedEvents, EventEncoder
from flyball.store.encoded_step import EncodedStep
from flyball.testing import ScriptedModel, call, say


@tool
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


def encode(*events: Event) -> EncodedEvents:
    rows = [
        (type(one), one.at, one.turn, [getattr(one, field.name) for field in own_fields(type(one))]) for one in events
    ]
    return EventEncoder(events[0].header).encode(events[0].seq, rows)


def read_back(event: Event) -> Any:
    return json.loads(encode(event).text)[0]


def test_every_event_of_a_run_is_encoded_as_its_dict() -> None:
    model = ScriptedModel(*[call("look", n=n) for n in range(4)], grace=say("Over."))
    agent = Agent(model=model, tools=[look], limits=Limits(turns=3), metadata={"job": {"ü": (1, None)}}, settings={})
    events = list(agent.run("go", session="talk").events)
    encoded = encode(*events)
    expected = [event.to_dict() for event in events]
    assert json.loads(encoded.text) == expected
    assert (list(encoded), encoded[0], len(encoded)) == (expected, expected[0], len(expected))
    assert encoded[1:3] == expected[1:3]


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": "\ud800"},
        {"a": math.inf, "b": math.nan},
        {"a": {1: {2}}, "b": b"x", "c": object},
        {"at": datetime(2031, 1, 2, tzinfo=UTC)},
        {"deep": [[[{"x": (1, 2)}]]]},
        {},
    ],
    ids=repr,
)
def test_odd_values_are_encoded_as_in_the_dict(arguments: dict[str, Any]) -> None:
    event = ToolStarted(3, 0.25, 1, Header("r", "s", 5.0, {"x": arguments}), "c", "look", arguments)
    assert read_back(event) == event.to_dict()


@pytest.mark.parametrize("at", [0.0, 0.25, 0.1234565, 0.9999994, 0.9999997, 1e-7, 3.0, 59.5, 86_400.125, 1e-3])
@pytest.mark.parametrize("started_at", [0.0, 1.7e9, 1_700_000_000.999999, 1_795_027_697.929269])
def test_times_are_written_as_in_the_dict(started_at: float, at: float) -> None:
    header = Header("r", "s", started_at)
    events = [TurnEnded(0, at / 2, 1, header), TurnEnded(1, at, 1, header), TurnEnded(2, at + 0.5, 1, header)]
    assert json.loads(encode(*events).text) == [event.to_dict() for event in events]


def test_a_step_takes_encoded_events_without_decoding_them() -> None:
    header = Header("r", "s", 5.0)
    events = encode(*[ToolStarted(n, 0.5, 1, header, f"c{n}", "look", {}) for n in (4, 5)])
    encoded = EncodedStep.of(Step(run_id="r", events=events))
    assert (encoded.events, list(encoded.seqs)) == (events.text, [4, 5])
