import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import Unit
from flyball._internal.jsonable import to_jsonable


@dataclass
class Point:
    x: int
    y: object


class Broken:
    def __repr__(self) -> str:
        raise ZeroDivisionError


class BrokenMapping(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise ZeroDivisionError

    def __iter__(self) -> Iterator[str]:
        raise ZeroDivisionError

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (math.nan, None),
        (-math.inf, None),
        ("x", "x"),
        ("\ud800", "?"),
        (Unit.USD, "usd"),
        ((1, [2, {3}]), [1, [2, [3]]]),
        ({1: "a", Unit.USD: "b", (1, 2): "c"}, {"1": "a", "usd": "b", "(1, 2)": "c"}),
        (Point(1, Point(2, None)), {"x": 1, "y": {"x": 2, "y": None}}),
        (datetime(2030, 1, 2, tzinfo=UTC), "2030-01-02T00:00:00+00:00"),
        (date(2030, 1, 2), "2030-01-02"),
        (b"x", "b'x'"),
        (Point, repr(Point)),
    ],
)
def test_every_value_has_a_form_in_json(value: object, plain: object) -> None:
    assert to_jsonable(value) == plain


def test_what_refers_to_itself_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert json.dumps(to_jsonable(loop))


def test_a_tree_whose_nodes_know_their_parents_ends() -> None:
    root = Point(0, [])
    root.y = [Point(n, [root, root, root]) for n in range(4)]
    assert len(json.dumps(to_jsonable(root))) < 1_000


def test_what_is_shared_a_million_times_is_cut() -> None:
    shared: list[Any] = []
    for _ in range(30):
        shared = [shared, shared]
    assert len(json.dumps(to_jsonable(shared))) < 10_000_000


class Loud(str):
    def __str__(self) -> str:
        raise ZeroDivisionError


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    assert "Broken" in str(to_jsonable(Broken()))
    assert "int" in str(to_jsonable(10**5_000))


def test_odd_texts_and_keys_are_kept() -> None:
    assert to_jsonable(Loud("x")) == "x"
    assert to_jsonable({1: "a", "1": "b"}) == {"1": "a", "1'": "b"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("2.50"), "2.50"),
        (time(12, 30), "12:30:00"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (PurePosixPath("notes", "today.txt"), "notes/today.txt"),
        (PurePosixPath("\udcff"), "?"),
    ],
)
def test_what_has_a_text_of_its_own_is_written_so_that_it_can_be_read_back(value: object, text: str) -> None:
    assert to_jsonable([value]) == [text]


def test_a_mapping_that_fails_is_shown_by_its_text() -> None:
    assert isinstance(to_jsonable(BrokenMapping()), str)


values: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.dates()
    | st.builds(Broken),
    lambda inner: st.lists(inner) | st.dictionaries(st.integers() | st.text(), inner) | st.tuples(inner),
    max_leaves=12,
)


@given(values)
def test_anything_becomes_json(value: object) -> None:
    plain = to_jsonable(value)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_keys_that_become_the_same_stay_apart() -> None:
    halves = {chr(0xD800 + n): n + 1 for n in range(3)}
    assert to_jsonable({1: "a", "1": "b", "1'": "c", **halves}) == {
        "1": "a", "1'": "b", "1''": "c", "?": 1, "?'": 2, "?'2": 3,
    }  # fmt: skip
