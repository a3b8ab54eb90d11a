import json
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from flyball._internal.path import has_equal_value, has_value, is_path


class Color(Enum):
    RED = "red"
    NONE = ""


class Level(IntEnum):
    HIGH = 3


class Action(StrEnum):
    COMMENT = "comment"


@dataclass
class Comment:
    html_url: str | None
    number: int = 0

    def copy(self) -> None: ...


class Pull(BaseModel):
    html_url: str
    comment: dict[str, Any] | None = None


class Point(NamedTuple):
    x: int
    label: str


class Broken:
    url = "class"

    @property
    def worse(self) -> str:
        raise RuntimeError

    def __getattr__(self, name: str) -> object:
        raise ValueError(name)


class Slotted:
    __slots__ = ("url",)

    def __init__(self, url: str) -> None:
        self.url = url


THERE: list[tuple[object, str]] = [
    ({"a": 1}, "a"),
    ({"a": 0}, "a"),
    ({"a": False}, "a"),
    ({"a": 0.0}, "a"),
    ({"a": " "}, "a"),
    ({"a": [0]}, "a"),
    ({"a": {"b": {"c": "x"}}}, "a.b.c"),
    ({"a.b": 1}, "a.b"),
    ({"a.b": {"c.d": 1}}, "a.b.c.d"),
    ({"a": {"b": None}, "a.b": 1}, "a.b"),
    ({"a.b": None, "a": {"b": 1}}, "a.b"),
    ({3: "x"}, "3"),
    ({Action.COMMENT: "x"}, "comment"),
    ({Color.RED: "x"}, "red"),
    ([{"url": "x"}], "0.url"),
    ({"files": [{}, {"url": "x"}]}, "files.1.url"),
    (("a", "b"), "1"),
    (Comment("x"), "html_url"),
    (Comment("x"), "number"),
    (Pull(html_url="x", comment={"url": "y"}), "html_url"),
    (Pull(html_url="x", comment={"url": "y"}), "comment.url"),
    ([Pull(html_url="x")], "0.html_url"),
    (Slotted("x"), "url"),
    (Broken(), "url"),
    (Point(0, "here"), "x"),
    (Point(0, "here"), "1"),
    ({"color": Color.RED}, "color"),
    ('{"comment": {"html_url": "x"}}', "comment.html_url"),
    ('[{"a": 0}]', "0.a"),
    ({"text": '{"url": "x"}'}, "text.url"),
    ({"text": "plain"}, "text"),
    ({"at": datetime(2024, 1, 1)}, "at"),
]

NOT_THERE: list[tuple[object, str]] = [
    ({}, "a"),
    ({"a": None}, "a"),
    ({"a": ""}, "a"),
    ({"a": []}, "a"),
    ({"a": {}}, "a"),
    ({"a": ()}, "a"),
    ({"a": set[int]()}, "a"),
    ({"a": frozenset[int]()}, "a"),
    ({"a": b""}, "a"),
    ({"a": Color.NONE}, "a"),
    ({"a": {"b": ""}}, "a.b"),
    ({"a": "x"}, "a.b"),
    ({"A": 1}, "a"),
    ({"a": 1}, "a.real"),
    ({"a": True}, "a.real"),
    ({"a": 1}, "items"),
    ([1], "1"),
    ([1], "-1"),
    ([1], "x"),
    ([1], "append"),
    ([1], "\u0660"),
    ([1], "9" * 5000),
    ("text", "title"),
    ("text", "0"),
    ('"{\\"a\\": 1}"', "a"),
    ("{not json", "a"),
    ("[" * 100_000, "0"),
    ("3", "real"),
    (b'{"a": 1}', "a"),
    ({1, 2}, "0"),
    (None, "a"),
    (3, "real"),
    (Comment(None), "html_url"),
    (Comment(""), "html_url"),
    (Comment("x"), "copy"),
    (Comment("x"), "__class__"),
    (Comment("x"), "__dict__"),
    (Comment, "number"),
    (Pull(html_url=""), "html_url"),
    (Pull(html_url="x"), "model_dump"),
    (Pull(html_url="x"), "title"),
    (Point(0, ""), "label"),
    (Point(0, "x"), "count"),
    (Broken(), "worse"),
    (Broken(), "anything"),
]


@pytest.mark.parametrize(("value", "path"), THERE, ids=range(len(THERE)))
def test_something_stands_at_a_path(value: object, path: str) -> None:
    assert has_value(value, path)


