import math
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest

from flyball.errors import RuleError
from flyball.rules.view import MAX_DEPTH, MAX_INT, MAX_ITEMS, Lazy, Table, View, freeze, to_plain


class Colour(StrEnum):
    RED = "red"

    def __str__(self) -> str:
        raise AssertionError("code that came with the data was run")


class Size(IntEnum):
    SMALL = 1


class Loud(str):
    """Tells on whoever uses it."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("code that came with the data was run")

    __hash__ = str.__hash__
    __str__ = __repr__ = __len__ = __eq__  # pyright: ignore[reportAssignmentType]


class Liar:
    """Says that it is a dict, and runs code when asked."""

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise AssertionError("code that came with the data was run")


def problem(value: object, name: str = "x") -> str:
    with pytest.raises(RuleError) as caught:
        to_plain(View({"x": value})[name])
    return str(caught.value)


@pytest.mark.parametrize("value", [None, True, 0, -MAX_INT, MAX_INT, 0.5, math.inf, "", "text", [], [1, ["a", None]]])
def test_a_plain_value_passes_as_it_is(value: object) -> None:
    found = View({"x": value})["x"]
    assert (type(found), found) == (type(value), value)


def test_mappings_become_tables_and_sequences_lists() -> None:
    view = View({"x": MappingProxyType({"a": (1, [2, {"b": 3}])})})
    assert type(view["x"]) is Table
    assert to_plain(view["x"]) == {"a": [1, [2, {"b": 3}]]}


def test_a_member_of_a_text_enum_is_its_text_without_asking_it() -> None:
    view = View({"x": Colour.RED, "y": [Colour.RED], "z": {Colour.RED: Colour.RED}})
    for found in (view["x"], to_plain(view["y"])[0], view["z.red"], *to_plain(view["z"])):
        assert (type(found), found) == (str, "red")


def test_a_value_of_another_type_is_refused_by_its_place_and_type_and_not_touched() -> None:
    odd: list[object] = [Loud("a"), Liar(), Size.SMALL, OrderedDict(a=1), {1}, b"a", 1j, object(), len]
    for value in odd:
        for place, data in (("x", value), ("x[1].a", [0, {"a": value}]), ("x[0][0]", [[value]])):
            told = problem(data)
            assert told.startswith(f"{place} ")
            assert f" {type(value).__name__}" in told


def test_an_odd_field_makes_its_neighbours_no_less_readable() -> None:
    assert View({"x": {"odd": object(), "a": 1}})["x.a"] == 1


def test_a_number_beyond_64_bits_is_refused() -> None:
    for value in (MAX_INT + 1, -MAX_INT - 1):
        assert "64" in problem(value)


def test_a_table_with_a_key_that_is_no_text_is_refused() -> None:
    assert " int" in problem({1: 2})
    with pytest.raises(RuleError, match="Loud"):
        View({Loud("x"): 1})


class TestMissing:
    view = View({"context": {"turn": {"number": 3}, "result": None}})

    @pytest.mark.parametrize(
        ("name", "below", "field"),
        [
            ("contxt", "", "'contxt'"),
            ("context.trun.number", "context ", "'trun'"),
            ("context.turn.cost", "context.turn ", "'cost'"),
            ("context.turn.number.bits", "", "'bits'"),
            ("context.result.success", "", "'success'"),
            ("context.turn.__class__", "context.turn ", "'__class__'"),
            ("context.turn.number.__class__", "", "'__class__'"),
            ("", "", "''"),
        ],
    )
    def test_a_missing_field_is_told_by_its_name(self, name: str, below: str, field: str) -> None:
        with pytest.raises(RuleError) as caught:
            self.view[name]
        assert below in caught.value.reason
        assert field in caught.value.reason
        assert self.view.get(name, 7) == 7

    def test_a_default_is_for_what_is_not_there_alone(self) -> None:
        assert (self.view.get("context.turn.number"), self.view.get("context.result", 7)) == (3, None)

    def test_a_key_that_is_no_text_is_not_there(self) -> None:
        table: Any = self.view["context"]
        for key in (1, ["turn"], slice(1)):
            with pytest.raises(RuleError, match=r"^context "):
                table[key]
            assert key not in table


class TestLazy:
    def test_a_part_that_nobody_looks_at_is_not_computed(self) -> None:
        calls: list[str] = []
        view = View({"a": {"b": Lazy(lambda: calls.append("b")), "c": 1}})
        assert (view["a.c"], len(plain_keys(view["a"])), calls) == (1, 2, [])

    def test_a_lazy_value_is_computed_once_however_it_is_reached(self) -> None:
        calls: list[int] = []

        def compute() -> object:
            calls.append(1)
            return {"d": [len(calls)]}

        view = View({"a": {"b": Lazy(compute)}})
        table: Any = view["a"]
        assert view["a.b.d"] == table["b"]["d"] == to_plain(table)["b"]["d"] == [1]
        assert calls == [1]

    def test_a_lazy_value_may_have_lazy_parts(self) -> None:
        assert View({"a": Lazy(lambda: {"b": Lazy(lambda: 1)})})["a.b"] == 1

    def test_a_lazy_value_that_fails_is_told_each_time_and_not_tried_again(self) -> None:
        calls: list[int] = []

        def compute() -> object:
            calls.append(1)
            raise ValueError("no store")

        view = View({"a": {"b": Lazy(compute)}})
        for _ in range(2):
            with pytest.raises(RuleError, match=r"^a\.b .*ValueError\('no store'\)"):
                view["a.b"]
        assert calls == [1]

    def test_a_function_in_the_data_is_never_called(self) -> None:
        def function() -> None:
            raise AssertionError("code that came with the data was run")

        assert "function" in problem(function)
        assert "Lazy" in problem([Lazy(function)])


def test_texts_of_refused_data_are_as_stored(snapshot: Callable[..., None]) -> None:
    refused: list[object] = [[0, {"a": b"x"}], MAX_INT + 1, {1: 2}, [0] * (MAX_ITEMS + 1)]
    told = [problem(value) for value in refused]
    told += [problem({"a": 1}, name) for name in ("y", "x.b", "x.a.b")]
    snapshot("\n".join(told))


def plain_keys(table: Any) -> list[str]:
    return list(table)


class TestFrozen:
    def test_what_was_read_stays_as_it_was(self) -> None:
        data: dict[str, Any] = {"a": {"b": [1], "c": 1}}
        view = View(data)
        assert (view["a.b"], view["a.c"]) == ([1], 1)
        data["a"]["b"].append(2)
        data["a"].clear()
        assert (view["a.b"], view["a.c"]) == ([1], 1)

    def test_a_table_cannot_be_written(self) -> None:
        table: Any = View({"a": {"b": 1}})["a"]
        with pytest.raises(TypeError):
            table["b"] = 2
        with pytest.raises(AttributeError):
            table.extra = 2

    def test_a_copy_is_nobody_elses(self) -> None:
        view = View({"a": [1, {"b": [2]}]})
        copy = to_plain(view["a"])
        copy.append(2)
        copy[1]["b"].append(3)
        assert to_plain(view["a"]) == [1, {"b": [2]}]

    def test_tables_are_equal_when_what_they_hold_is(self) -> None:
        view = View({"a": {"x": [1, {"y": 2}]}, "b": {"x": (1, {"y": 2})}, "c": {"x": 1}})
        assert view["a"] == view["a"] == view["b"] != view["c"]
        assert view["a"] != {"x": [1, {"y": 2}]}

    def test_a_table_that_is_too_large_to_compare_still_equals_itself(self) -> None:
        view = View({"a": {"long": "a" * (MAX_ITEMS + 1)}, "b": {"long": "a" * (MAX_ITEMS + 1)}})
        assert view["a"] == view["a"]
        with pytest.raises(RuleError, match=f"{MAX_ITEMS:,}"):
            assert view["a"] == view["b"]


class TestBounds:
    def test_a_long_list_is_refused_with_all_its_lists(self) -> None:
        assert len(plain_keys(View({"x": [0] * MAX_ITEMS})["x"])) == MAX_ITEMS
        for long in ([0] * (MAX_ITEMS + 1), [[0] * (MAX_ITEMS // 2)] * 3):
            assert f"{MAX_ITEMS:,}" in problem(long)
            assert f"{MAX_DEPTH}" in problem(long)

    def test_a_list_that_shares_its_lists_a_billion_times_is_refused(self) -> None:
        shared: list[Any] = [0]
        for _ in range(30):
            shared = [shared, shared]
        assert f"{MAX_ITEMS:,}" in problem(shared)

    def test_what_contains_itself_is_refused(self) -> None:
        circle: list[Any] = []
        circle.append(circle)
        assert f"{MAX_ITEMS:,}" in problem(circle)
        ring: dict[str, Any] = {}
        ring["ring"] = ring
        assert f"{MAX_ITEMS:,}" in problem(ring)
        with pytest.raises(RuleError, match=f"{MAX_ITEMS:,}"):
            assert View({"x": ring})["x.ring"] == View({"x": ring})["x"]

    def test_a_copy_counts_texts_and_keys(self) -> None:
        for value in ("a" * 11, ["a" * 5, "b" * 5], {"a" * 10: 1}, [0] * 11):
            with pytest.raises(RuleError, match="10"):
                to_plain(freeze(value, "x"), max_size=10)
        assert to_plain(freeze({"a": "b" * 7}, "x"), max_size=10) == {"a": "b" * 7}
