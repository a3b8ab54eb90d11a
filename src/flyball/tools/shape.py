"""The arguments of a tool that others have described: their JSON schema, and what a model wrote, checked against it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from ..errors import ArgumentError, nearest, shown
from .signature import place

_MOST_PROBLEMS = 20
_LONGEST = 300
"""Characters of one problem: it may quote the whole argument."""


class Shape:
    """What a foreign tool takes: `schema` for the model, `read` for what the model wrote.

    >>> Shape("add", {"properties": {"a": {"type": "integer"}}, "required": ["a"]}).read('{"a": 1}')
    {'a': 1}
    """

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        self.name = name
        self.schema: dict[str, Any] = {"type": "object", "properties": {}, **schema}
        properties = self.schema["properties"]
        self.names = tuple(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else ()
        self.positional: tuple[str, ...] = ()
        self.context: str | None = "context"
        """It gets the ToolContext, beside its arguments."""

    def read(self, arguments: str | bytes | Mapping[str, Any] | None) -> dict[str, Any]:
        """The arguments by name; ArgumentError lists every mistake."""
        try:
            text = to_json(arguments) if isinstance(arguments, Mapping) else arguments or "{}"
            values: object = from_json(text, allow_inf_nan=False)
        except (ValueError, PydanticSerializationError) as error:
            raise ArgumentError(self.name, (f"not JSON: {error}",)) from None
        if not isinstance(values, dict):
            raise ArgumentError(self.name, (f"arguments: expected an object; found {shown(values)}",))
        given = cast("dict[str, Any]", values)
        problems = tuple(islice(dict.fromkeys(self._problems(given)), _MOST_PROBLEMS))
        if problems:
            raise ArgumentError(self.name, problems)
        return given

    def _problems(self, values: dict[str, Any]) -> Iterator[str]:
        try:
            yield from (said for error in self._validator.iter_errors(values) for said in self._told(error))
        except Exception:  # a schema that is wrong, or points elsewhere: the server has to check for itself
            return

    @functools.cached_property
    def _validator(self) -> Any:
        """Made for the first call: most tools of a server are never called."""
        import referencing
        from jsonschema import Draft202012Validator
        from jsonschema import validators as untyped

        validators: Any = untyped
        kind = validators.validator_for(self.schema, default=Draft202012Validator)
        kind.check_schema(self.schema)
        additional = kind.VALIDATORS.get("additionalProperties", _anything)

        def without_patterns(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            return () if "patternProperties" in schema else additional(validator, value, instance, schema)

        # A foreign pattern may backtrack for ever, and everybody would wait for it.
        patterns = dict.fromkeys(("pattern", "patternProperties", "unevaluatedProperties"), _anything)
        careful = validators.extend(kind, {**patterns, "additionalProperties": without_patterns})
        return careful(self.schema, registry=cast("Any", referencing.Registry)())

    def _told(self, error: Any) -> Iterator[str]:
        where, instance = tuple(error.absolute_path), error.instance
        match error.validator:
            case "required":
                yield from (f"{place((*where, key))}: missing" for key in error.validator_value if key not in instance)
            case "additionalProperties" if error.validator_value is False:
                known = list(error.schema.get("properties", ()))
                for key in instance:
                    if key not in known:
                        near = nearest(key, known)[:1]
                        hint = f"; did you mean {near[0]}?" if near else ""
                        yield f"{place((*where, key))}: no such parameter{hint}"
            case _:
                yield f"{place(where) or 'arguments'}: {error.message}"[:_LONGEST]


def _anything(*_: object) -> Iterator[Any]:
    """No mistake."""
    return iter(())
