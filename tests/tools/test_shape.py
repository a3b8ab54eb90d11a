"""Arguments that are checked against a foreign JSON schema."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from flyball.errors import ArgumentError
from flyball.tools.shape import Shape

PAIR: dict[str, Any] = {
    "type": "object",
    "properties": {"alpha": {"type": "integer"}, "list": {"type": "array", "items": {"required": ["x"]}}},
    "required": ["alpha"],
    "additionalProperties": False,
}


def problems(schema: dict[str, Any], arguments: Any) -> tuple[str, ...]:
    with pytest.raises(ArgumentError) as raised:
        Shape("tool", schema).read(arguments)
    return raised.value.problems


class TestWhatFits:
    @pytest.mark.parametrize("arguments", ['{"alpha": 1}', b'{"alpha": 1}', {"alpha": 1}])
    def test_is_given_by_name(self, arguments: Any) -> None:
        assert Shape("tool", PAIR).read(arguments) == {"alpha": 1}

    @pytest.mark.parametrize("nothing", ["", None, "{}", {}])
    def test_may_be_nothing(self, nothing: Any) -> None:
        assert Shape("tool", {}).read(nothing) == {}

    def test_is_anything_where_the_schema_cannot_be_used(self) -> None:
        for schema in ({"type": 3}, {"$ref": "https://example.org/other"}, {"$ref": "#"}, {"properties": [1]}):
            assert Shape("tool", schema).read({"a": 1}) == {"a": 1}

    def test_is_shown_to_a_model_as_an_object(self) -> None:
        shape = Shape("tool", {"properties": {"a": {}}})
        assert (shape.schema, shape.names) == ({"type": "object", "properties": {"a": {}}}, ("a",))


class TestWhatDoesNotFit:
    def test_is_told_with_every_mistake(self, snapshot: Callable[..., None]) -> None:
        told = problems(PAIR, {"alpa": 1, "list": [{}]})
        assert [one.partition(":")[0] for one in told] == ["list[0].x", "alpha", "alpa"]
        assert "alpha" in told[-1]
        snapshot("\n".join(told))

    @pytest.mark.parametrize("text", ["[1]", "3", '"x"', "null"])
    def test_is_no_object(self, text: str) -> None:
        assert problems({}, text)[0].startswith("arguments: ")

    @pytest.mark.parametrize("text", ["{", '{"a": NaN}', {"a": object()}])
    def test_is_no_json(self, text: Any) -> None:
        assert problems({}, text)[0].startswith("not JSON")

    def test_is_not_quoted_at_length(self) -> None:
        (problem,) = problems({"properties": {"a": {"type": "integer"}}}, {"a": "x" * 10_000})
        assert len(problem) <= 300

    def test_is_not_told_without_end(self) -> None:
        schema = {"additionalProperties": {"type": "integer"}}
        assert len(problems(schema, {str(n): "x" for n in range(1_000)})) == 20


def test_a_foreign_pattern_holds_nobody_up() -> None:
    evil = "^(a+)+$"
    schema: dict[str, Any] = {
        "properties": {"a": {"type": "string", "pattern": evil}},
        "patternProperties": {evil: {}},
        "additionalProperties": False,
        "unevaluatedProperties": False,
    }
    read: list[object] = []
    key = "a" * 40 + "!"
    reader = threading.Thread(target=lambda: read.append(Shape("tool", schema).read({"a": key, key: 1})), daemon=True)
    reader.start()
    reader.join(60)
    assert read == [{"a": key, key: 1}]
