from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter

from flyball.models.strict import closed, is_strict


class Inner(BaseModel):
    name: str


class Open(BaseModel):
    inner: list[Inner]
    note: str | None = None


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    count: int


@dataclass
class Pair:
    left: int
    right: Inner


def test_a_closed_schema_that_needs_everything_is_strict() -> None:
    assert is_strict(Strict.model_json_schema())


@pytest.mark.parametrize("kind", [Inner, Open, Pair, dict[str, int]])
def test_one_that_is_open_or_has_what_may_be_missing_is_not(kind: Any) -> None:
    assert not is_strict(TypeAdapter(kind).json_schema())


def test_objects_are_closed_wherever_they_are_and_the_schema_given_stays_as_it_was() -> None:
    schema = Open.model_json_schema()
    made = closed(schema)
    assert made is not None
    assert made["additionalProperties"] is False
    assert made["$defs"]["Inner"]["additionalProperties"] is False
    assert schema == Open.model_json_schema()


@pytest.mark.parametrize("kind", [dict[str, int], list[dict[str, str]], Any])
def test_a_dict_of_any_keys_cannot_be_closed(kind: Any) -> None:
    schema = TypeAdapter(kind).json_schema()
    assert closed(schema) is None if "object" in str(schema) else closed(schema) == schema


def test_a_property_called_properties_is_no_schema() -> None:
    schema = {"type": "object", "properties": {"properties": {"type": "string"}, "type": {"type": "string"}}}
    made = closed(schema)
    assert made is not None
    assert made["properties"] == schema["properties"]


def test_a_schema_nested_without_end_is_left_alone() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    assert not is_strict(schema)
    assert closed(schema) is None
