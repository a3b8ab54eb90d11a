"""What the code writes comes back as it was, of the same classes."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball import Agent, Limits, tool
from flyball.budget.run_budget import Refusal
from flyball.budget.snapshot import BudgetSnapshot, Extension
from flyball.budget.usage import Usage
from flyball.errors import StoreError
from flyball.loop.effects import Cancel, Extend, Late, LeaseLost, Stalled, Steer, TimeUp
from flyball.message import Message, MessageType, Role
from flyball.outcome import Artifact, Cancelled, Denied, Failure, Reason, Success, Timeout
from flyball.person import About, Question, Verdict
from flyball.request import Call, FailureKind, Finish, History, ModelFailure, Reply
from flyball.result import Result, Stop
from flyball.store import Codec
from flyball.testing import ScriptedModel, call, say
from flyball.unit import Unit

LETTERS = (Cancel, Steer, Extend, TimeUp, LeaseLost, Late, Stalled)
CODE = Codec(*LETTERS)

text = st.text(max_size=8)
count = st.integers(0, 10**12)
number = st.floats(allow_nan=False)
hashable = st.none() | st.booleans() | st.integers() | text | st.tuples(text, st.integers())
scalar = (
    st.none() | st.booleans() | st.integers() | number | st.text(st.characters(), max_size=8) | st.binary(max_size=8)
)
plain = st.recursive(
    scalar,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.frozensets(hashable, max_size=3)
        | st.sets(hashable, max_size=3)
        | st.dictionaries(st.sampled_from(["$", "v", "a", "text"]) | hashable, inner, max_size=3)
    ),
    max_leaves=8,
)
named = st.dictionaries(text, plain, max_size=2)
usage = st.builds(Usage, count, count)
calls = st.builds(Call, text, text, text | named)
ended: dict[str, Any] = {
    "call_id": text,
    "tool": text,
    "seconds": number,
    "artifact": st.none() | st.builds(Artifact, text, count),
    "note": text,
    "same_as": st.none() | text,
}
message = st.builds(
    Message, text, count, number, st.sampled_from(MessageType), st.sampled_from(Role), text, st.none() | named
)
snapshot = st.builds(
    BudgetSnapshot, text, st.none() | count, count, extensions=st.tuples(st.builds(Extension, count, text)),
    unit=st.sampled_from(Unit),
)  # fmt: skip


def outcomes(children: st.SearchStrategy[tuple[Result, ...]]) -> st.SearchStrategy[Any]:
    own = {**ended, "children": children}
    return (
        st.builds(Success, content=text, value=plain, changes=named, **own)
        | st.builds(Failure, kind=text, error=text, **own)
        | st.builds(Timeout, cap_s=number, hung=st.booleans(), **own)
        | st.builds(Denied, reason=st.sampled_from(Reason), message=text, **own)
        | st.builds(Cancelled, hung=st.booleans(), **own)
    )


def results(children: st.SearchStrategy[tuple[Result, ...]]) -> st.SearchStrategy[Result]:
    return st.builds(
        Result,
        stop=st.sampled_from(Stop),
        text=text,
        output=plain,
        messages=st.lists(message, max_size=1),
        tool_results=st.lists(outcomes(children), max_size=1),
        usage=usage,
        budgets=st.dictionaries(text, snapshot, max_size=1),
        sensitive=st.dictionaries(text, st.frozensets(text, max_size=2), max_size=1),
        children=children,
        metadata=named,
    )


nobody = st.just(())
families = st.tuples(results(st.tuples(results(nobody))))
reply = st.builds(Reply, text, st.tuples(calls), st.none() | usage, st.sampled_from(Finish), st.none() | text)
failure = st.builds(ModelFailure, st.sampled_from(FailureKind), text, text, text, st.none() | number, st.booleans())
person = st.builds(Verdict, st.none() | st.booleans(), text, st.none() | named, st.none() | number)
question = st.builds(Question, text, text, st.sampled_from(About), st.none() | text, named)
letter = (
    st.builds(Cancel, text)
    | st.builds(Steer, text)
    | st.builds(Extend, st.dictionaries(text, count, max_size=1), number)
    | st.builds(Late, text, text)
    | st.builds(Stalled, number)
    | st.just(TimeUp())
    | st.just(LeaseLost())
)
refusal = st.builds(Refusal, text, text, text)
values = plain | reply | failure | outcomes(nobody | families) | person | question | refusal | letter | message


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same classes all the way down."""
    if type(one) is not type(other):
        return False
    if is_dataclass(one) and not isinstance(one, type):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, dict):
        pairs = zip(cast("dict[Any, Any]", one).items(), other.items(), strict=False)
        return len(cast("dict[Any, Any]", one)) == len(other) and all(same(mine, yours) for mine, yours in pairs)
    if isinstance(one, list | tuple):
        items = cast("list[Any]", one)
        return len(items) == len(other) and all(map(same, items, other))
    return one == other


