"""A value inside a value, and whether it is the one that was wanted."""

from dataclasses import dataclass
from datetime import date
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from flyball._internal.jsonable import parse_json_value
from flyball._internal.path import has_equal_value, is_path
from flyball.errors import ConfigError


class Colour(Enum):
    RED = 1


class Verdict(StrEnum):
    OK = "ok"


@dataclass
class Point:
    x: int
    tag: Verdict = Verdict.OK


class Form(BaseModel):
    model_config = ConfigDict(extra="allow")
    at: Point
    tags: tuple[str, ...] = ()


class Odd:
    _hidden = 1

    @property
    def value(self) -> int:
        raise ZeroDivisionError


FORM = Form(at=Point(1), tags=("a", "b"))


@pytest.mark.parametrize(
    ("value", "path", "wanted"),
    [
        ({"a": {"b": 1}}, "a.b", 1),
        ({"a": 1}, "a", 1.0),
        ({"a": None}, "a", None),
        ({"a": [{"b": "x"}]}, "a.0.b", "x"),
        ({"a": '{"b": [1, {"c": true}]}'}, "a.b.1.c", True),
        ('{"a": 0}', "a", 0),
        ({"a": Colour.RED}, "a", 1),
        ({"a": Verdict.OK}, "a", "ok"),
        ({"a": Point(3)}, "a", {"x": 3, "tag": "ok"}),
        ({"a": FORM}, "a.at.x", 1),
        ({"a": FORM}, "a", {"at": {"x": 1, "tag": "ok"}, "tags": ["a", "b"]}),
        ({"a": (1, 2)}, "a", [1, 2]),
        ({"a": date(2024, 1, 2)}, "a", "2024-01-02"),
        ({"a": PurePosixPath("x/y")}, "a", "x/y"),
        ({"a": {}}, "a", {}),
    ],
)
def test_what_a_path_leads_to_is_compared_as_json(value: object, path: str, wanted: object) -> None:
    assert has_equal_value(value, path, wanted)


@pytest.mark.parametrize(
    ("value", "path", "wanted"),
    [
        ({"a": 1}, "a", True),
        ({"a": True}, "a", 1),
        ({"a": 0}, "a", False),
        ({"a": 0}, "a", None),
        ({}, "a", None),
        ({"a": None}, "a.b", None),
        ({"a": 1}, "a", "1"),
        ({"a": "1"}, "a", 1),
        ({"a": True}, "a", "True"),
        ({"a": [1]}, "a", "[1]"),
        ({"a": [1, 2]}, "a", [1]),
        ({"a": [1, 2]}, "a", [2, 1]),
        ({"a": "ab"}, "a", ["a", "b"]),
        ({"a": {"b": 1, "c": 2}}, "a", {"b": 1}),
        ({"a": Form.model_validate({"at": Point(1), "more": 1})}, "a", {"at": {"x": 1, "tag": "ok"}, "tags": []}),
        ({"a": Form}, "a", {}),
        ({"a": [1]}, "a.1", 1),
        ({"a": [1]}, "a.-1", 1),
        ({"a": [1]}, f"a.{'9' * 5000}", 1),
        ({"a": "no json"}, "a.b", 1),
        ({"a": "[" * 100_000}, "a.b", 1),
        ({"a": Odd()}, "a.value", 1),
        ({"a": Odd()}, "a._hidden", 1),
        ({"a": FORM}, "a.__class__.__name__", "Form"),
        ({"a": FORM}, "a.copy", None),
        ({"a": float("nan")}, "a", None),
    ],
)
def test_a_value_that_differs_is_not_the_wanted_one(value: object, path: str, wanted: object) -> None:
    assert not has_equal_value(value, path, wanted)


def test_a_path_is_names_with_one_dot_between_them() -> None:
    assert all(map(is_path, ["a", "a.b", "a.0.b c"]))
    assert not any(map(is_path, ["", ".", "a.", ".a", "a..b", "a. b"]))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_every_json_value_is_the_same_as_itself(value: Any) -> None:
    assert has_equal_value({"a": value}, "a", parse_json_value("here", value))
    assert not has_equal_value({"a": [value]}, "a", parse_json_value("here", value))


def test_what_json_has_no_word_for_cannot_be_wanted() -> None:
    endless: list[object] = []
    endless.append(endless)
    for value in (float("nan"), b"x", {1}, object(), endless):
        with pytest.raises(ConfigError) as caught:
            parse_json_value("here", value)
        assert caught.value.where.startswith("here")