@pytest.mark.parametrize(("value", "path"), NOT_THERE, ids=range(len(NOT_THERE)))
def test_nothing_stands_at_a_path(value: object, path: str) -> None:
    assert not has_value(value, path)


EQUAL: list[tuple[object, object]] = [
    (None, None),
    (True, True),
    (1, 1.0),
    (2.5, Decimal("2.5")),
    ("2.50", Decimal("2.50")),
    ("x", "x"),
    ("red", Color.RED),
    (3, Level.HIGH),
    ("comment", Action.COMMENT),
    ([1, "a"], (1.0, "a")),
    ([1, 2], {2, 1}),
    ([], ()),
    ({"a": {"b": [1]}}, {"a": {"b": (1,)}}),
    ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
    ({"html_url": "x", "number": 0}, Comment("x")),
    ({"html_url": "x", "comment": None}, Pull(html_url="x")),
    ({"3": 1}, {3: 1}),
    ("2024-05-01", date(2024, 5, 1)),
    ("2024-05-01T00:00:00Z", datetime(2024, 5, 1, tzinfo=UTC)),
    ("12345678-1234-5678-1234-567812345678", uuid.UUID("12345678123456781234567812345678")),
    ("a/b", PurePosixPath("a/b")),
    ("x", b"x"),
]

DIFFERENT: list[tuple[object, object]] = [
    (1, True),
    (True, 1),
    (0, False),
    (0, None),
    (None, 0),
    (None, ""),
    (False, None),
    (1, "1"),
    ("1", 1),
    ("1.0", 1.0),
    ("True", True),
    ("None", None),
    ("x", "X"),
    ("red", "Color.RED"),
    ([1, 2], [2, 1]),
    ([1, 2], [1]),
    ([1, 1], {1, 2}),
    (["a"], "a"),
    ([97], b"a"),
    ("['a']", ["a"]),
    ("{}", {}),
    ([True], [1]),
    ({"a": 1}, {"a": True}),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": 1, "b": 2}, {"a": 1}),
    ({"html_url": "x"}, Comment("x")),
    ({"a": 1}, [1]),
    ({}, object()),
    ("2024-05-02", date(2024, 5, 1)),
    ("soon", date(2024, 5, 1)),
    ("x", b"\xff"),
]


@pytest.mark.parametrize(("wanted", "found"), EQUAL)
def test_values_that_are_equal_in_json_are_equal(wanted: object, found: object) -> None:
    assert has_equal_value({"p": found}, "p", wanted)


@pytest.mark.parametrize(("wanted", "found"), DIFFERENT)
def test_values_that_differ_in_json_differ(wanted: object, found: object) -> None:
    assert not has_equal_value({"p": found}, "p", wanted)


def test_a_wanted_null_must_be_there() -> None:
    assert has_equal_value({"draft": None}, "draft", None)
    assert not has_equal_value({}, "draft", None)
    assert not has_equal_value(Slotted("x"), "draft", None)


def test_what_is_compared_may_lie_deep() -> None:
    assert has_equal_value({"issue": {"labels": ["bug", "ui"]}}, "issue.labels.1", "ui")
    assert has_equal_value({"issue": '{"state": "open"}'}, "issue.state", "open")
    assert not has_equal_value({"issue": {"labels": []}}, "issue.labels.0", "bug")


@pytest.mark.parametrize("path", ["a", "a.b", "0", "files.0.url", "with space", "ä-b_c"])
def test_a_path_is_names_with_dots_between(path: str) -> None:
    assert is_path(path)


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", " a", "a. b", "a\n"])
def test_a_path_has_no_empty_part_and_no_space_around_one(path: str) -> None:
    assert not is_path(path)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_equality_is_that_of_json(one: Any, other: Any) -> None:
    def told(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    def numbers_as_floats(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) + 0.0
        if isinstance(value, list):
            return [numbers_as_floats(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, dict):
            return {key: numbers_as_floats(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        return value

    assert has_equal_value({"p": one}, "p", one)
    equal = told(numbers_as_floats(one)) == told(numbers_as_floats(other))
    assert has_equal_value({"p": other}, "p", one) == equal


@given(JSON, st.text(alphabet="ab0.1"))
def test_no_value_and_no_path_raises(value: Any, path: str) -> None:
    assert has_value(value, path) in (True, False)