@settings(max_examples=150, deadline=None)
@given(values, st.lists(letter, max_size=2))
def test_whatever_a_journal_holds_comes_back_as_it_was(value: Any, signals: list[Any]) -> None:
    written = CODE.dumps([value, 1.5, signals])
    written.encode("utf-8")
    json.loads(written, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert same(CODE.loads(written), [value, 1.5, signals])


@tool
def look(path: str) -> dict[str, Any]:
    """Look at a file."""
    return {"path": path, "lines": (1, 2)}


def test_the_outcomes_and_results_of_a_real_run_come_back() -> None:
    child = Agent(model=ScriptedModel(call("look", path="a"), say("seen")), tools=[look], name="reader")
    model = ScriptedModel(call("delegate", tasks=[{"child": "reader", "goal": "Look."}]), say("done"))
    result = Agent(model=model, children=[child], limits=Limits(turns=5)).run("Go.")
    (outcome,) = result.tool_results
    again = CODE.loads(CODE.dumps(outcome))
    assert (again.call_id, again.text, again.status) == (outcome.call_id, outcome.text, outcome.status)
    (one,), (other,) = outcome.children, again.children
    assert (other.text, other.stop, other.usage, other.cost) == (one.text, one.stop, one.usage, one.cost)
    assert dict(other.budgets) == dict(one.budgets)
    assert list(other.messages) == list(one.messages)
    assert list(other.tool_results) == list(one.tool_results)
    assert other.events == ()


def test_nan_comes_back_as_nan() -> None:
    assert math.isnan(CODE.loads(CODE.dumps(math.nan)))


def test_what_only_equals_a_default_comes_back_as_it_was() -> None:
    again = CODE.loads(CODE.dumps(Success(call_id="c", tool="t", content="", seconds=0, note="")))
    assert type(again.seconds) is int


class Colour(Enum):
    RED = object()


@dataclass
class Point:
    x: int
    at: Path


class Lazy(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return len(key)

    def __iter__(self) -> Any:
        return iter(["a", "$"])

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    ("value", "comes_back_as"),
    [
        (Point(1, Path("a")), {"x": 1, "at": "a"}),
        ({"point": Point(1, Path("$"))}, {"point": {"x": 1, "at": "$"}}),
        (Lazy(), {"a": 1, "$": 1}),
        (History([]), []),
        (Path("a/b"), "a/b"),
    ],
)
def test_what_is_not_known_comes_back_in_json_types(value: object, comes_back_as: object) -> None:
    assert CODE.loads(CODE.dumps(value)) == comes_back_as


def test_an_object_that_says_nothing_of_itself_is_kept_by_its_text() -> None:
    assert "object" in CODE.loads(CODE.dumps({"colour": Colour.RED}))["colour"]


def test_the_value_of_a_tool_that_contains_itself_loses_nothing_else() -> None:
    knot: list[Any] = [1]
    knot += [knot, knot]
    deep: Any = "bottom"
    for _ in range(5_000):
        deep = (deep,)
    for value in (knot, deep):
        outcome = Success(call_id="c", tool="t", content="text", value=value, changes={"a": (1,)})
        again = CODE.loads(CODE.dumps([outcome]))[0]
        assert (again.content, again.changes) == ("text", {"a": (1,)})
        assert CODE.loads(CODE.dumps(value))


def test_a_class_that_is_not_known_here_is_named() -> None:
    written = CODE.dumps(Steer("Faster."))
    with pytest.raises(StoreError, match="'Steer'"):
        Codec().loads(written)


@pytest.mark.parametrize("text", ["", "{", '{"$": "Reply", "colour": 1}', '{"$": "Stop", "v": "bored"}', '{"$": "int"}',
                                  '{"$": [1]}', '{"$": "Usage", "input": -1}'])  # fmt: skip
def test_what_nobody_can_have_written_is_a_clear_error(text: str) -> None:
    with pytest.raises(StoreError) as caught:
        CODE.loads(text)
    assert (caught.value.code, caught.value.where) == ("store_failed", "journal")


class Twin(StrEnum):
    A = "a"


Twin.__name__ = "Stop"


@pytest.mark.parametrize(("kind", "name"), [(Twin, "Stop"), (Path, "Path")])
def test_a_class_that_cannot_be_told_apart_or_written_is_refused(kind: type, name: str) -> None:
    with pytest.raises(StoreError, match=name):
        Codec(kind)
