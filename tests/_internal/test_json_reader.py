import math
from typing import Any

import pytest

from flyball import ConfigError
from flyball._internal.json_reader import JsonReader

WRONG: dict[str, Any] = {"text": 1, "number": "2", "integer": 2.5, "nested": [], "nested_list": {}, "text_list": "no"}


@pytest.mark.parametrize("strict", [False, True])
def test_a_value_of_the_requested_type_is_read(strict: bool) -> None:
    data = JsonReader({"a": "x", "n": 2, "o": {"b": [{"c": "y"}]}, "t": ["p", "q"]}, "record", strict=strict)
    assert (data.text("a"), data.number("n"), data.integer("n")) == ("x", 2.0, 2)
    assert [item.text("c") for item in data.nested("o").nested_list("b")] == ["y"]
    assert (data.text_list("t"), list(data), data.raw["n"]) == (["p", "q"], ["a", "n", "o", "t"], 2)


@pytest.mark.parametrize("strict", [False, True])
def test_a_missing_value_is_empty(strict: bool) -> None:
    data = JsonReader({"n": None}, strict=strict)
    assert (data.get("n"), data.text("n"), data.optional_text("n"), data.number("n"), data.integer("x")) == (
        None,
        "",
        None,
        0.0,
        0,
    )
    assert (data.nested("n").raw, data.nested_list("n"), data.text_list("x")) == ({}, [], [])


@pytest.mark.parametrize("method", WRONG)
def test_a_value_of_another_type_is_empty_or_refused(method: str) -> None:
    lenient = getattr(JsonReader({"key": WRONG[method]}), method)("key")
    assert not (list(lenient) if isinstance(lenient, JsonReader) else lenient) or method == "integer"
    with pytest.raises(ConfigError) as caught:
        getattr(JsonReader({"key": WRONG[method]}, "record", strict=True), method)("key")
    assert (caught.value.where, caught.value.found) == ("record, key", WRONG[method])


@pytest.mark.parametrize("method", ["nested_list", "text_list"])
def test_items_of_another_type_are_dropped_or_refused(method: str) -> None:
    items: list[object] = [None, 5]
    assert getattr(JsonReader({"key": items}), method)("key") == []
    with pytest.raises(ConfigError):
        getattr(JsonReader({"key": items}, "record", strict=True), method)("key")


def test_a_strict_reader_names_the_place_of_a_nested_value() -> None:
    [_, second] = JsonReader({"rows": [{}, {"n": "no"}]}, "record", strict=True).nested_list("rows")
    with pytest.raises(ConfigError) as caught:
        second.integer("n")
    assert caught.value.where == "record, rows[1], n"


@pytest.mark.parametrize("value", [True, math.nan, math.inf, 1e15, 10**400])
def test_a_number_that_is_not_finite_reads_as_0(value: float) -> None:
    assert JsonReader({"n": value}).number("n") == 0.0


@pytest.mark.parametrize("data", [None, [], "text", 5])
def test_what_is_not_an_object_reads_as_an_empty_one(data: object) -> None:
    assert JsonReader(data).raw == {}
