from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from flyball.wire.structured import close_schema, is_strict_schema


class Inner(BaseModel):
    name: str


class Open(BaseModel):
    inner: list[Inner]
    note: str | None = None


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    count: int


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


@dataclass
class Pair:
    left: int
    right: Inner


def test_a_closed_schema_that_needs_everything_is_strict() -> None:
    assert is_strict_schema(Strict.model_json_schema())


@pytest.mark.parametrize("kind", [Inner, Open, Pair, dict[str, int]])
def test_a_schema_that_is_open_or_has_optional_keys_is_not_strict(kind: Any) -> None:
    assert not is_strict_schema(TypeAdapter(kind).json_schema())


def test_objects_are_closed_wherever_they_are_and_the_schema_given_stays_as_it_was() -> None:
    schema = Open.model_json_schema()
    made = close_schema(schema)
    assert made is not None
    assert made["additionalProperties"] is False
    assert made["$defs"]["Inner"]["additionalProperties"] is False
    assert schema == Open.model_json_schema()


@pytest.mark.parametrize("kind", [dict[str, int], list[dict[str, str]], Any])
def test_a_dict_of_any_keys_cannot_be_closed(kind: Any) -> None:
    schema = TypeAdapter(kind).json_schema()
    assert close_schema(schema) is None if "object" in str(schema) else close_schema(schema) == schema


def test_a_constraint_that_no_provider_enforces_is_told_in_words() -> None:
    class Rated(BaseModel):
        stars: Annotated[int, Field(ge=1, le=5, description="How good it was.")]
        tags: Annotated[list[str], Field(min_length=2)]
        when: datetime
        best: Annotated[Cat | Dog, Field(discriminator="kind")]

    made = close_schema(Rated.model_json_schema())
    assert made is not None
    parts = made["properties"]
    words = parts["stars"].pop("description")
    assert parts["stars"] == {"title": "Stars", "type": "integer"}
    assert words.startswith("How good it was. ")
    assert '{"maximum": 5, "minimum": 1}' in words
    assert '{"minItems": 2}' in parts["tags"]["description"]
    assert parts["when"] == {"title": "When", "type": "string", "format": "date-time"}
    assert parts["best"] == {"title": "Best", "anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}
    assert is_strict_schema(made)


@pytest.mark.parametrize("kind", [int, list[Strict], Literal["a", "b"], Strict | None])
def test_an_answer_that_is_no_object_is_not_strict(kind: Any) -> None:
    assert not is_strict_schema(TypeAdapter(kind).json_schema())


def test_a_property_called_properties_is_no_schema() -> None:
    schema = {"type": "object", "properties": {"properties": {"type": "string"}, "type": {"type": "string"}}}
    made = close_schema(schema)
    assert made is not None
    assert made["properties"] == schema["properties"]


def test_a_schema_nested_without_end_is_left_alone() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    assert not is_strict_schema(schema)
    assert close_schema(schema) is None
