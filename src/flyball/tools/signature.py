"""Signatures of tool functions as JSON schemas, and checks of arguments.

`Signature` builds a strict pydantic model from the annotations. `parse_docstring` reads the descriptions of the
parameters from a docstring in Google, NumPy or reST style.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
import types
import typing
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, PydanticJsonSchemaWarning
from pydantic_core import PydanticSerializationError, SchemaError, SchemaValidator, to_json

from ..errors import ArgumentError, ConfigError, UsageError, describe_error, quote_value, suggest_names, truncate
from .context import ToolContext

# Lax mode would turn `true` and "1" into 1, and would silently drop unknown parameters.
_STRICT = ConfigDict(extra="forbid", strict=True)

PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})
MAX_PROBLEMS = 20
"""Maximum number of problems reported per call. A list of a million wrong items would have a million."""
MAX_PROBLEM_CHARACTERS = 300
"""Maximum length of one problem, which may quote a name or an argument of any length."""


class Signature:
    """Parameters of a tool function.

    `schema` is for the model, and `read` checks the arguments that the model wrote.
    """

    def __init__(self, name: str, function: Callable[..., Any], descriptions: Mapping[str, str]) -> None:
        self.name = name
        parameters = _read_parameters(name, function)
        self.positional = tuple(key for key, parameter in parameters.items() if parameter.positional)
        """Names of the positional-only parameters."""
        self.context = next((key for key, parameter in parameters.items() if _is_context(parameter.hint)), None)
        """Name of the parameter that takes the ToolContext. None if there is none."""
        parameters.pop(self.context or "", None)
        self.names = tuple(parameters)
        self.has_plain_values = all(map(_is_plain, parameters.values()))
        """True if `read` returns strings, numbers and booleans only."""
        self._has_renamed_fields = any(map(_is_reserved_by_pydantic, self.names))
        self._model = self._build_model(parameters, descriptions)
        self._validate_json = self._model.__pydantic_validator__.validate_json
        self._validate_fields = None if self._has_renamed_fields else _build_field_validator(self._model)
        self.schema = self._build_schema()

    def read(self, arguments: str | bytes | Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the arguments by name, converted to the declared types.

        Raises:
            ArgumentError: the arguments are wrong; it lists every mistake.
        """
        if self._validate_fields is not None and type(arguments) is str:
            try:
                return self._validate_fields(arguments)[0]
            except Exception:  # the model describes the mistake
                return self._read_with_model(arguments)
        return self._read_with_model(arguments)

    def _read_with_model(self, arguments: str | bytes | Mapping[str, Any] | None) -> dict[str, Any]:
        try:
            text = arguments if isinstance(arguments, str) else _to_json_text(arguments)
            values = self._validate_json(text or "{}").__dict__
        except ValidationError as error:
            raise ArgumentError(self.name, self._describe_errors(error)) from None
        except PydanticSerializationError as error:
            raise ArgumentError(self.name, (f"not JSON: {truncate(str(error), MAX_PROBLEM_CHARACTERS)}",)) from None
        except (Exception, SystemExit) as error:  # a custom validator may raise anything
            problem = f"cannot be checked: {type(error).__name__}: {describe_error(error)['message']}"
            raise ArgumentError(self.name, (truncate(problem, MAX_PROBLEM_CHARACTERS),)) from error
        return dict(zip(self.names, values.values(), strict=True)) if self._has_renamed_fields else values

    def _build_model(self, parameters: Mapping[str, _Parameter], descriptions: Mapping[str, str]) -> type[BaseModel]:
        # A parameter named like an attribute of BaseModel (`schema`, `copy`) would hide it. Then all fields get
        # neutral names, with the real names as aliases.
        fields: dict[str, Any] = {}
        for number, (name, parameter) in enumerate(parameters.items()):
            description = _find_description(parameter.hint) or descriptions.get(name)
            default: Any = ... if parameter.default is inspect.Parameter.empty else parameter.default
            field = f"p{number}" if self._has_renamed_fields else name
            alias = name if self._has_renamed_fields else None
            fields[field] = (parameter.hint, Field(default, alias=alias, description=description))
        with _convert_to_config_error(self.name):
            model = create_model(self.name, __config__=_STRICT, **fields)
        for field, parameter in zip(fields, parameters, strict=True):
            if field not in model.model_fields:
                raise ConfigError(
                    f"tool {self.name!r}, parameter {parameter!r}", fields[field][0], "the type of a value"
                )
        return model

    def _build_schema(self) -> dict[str, Any]:
        with warnings.catch_warnings(), _convert_to_config_error(self.name):
            # A default that JSON cannot express is left out of the schema; the function still uses it.
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
            return self._model.model_json_schema(schema_generator=_PlainJsonSchema)

    def _describe_errors(self, error: ValidationError) -> tuple[str, ...]:
        errors = error.errors(include_url=False)
        shown = tuple(truncate(self._describe_error(one), MAX_PROBLEM_CHARACTERS) for one in errors[:MAX_PROBLEMS])
        return (*shown, f"and {len(errors) - len(shown):,} more") if len(errors) > len(shown) else shown

    def _describe_error(self, error: Any) -> str:
        where = format_path(error["loc"])
        match error["type"]:
            case "missing":
                return f"{where}: missing"
            case "extra_forbidden" | "unexpected_keyword_argument":
                suggestions = suggest_names(where, self.names)[:1]
                return f"{where}: no such parameter" + (f"; did you mean {suggestions[0]}?" if suggestions else "")
            case "json_invalid":
                return f"{where}: not JSON: {error['ctx']['error']}".removeprefix(": ")
            case _:
                return f"{where or 'arguments'}: {error['msg']}; found {quote_value(error['input'])}"


