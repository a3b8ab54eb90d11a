"""Arguments of tools with foreign JSON schemas, such as MCP tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from ..errors import ArgumentError, quote_value, suggest_names, truncate
from .schema_check import SchemaCheck, Uncheckable
from .signature import MAX_PROBLEM_CHARACTERS, MAX_PROBLEMS, format_path

_MAX_SUGGESTION_NAMES = 200
"""Maximum number of parameter names that an unknown name is compared with."""


class JsonSchemaArguments:
    """Parameters of a foreign tool.

    `schema` is for the model, and `read` checks the arguments that the model wrote.

    >>> JsonSchemaArguments("add", {"properties": {"a": {"type": "integer"}}, "required": ["a"]}).read('{"a": 1}')
    {'a': 1}
    """

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        self.name = name
        self.schema: dict[str, Any] = {"type": "object", "properties": {}, **schema}
        properties = self.schema["properties"]
        self.names = tuple(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else ()
        self._check = SchemaCheck(self.schema)
        self.positional: tuple[str, ...] = ()
        self.context: str | None = "context"
        """Name of the parameter that takes the ToolContext."""

    def read(self, arguments: str | bytes | Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the arguments by name.

        Raises:
            ArgumentError: the arguments are wrong, or cannot be checked; it lists every mistake.
        """
        try:
            text = to_json(arguments) if isinstance(arguments, Mapping) else arguments or "{}"
            values: object = from_json(text, allow_inf_nan=False)
        except (ValueError, PydanticSerializationError) as error:
            raise ArgumentError(self.name, (f"not JSON: {truncate(str(error), MAX_PROBLEM_CHARACTERS)}",)) from None
        if not isinstance(values, dict):
            raise ArgumentError(self.name, (f"arguments: expected an object; found {quote_value(values)}",))
        table = cast("dict[str, Any]", values)
        try:
            problems = self._check.problems(table, _describe_error, MAX_PROBLEMS)
        except Uncheckable as error:
            raise ArgumentError(self.name, (f"they cannot be checked, so the call was not made: {error}",)) from None
        if problems:
            raise ArgumentError(self.name, tuple(truncate(problem, MAX_PROBLEM_CHARACTERS) for problem in problems))
        return table


def _describe_error(error: Any) -> Iterator[str]:
    where, instance = tuple(error.absolute_path), error.instance
    match error.validator:
        case "required":
            yield from (
                f"{format_path((*where, key))}: missing" for key in error.validator_value if key not in instance
            )
        case "additionalProperties" if error.validator_value is False:
            known = error.schema.get("properties", {})
            for key in instance:
                if key not in known:
                    suggestions = suggest_names(key, islice(known, _MAX_SUGGESTION_NAMES))[:1]
                    hint = f"; did you mean {suggestions[0]}?" if suggestions else ""
                    yield f"{format_path((*where, key))}: no such parameter{hint}"
        case _:
            yield f"{format_path(where) or 'arguments'}: {error.message}"
