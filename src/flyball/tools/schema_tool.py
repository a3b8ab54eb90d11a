"""Tools that are described by a definition with a JSON schema, and client tools, whose calls the caller makes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, Unpack, cast, get_type_hints

from .._internal import validation
from .._internal.distribution import format_install
from ..errors import ConfigError, UsageError
from .context import ToolContext
from .definition import CallOptions, Function, Options, Tool
from .json_schema import JsonSchemaArguments
from .schema_check import SchemaCheck, Uncheckable

_DEFINITION_KEYS = ("description", "parameters", "call")


class SchemaTool(Tool):
    """Tool whose parameters are described by a JSON schema. Its function gets the arguments by name."""

    def __init__(self, call: Function, parameters: Mapping[str, Any], **options: Unpack[Options]) -> None:
        self._parameters = _check_schema(options.get("name", "tool"), parameters)
        super().__init__(call, **options)

    def _build_signature(self, descriptions: Mapping[str, str]) -> JsonSchemaArguments:
        arguments = JsonSchemaArguments(self.name, self._parameters)
        arguments.context = _find_context_parameter(self.function)
        return arguments


class ClientTool(SchemaTool):
    """Tool that the caller of the run executes: each call pauses the run until its result is passed to `resume`."""

    def __init__(self, parameters: Mapping[str, Any], **options: Unpack[Options]) -> None:
        super().__init__(_refuse_call, parameters, **(options | Options(approve=True)))
        self.is_client = True

    def _build_signature(self, descriptions: Mapping[str, str]) -> JsonSchemaArguments:
        return JsonSchemaArguments(self.name, self._parameters)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Callable[[], Any]:
        """Return a function that returns the result which the caller passed."""
        return partial(_read_answer, context)


def build_schema_tool(
    name: str, description: str, parameters: Mapping[str, Any], call: Function | None, options: CallOptions
) -> Tool:
    """Return the tool of a definition. Without a function it is a client tool."""
    validation.check_text(f"tool {name!r}, description", description)
    own: Options = {**options, "name": name, "description": description}
    if call is None:
        return ClientTool(parameters, **own)
    if not callable(call):
        raise ConfigError(f"tool {name!r}, call", call, "a function, or no such key for a client tool")
    return SchemaTool(call, parameters, **own)


def read_definitions(definitions: Mapping[str, Any]) -> list[Any]:
    """Return the tools of a mapping of names to definitions, tools or functions.

    A definition is a mapping with `description`, `parameters` (a JSON schema), `call` (without it the tool is a client
    tool), and options of `@tool`.
    """
    return [_read_definition(name, definition) for name, definition in definitions.items()]


def _read_definition(name: str, definition: Any) -> Tool:
    where = f"tools[{name!r}]"
    if isinstance(definition, Tool):
        if definition.name != name:
            raise ConfigError(where, definition.name, f"a tool with the name {name!r}")
        return cast("Tool", definition)
    if callable(definition):
        return Tool(definition, name=name)
    if not isinstance(definition, Mapping):
        raise ConfigError(where, definition, "a definition with description, parameters and call, or a function")
    table = dict(cast("Mapping[str, Any]", definition))
    own_name = table.pop("name", name)
    if own_name != name:
        raise ConfigError(f"{where}.name", own_name, f"{name!r}, or no such key")
    description, parameters, call = (table.pop(key, None) for key in _DEFINITION_KEYS)
    validation.check_options(where, table, known=[*_DEFINITION_KEYS, *CallOptions.__annotations__])
    return build_schema_tool(name, description or name, parameters or {}, call, cast("CallOptions", table))


def _check_schema(name: str, parameters: object) -> Mapping[str, Any]:
    where = f"tool {name!r}, parameters"
    if not isinstance(parameters, Mapping):
        raise ConfigError(where, parameters, "a JSON schema of an object")
    schema = cast("Mapping[str, Any]", parameters)
    if schema.get("type", "object") != "object" or not isinstance(schema.get("properties", {}), Mapping):
        raise ConfigError(where, dict(schema), 'a JSON schema with "type": "object" and "properties"')
    if find_spec("jsonschema") is None:
        raise UsageError(f"{where}: their check needs jsonschema, which is missing: {format_install('cli')}")
    try:
        SchemaCheck({"type": "object", **schema}).problems({}, lambda error: ())
    except Uncheckable as error:
        raise ConfigError(where, dict(schema), f"a JSON schema that can be used: {error}") from None
    return schema


def _find_context_parameter(function: Function) -> str | None:
    try:
        hints = get_type_hints(function if inspect.isroutine(function) else type(function).__call__)
    except (NameError, TypeError, AttributeError):
        return None
    return next((name for name, hint in hints.items() if hint is ToolContext), None)


def _refuse_call() -> None:
    raise UsageError("a client tool has no function: the caller of the run makes its calls")


def _read_answer(context: ToolContext | None) -> Any:
    if context is None or not context.answer:
        return _refuse_call()
    return json.loads(context.answer)