def _build_field_validator(model: type[BaseModel]) -> Callable[[str | bytes], tuple[Any, ...]] | None:
    """Return a function that validates the fields of a model without creating an instance, in half the time.

    It returns a tuple whose first item is a dict. None for a model that refers to other models.
    """
    schema: Any = model.__pydantic_core_schema__
    if schema["type"] != "model" or schema["schema"]["type"] != "model-fields":
        return None
    return SchemaValidator(schema["schema"], schema.get("config")).validate_json


def _is_reserved_by_pydantic(name: str) -> bool:
    return hasattr(BaseModel, name) or name.startswith(("_", "model_"))


def _to_json_text(arguments: object) -> Any:
    # Values of other types are passed on, so that the validator reports what is wrong with them.
    return to_json(arguments) if isinstance(arguments, Mapping) else "{}" if arguments is None else arguments


class _PlainJsonSchema(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:
        """Raise for infinity and NaN, which are no JSON.

        pydantic then leaves the default out of the schema.
        """
        value = super().encode_default(dft)
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise PydanticSerializationError(str(error)) from error
        return value


def format_path(parts: tuple[int | str, ...]) -> str:
    """Format the path to a value, such as `tags[0].name`.

    A key that is not an identifier is quoted, and shortened if it is long.
    """
    steps = (
        f".{part}" if isinstance(part, str) and part.isidentifier() else f"[{quote_value(part)}]" for part in parts
    )
    return "".join(steps).removeprefix(".")


@contextmanager
def _convert_to_config_error(name: str) -> Generator[None]:
    try:
        yield
    except (PydanticUserError, SchemaError, TypeError) as error:  # pydantic also raises bare TypeErrors
        reason = str(error).split("\n")[0]
        raise UsageError(f"tool {name!r}: its annotations must be types with a JSON schema ({reason})") from error


class _Parameter(NamedTuple):
    hint: Any
    default: Any
    positional: bool


def _is_plain(parameter: _Parameter) -> bool:
    """Return True if a parameter takes strings, numbers or booleans only."""
    hint, default = parameter.hint, parameter.default
    if type(hint) is not type or hint not in PLAIN_TYPES:
        return False
    return default is inspect.Parameter.empty or type(default) in PLAIN_TYPES


def _read_parameters(name: str, function: Callable[..., Any]) -> dict[str, _Parameter]:
    # Arguments that a functools.partial has bound by name are no longer parameters.
    bound = (
        set(cast("functools.partial[Any]", function).keywords)
        if isinstance(function, functools.partial)
        else set[str]()
    )
    try:
        parameters = inspect.signature(cast("Callable[..., Any]", function)).parameters.values()
        hints = _resolve_hints(cast("Callable[..., Any]", function), parameters)
    except (NameError, TypeError, ValueError) as error:
        raise UsageError(f"tool {name!r}: its signature cannot be read ({error})") from error
    result: dict[str, _Parameter] = {}
    for parameter in parameters:
        where = f"tool {name!r}, parameter {parameter.name!r}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UsageError(f"tool {name!r}: replace {parameter} by named parameters")
        if isinstance(parameter.default, FieldInfo):
            raise ConfigError(where, parameter.default, "Annotated[type, Field(...)] and a plain default")
        if parameter.name not in bound:
            positional = parameter.kind is parameter.POSITIONAL_ONLY
            result[parameter.name] = _Parameter(hints.get(parameter.name, Any), parameter.default, positional)
    return result


def _resolve_hints(function: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> dict[str, Any]:
    # Only the parameters: the return annotation may name something that cannot be imported.
    annotations = {item.name: item.annotation for item in parameters if item.annotation is not item.empty}
    holder = types.SimpleNamespace(__annotations__=annotations)
    return typing.get_type_hints(holder, _find_globals(function), include_extras=True)


def _find_globals(function: Any) -> dict[str, Any]:
    """Return the globals in which quoted annotations are evaluated."""
    plain = inspect.unwrap(function)
    if isinstance(plain, functools.partial):
        return _find_globals(cast("functools.partial[Any]", plain).func)
    if not inspect.isroutine(plain) and not inspect.isclass(plain):
        return _find_globals(type(plain).__call__)
    code = plain.__init__ if inspect.isclass(plain) else getattr(plain, "__func__", plain)
    return getattr(code, "__globals__", None) or vars(sys.modules.get(getattr(plain, "__module__", ""), typing))


def _is_context(hint: Any) -> bool:
    # `ToolContext | None` and `Annotated[ToolContext, ...]` count as well; a list of contexts does not.
    if typing.get_origin(hint) is Annotated:
        hint = hint.__origin__
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return hint is ToolContext or (is_union and ToolContext in typing.get_args(hint))


def _find_description(hint: Any) -> str | None:
    """Return the text of an annotation such as `Annotated[int, "how many"]`."""
    if typing.get_origin(hint) is not Annotated:
        return None
    notes = cast("tuple[object, ...]", hint.__metadata__)
    texts = [note.description if isinstance(note, FieldInfo) else note for note in notes]
    return next((text for text in texts if isinstance(text, str)), None)


_GOOGLE = re.compile(r"^(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_NUMPY = re.compile(r"^Parameters\n-{3,}\s*$", re.MULTILINE)
_REST = re.compile(r"^:param\s+(?:[^:\n]+\s+)?(\*{0,2}\w+):[ \t]*(.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_SECTION = re.compile(
    r"^(?:(?:Args|Arguments|Parameters|Returns?|Yields?|Raises):\s*$"
    r"|(?:Parameters|Returns|Yields|Raises)\n-{3,}\s*$|:(?:param|type|returns?|rtype|raises)\b)",
    re.MULTILINE,
)
_ENTRY = re.compile(r"^(\w+)(?:\s*\(.*?\))?\s*:\s+(.*)$")
_NUMPY_ENTRY = re.compile(r"^(\w+)\s*(?::.*)?$")


class Docstring(NamedTuple):
    """Descriptions of a function and, by name, of its parameters."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Parse a docstring in Google, NumPy or reST style.

    Text in any other style becomes part of the description.

    >>> parse_docstring("Add numbers.\\n\\nArgs:\\n    a: the first\\n    b (int): the second")
    Docstring(description='Add numbers.', parameters={'a': 'the first', 'b': 'the second'})
    """
    text = inspect.cleandoc(text or "")
    first = _SECTION.search(text)
    description = (text[: first.start()] if first else text).strip()
    parameters = {name.lstrip("*"): _join_lines(words) for name, words in _REST.findall(text)}
    if section := _NUMPY.search(text):
        parameters |= _parse_numpy(text[section.end() :])
    elif section := _GOOGLE.search(text):
        parameters |= _parse_google(text[section.end() :])
    return Docstring(description, parameters)


def _parse_google(text: str) -> dict[str, str]:
    # Entries are indented, their continuation lines further. The section ends with the indentation.
    lines = [line for line in text.strip("\n").splitlines() if line.strip()]
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    entries: dict[str, str] = {}
    name = None
    for line in lines if indent else []:
        depth = len(line) - len(line.lstrip())
        if depth < indent:
            break
        if depth == indent:
            entry = _ENTRY.match(line.strip())
            name = entry[1] if entry else None
            if entry:
                entries[entry[1]] = entry[2]
        elif name is not None:
            entries[name] += f" {line.strip()}"
    return {name: description.strip() for name, description in entries.items()}


def _parse_numpy(text: str) -> dict[str, str]:
    # Names are at the margin, their descriptions indented below. The next heading ends the section.
    end = re.search(r"^\S.*\n-{3,}\s*$", text, re.MULTILINE)
    entries: dict[str, list[str]] = {}
    words: list[str] = []
    for line in text[: end.start() if end else len(text)].splitlines():
        if line and not line[0].isspace():
            entry = _NUMPY_ENTRY.match(line.strip())
            words = entries.setdefault(entry[1], []) if entry else []
        elif line.strip():
            words.append(line.strip())
    return {name: " ".join(words) for name, words in entries.items()}


def _join_lines(words: str) -> str:
    return " ".join(line.strip() for line in words.splitlines())
