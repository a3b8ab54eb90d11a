"""Arguments that are checked against a foreign JSON schema."""

from collections.abc import Callable
from typing import Any

import pytest

from flyball.errors import ArgumentError
from flyball.tools.json_schema import JsonSchemaArguments

PAIR: dict[str, Any] = {
    "type": "object",
    "properties": {"alpha": {"type": "integer"}, "list": {"type": "array", "items": {"required": ["x"]}}},
    "required": ["alpha"],
    "additionalProperties": False,
}


def problems(schema: dict[str, Any], arguments: Any) -> tuple[str, ...]:
    with pytest.raises(ArgumentError) as raised:
        JsonSchemaArguments("tool", schema).read(arguments)
    return raised.value.problems


class TestWhatFits:
    @pytest.mark.parametrize("arguments", ['{"alpha": 1}', b'{"alpha": 1}', {"alpha": 1}])
    def test_is_given_by_name(self, arguments: Any) -> None:
        assert JsonSchemaArguments("tool", PAIR).read(arguments) == {"alpha": 1}

    @pytest.mark.parametrize("nothing", ["", None, "{}", {}])
    def test_empty_arguments_may_fit(self, nothing: Any) -> None:
        assert JsonSchemaArguments("tool", {}).read(nothing) == {}

    def test_is_shown_to_a_model_as_an_object(self) -> None:
        shape = JsonSchemaArguments("tool", {"properties": {"a": {}}})
        assert (shape.schema, shape.names) == ({"type": "object", "properties": {"a": {}}}, ("a",))


class TestWhatDoesNotFit:
    def test_is_told_with_every_mistake(self, snapshot: Callable[..., None]) -> None:
        told = problems(PAIR, {"alpa": 1, "list": [{}]})
        assert [one.partition(":")[0] for one in told] == ["list[0].x", "alpha", "alpa"]
        assert "alpha" in told[-1]
        snapshot("\n".join(told))

    @pytest.mark.parametrize("text", ["[1]", "3", '"x"', "null"])
    def test_arguments_that_are_no_object_are_refused(self, text: str) -> None:
        assert problems({}, text)[0].startswith("arguments: ")

    @pytest.mark.parametrize("text", ["{", '{"a": NaN}', {"a": object()}])
    def test_arguments_that_are_no_json_are_refused(self, text: Any) -> None:
        assert problems({}, text)[0].startswith("not JSON")

    def test_is_not_quoted_at_length(self) -> None:
        (problem,) = problems({"properties": {"a": {"type": "integer"}}}, {"a": "x" * 10_000})
        assert len(problem) <= 301

    def test_is_not_told_without_end(self) -> None:
        schema = {"additionalProperties": {"type": "integer"}}
        assert len(problems(schema, {str(n): "x" for n in range(1_000)})) == 20


CANNOT = "they cannot be checked, so the call was not made: "
AT_HOME = "https://json-schema.org/draft/2020-12/schema"
EVIL = "^(a+)+$"
"""Takes `re` seconds for 25 letters and a mark, and twice as long for each letter more."""
WORD = "a" * 25 + "!"


class TestWhatCannotBeChecked:
    @pytest.mark.parametrize(
        ("schema", "reason"),
        [
            ({"type": 3}, "the schema cannot be used: TypeError: "),
            ({"properties": [1]}, "the schema cannot be used: AttributeError: "),
            ({"$schema": {}}, "the schema cannot be used: "),
            (
                {"$ref": "https://example.org/other"},
                "the schema refers to 'https://example.org/other', which is outside",
            ),
            ({"$ref": "#"}, "the schema refers to itself without end, or is nested too deeply"),
            ({"unevaluatedProperties": False, "$ref": "#"}, "the schema refers to itself without end, or is nested"),
            (
                {"properties": {"a": {"pattern": r"(a)\1"}}},
                "the schema has a pattern that cannot be used: it has groupref",
            ),
            (
                {"properties": {"a": {"pattern": "("}}},
                "the schema has a pattern that cannot be used: it is not valid",
            ),
            (
                {"properties": {"a": {"pattern": "(a{999}){999}"}}},
                "the schema has a pattern that cannot be used: its repetitions",
            ),
            ({"unevaluatedProperties": False, "patternProperties": {"b": {}}}, "the schema has an unevaluated keyword"),
        ],
    )
    def test_is_refused_and_the_model_is_told_why(self, schema: dict[str, Any], reason: str) -> None:
        (problem,) = problems(schema, {"a": "x"})
        assert problem.startswith(CANNOT + reason)

    @pytest.mark.parametrize("keyword", ["allOf", "oneOf"])
    def test_is_a_schema_that_doubles_per_level(self, keyword: str) -> None:
        levels = {f"l{n}": {keyword: [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(18)}
        (problem,) = problems({"$defs": {**levels, "l18": {}}, "$ref": "#/$defs/l0"}, {})
        assert (
            problem
            == f"{CANNOT}the check needs more than 1,000,000 steps, because the schema or the value is too complex"
        )


class TestAPattern:
    def test_a_pattern_is_checked(self) -> None:
        assert problems({"properties": {"a": {"pattern": "^b+$"}}}, {"a": "bob"}) == ("a: 'bob' does not match '^b+$'",)

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"a": {"pattern": EVIL}}},
            {"properties": {"a": {"$schema": AT_HOME, "pattern": EVIL}}},
            {"$schema": AT_HOME, "$ref": "#/$defs/b", "$defs": {"b": {"properties": {"a": {"pattern": EVIL}}}}},
            {"propertyNames": {"maxLength": 1}, "additionalProperties": {"pattern": EVIL}},
        ],
    )
    def test_a_pattern_that_backtracks_holds_nothing_up(self, schema: dict[str, Any]) -> None:
        (problem,) = problems(schema, {"a": WORD})
        assert problem == f"a: '{WORD}' does not match '{EVIL}'"

    def test_a_pattern_of_names_that_backtracks_holds_nothing_up(self) -> None:
        schema = {"patternProperties": {EVIL: {"type": "integer"}}, "additionalProperties": False}
        assert problems(schema, {WORD: 1, "aaa": "x"}) == (
            "aaa: 'x' is not of type 'integer'",
            f"['{WORD}']: no such parameter",
        )


@pytest.mark.parametrize("items", [[1, True, 0, False, "1", None], [[1], [True], [2.5]], [{"a": 1}, {"a": 2}]])
def test_items_that_differ_are_unique(items: list[object]) -> None:
    assert JsonSchemaArguments("tool", {"properties": {"a": {"uniqueItems": True}}}).read({"a": items}) == {"a": items}


@pytest.mark.parametrize("items", [[1, 1.0], [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], ["x", "x"]])
def test_items_that_are_equal_are_not_unique(items: list[object]) -> None:
    (problem,) = problems({"properties": {"a": {"uniqueItems": True}}}, {"a": items})
    assert problem.endswith(" has non-unique elements")
