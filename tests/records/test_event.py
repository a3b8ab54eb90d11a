import json
import typing
from pathlib import Path
from typing import Any

import pytest

from flyball import event
from flyball.event import Event, Header, event_schema, own_fields

ROOT = Path(__file__).parents[2]
HEADER = Header("r1", "s1", 1_700_000_000.0, {"job_id": 7}, "r0")
SAMPLES: dict[object, Any] = {str: "x", int: 3, float: 1.5, bool: True}


def sample(kind: type[Event]) -> Event:
    """An event of that kind, each of its own fields filled by its type."""
    hints = typing.get_type_hints(kind)
    values = [value_for(hints[field.name]) for field in own_fields(kind)]
    return kind(4, 2.0, 1, HEADER, *values)


def value_for(hint: Any) -> Any:
    if hint in SAMPLES:
        return SAMPLES[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return (value_for(arguments[0]),)
    if type(None) in arguments:
        return value_for(arguments[0])
    return {"a": 1}


@pytest.mark.parametrize("kind", event.event_types().values(), ids=list(event.event_types()))
def test_each_event_is_json_with_the_runs_own_header(kind: type[Event]) -> None:
    record = json.loads(json.dumps(sample(kind).to_dict()))
    assert record["event"] == kind.kind
    assert (record["seq"], record["at"], record["turn"]) == (4, 2.0, 1)
    assert (record["run_id"], record["session_id"], record["metadata"]) == ("r1", "s1", {"job_id": 7})
    assert record["parent_run_id"] == "r0"
    assert record["time"] == "2023-11-14T22:13:22+00:00"
    assert {field.name for field in own_fields(kind)} <= set(record)


def test_every_started_has_its_ended() -> None:
    names = set(event.event_types())
    assert {name.replace("_started", "_ended") for name in names if name.endswith("_started")} <= names
    assert {"model_requested", "model_replied", "asked_person", "person_answered"} <= names


def test_events_are_slotted_so_that_thousands_are_cheap() -> None:
    assert all(not hasattr(sample(kind), "__dict__") for kind in event.event_types().values())


def test_no_own_field_hides_one_of_the_header() -> None:
    taken = {"event", "seq", "time", "at", "turn", "run_id", "parent_run_id", "session_id", "metadata"}
    assert all(taken.isdisjoint(field.name for field in own_fields(kind)) for kind in event.event_types().values())


def test_the_published_schema_is_that_of_the_code() -> None:
    published = json.loads((ROOT / "docs" / "event.schema.json").read_text())
    assert published == event_schema(), "write it anew: python -m flyball.event > docs/event.schema.json"


@pytest.mark.parametrize("kind", event.event_types().values(), ids=list(event.event_types()))
def test_each_event_keeps_to_the_schema(kind: type[Event]) -> None:
    [shape] = [one for one in event_schema()["oneOf"] if one["properties"]["event"]["const"] == kind.kind]
    record = sample(kind).to_dict()
    assert set(record) == set(shape["required"]) == set(shape["properties"])
    assert shape["additionalProperties"] is False
    names: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}
    names |= {list: "array", type(None): "null"}
    for key, value in record.items():
        allowed = shape["properties"][key].get("type", "string")
        assert names[type(value)] in ([allowed] if isinstance(allowed, str) else allowed)
