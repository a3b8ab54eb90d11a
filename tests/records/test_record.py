"""Results from their records."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import Agent, ConfigError, Limits, Result, Stop, TokenPrice, Usage, tool
from flyball.budget.snapshot import BudgetSnapshot
from flyball.record import from_record, parse_event
from flyball.testing import Line, ScriptedModel, assert_honest, call, fail, say, together
from flyball.unit import Unit


@tool(poll=True)
def look() -> str:
    """Look."""
    return "a ball"


@tool
def broken() -> str:
    """Fail."""
    raise ValueError("no")


@tool(approve=True)
def pay() -> str:
    """Pay."""
    return "paid"


def agent(*lines: Line, **options: Any) -> Agent:
    model = ScriptedModel(*lines, grace=say("This is what I have."), price=TokenPrice(input=1, output=2))
    return Agent(model=model, tools=[look, broken, pay], metadata={"job": "7"}, **options)


def told(result: Result) -> dict[str, Any]:
    """The record; the time of an event may be a microsecond off, as it is told in seconds since the run began."""
    record = result.to_dict()
    for below in (record, *record["children"]):
        for event in below["events"]:
            del event["time"]
    return record


def runs() -> dict[str, Result]:
    below = agent(call("look"), say("It is a ball."), name="finder")
    delegate = call("delegate", tasks=[{"child": "finder", "goal": "Find it."}])
    return {
        "completed": agent(together(call("look"), call("broken"), call("nothing")), say("Done.")).run("Go."),
        "budget": agent(*[call("look")] * 3, limits=Limits(turns=2, tokens=900, usd=0.5)).run("Go."),
        "failed": agent(fail(ValueError("the model is gone"))).run("Go."),
        "paused": agent(call("pay")).run("Go."),
        "parent": agent(delegate, say("Found."), children=[below]).run("Go."),
    }


@pytest.mark.parametrize("name", ["completed", "budget", "failed", "paused", "parent"])
def test_what_a_record_tells_is_read_back(name: str) -> None:
    result = runs()[name]
    read = from_record(result.to_dict())
    assert told(read) == told(result)
    assert_honest(read)
    assert (read.cost, read.usage_with_children) == (result.cost, result.usage_with_children)
    assert read.cost_with_children == result.cost_with_children


def test_keys_that_nobody_knows_are_passed_over() -> None:
    record = Result(stop=Stop.COMPLETED, text="42", usage=Usage(3, 4)).to_dict()
    record["budgets"] = {"turns": runs()["budget"].budgets["turns"].to_dict() | {"colour": "red"}}
    read = from_record(record | {"a_later_invention": [1]})
    assert (read.text, read.usage.total, read.budgets["turns"].used) == ("42", 7, 2)


def test_a_record_of_nearly_nothing_is_a_result_of_nearly_nothing() -> None:
    assert from_record({"stop": "completed"}) == Result(stop=Stop.COMPLETED)


@pytest.mark.parametrize(
    ("key", "nonsense"),
    [
        ("stop", None), ("stop", "bored"), ("text", 3), ("flags", "x"), ("flags", [3]), ("turns", -1), ("turns", True),
        ("requests", 1.5), ("usage", [1]), ("usage", {"input": -3}), ("cost_usd", {"m": -1}), ("cost_usd", {"m": "1"}),
        ("cost_usd", {"m": float("nan")}), ("budgets", {"turns": {}}), ("budgets", {"turns": 3}), ("children", {}),
        ("children", [{"stop": "bored"}]), ("children", [3]), ("seconds", -1), ("seconds", float("nan")),
        ("error", "bad"), ("metadata", []), ("messages", 1), ("events", [1]), ("run_id", 4), ("turns", 2**63),
        ("usage", {"input": 2**63}), ("usage", {"output": 10**400}), ("cost_usd", {"m": 1e40}),
        ("budgets", {"turns": BudgetSnapshot("turns", 3, 10**400).to_dict()}),
        ("budgets", {"seconds": BudgetSnapshot("seconds", 10**400, 3, unit=Unit.SECONDS).to_dict()}),
    ],
)  # fmt: skip
def test_what_counts_and_makes_no_sense_is_refused(key: str, nonsense: object) -> None:
    with pytest.raises(ConfigError, match=key.removesuffix("s")):
        from_record(Result(stop=Stop.COMPLETED).to_dict() | {key: nonsense})


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        from_record(["stop"])
    assert caught.value.found == ["stop"]


def test_runs_below_runs_without_end_are_refused() -> None:
    record: dict[str, Any] = {"stop": "completed"}
    for _ in range(30):
        record = {"stop": "completed", "children": [record]}
    with pytest.raises(ConfigError, match=r"record.*20.*10,000"):
        from_record(record)
    with pytest.raises(ConfigError, match=r"record.*20.*10,000"):
        from_record({"stop": "completed", "children": [{"stop": "completed"}] * 10_000})


@pytest.mark.parametrize("key", ["messages", "tool_execution_results", "last_tool_calls", "questions", "events"])
def test_what_is_only_told_and_cannot_be_read_is_left_out(key: str) -> None:
    record = runs()["completed"].to_dict()
    record[key] = [{"event": "a_later_event", "status": "new", "schema": "another"}, *record[key]]
    whole = from_record(record)
    assert whole.text == "Done."
    assert len(whole.to_dict()[key]) == len(record[key]) - 1


@pytest.mark.parametrize(
    "told",
    [
        {"at": 1e14}, {"at": float("inf")}, {"at": None}, {"seq": 10**400}, {"metadata": 3}, {"tools": None},
        {"tools": [3]}, {"model": 5}, {"attempt": "x"}, {"attempt": -1}, {"timeout_s": "soon"},
    ],
)  # fmt: skip
def test_an_event_with_a_field_of_nonsense_is_refused(told: dict[str, Any]) -> None:
    [row] = [row for row in runs()["failed"].to_dict()["events"] if row["event"] == "model_requested"]
    assert parse_event(row).kind == "model_requested"
    with pytest.raises(ValueError, match="event"):
        parse_event(row | told)


@cache
def record_and_places() -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    record = json.loads(json.dumps(runs()["parent"].to_dict()))
    return record, list(places(record))


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    rows: dict[Any, Any] = {}
    if isinstance(value, dict):
        rows = cast("dict[Any, Any]", value)
    elif isinstance(value, list):
        rows = dict(enumerate(cast("list[Any]", value)))
    for key, below in rows.items():
        yield (*place, key)
        yield from places(below, (*place, key))


NONSENSE: list[Any] = [
    10**400,
    float("inf"),
    float("nan"),
    -1,
    1e14,
    None,
    True,
    "x",
    "\ud800",
    [],
    [[]],
    {},
    {"a": {}},
]


@given(st.data())
def test_whatever_a_record_says_it_is_refused_or_can_be_told_again(data: st.DataObject) -> None:
    record, known = record_and_places()
    *way, last = data.draw(st.sampled_from(known))
    below = record = copy.deepcopy(record)
    for key in way:
        below = below[key]
    below[last] = data.draw(st.sampled_from(NONSENSE))
    try:
        result = from_record(record)
    except ConfigError:
        return
    assert json.dumps(result.to_dict())
    assert result.explain()
