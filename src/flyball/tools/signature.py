"""A function's parameters as a JSON schema, and its arguments checked against it."""

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
from pydantic_core import PydanticSerializationError, SchemaError, to_json

from ..errors import ArgumentError, ConfigError, quote_value, suggest_names
from .context import ToolContext

_STRICT = ConfigDict(extra="forbid", strict=True)
"""On purpose: in the lax mode `true` and "1" become 1, and a parameter that does not exist vanishes."""

_MOST_PROBLEMS = 20
"""That a model is told of one call. A list of a million wrong items has a million."""


class Signature:
    """What a tool's function takes: `schema` for the model, `read` for what the model wrote."""

    def __init__(self, name: str, function: Callable[..., Any], descriptions: Mapping[str, str]) -> None:
        self.name = name
        parameters = _read_parameters(name, function)
        self.positional = tuple(key for key, parameter in parameters.items() if parameter.positional)
        """The parameters that can only be given by their place."""
        self.context = next((key for key, parameter in parameters.items() if _is_context(parameter.hint)), None)
        """The parameter that wants the ToolContext."""
        parameters.pop(self.context or "", None)
        self.names = tuple(parameters)
        self._has_renamed_fields = any(map(_is_reserved_by_pydantic, self.names))
        self._model = self._build_model(parameters, descriptions)
        self._validate_json = self._model.__pydantic_validator__.validate_json
        self.schema = self._build_schema()

    def read(self, arguments: str | bytes | Mapping[str, Any] | None) -> dict[str, Any]:
        """The arguments by name, of the types that the function declares; ArgumentError lists every mistake."""
        try:
            text = arguments if isinstance(arguments, str) else _to_json_text(arguments)
            values = self._validate_json(text or "{}").__dict__
        except ValidationError as error:
            raise ArgumentError(self.name, self._problems(error)) from None
        except PydanticSerializationError as error:
            raise ArgumentError(self.name, (f"not JSON: {error}",)) from None
        except (Exception, SystemExit) as error:  # a validator of the user's that fails otherwise
            raise ArgumentError(self.name, (f"cannot be checked: {type(error).__name__}: {error}",)) from error
        return dict(zip(self.names, values.values(), strict=True)) if self._has_renamed_fields else values

    def _build_model(self, parameters: Mapping[str, _Parameter], descriptions: Mapping[str, str]) -> type[BaseModel]:
        """Where a name would hide one of pydantic's (`schema`, `copy`), fields have our own, and it as alias."""
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
                raise ConfigError(f"tool {self.name!r}, parameter {parameter!r}", fields[field][0], "a type of values")
        return model

    def _build_schema(self) -> dict[str, Any]:
        with warnings.catch_warnings(), _convert_to_config_error(self.name):
            # A default that JSON cannot say is the function's own business; the schema then simply does not name it.
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
            return self._model.model_json_schema(schema_generator=_PlainJsonSchema)

    def _problems(self, error: ValidationError) -> tuple[str, ...]:
        errors = error.errors(include_url=False)
        told = tuple(self._describe_error(one) for one in errors[:_MOST_PROBLEMS])
        return (*told, f"and {len(errors) - len(told):,} more") if len(errors) > len(told) else told

    def _describe_error(self, error: Any) -> str:
        where = format_path(error["loc"])
        match error["type"]:
            case "missing":
                return f"{where}: missing"
            case "extra_forbidden" | "unexpected_keyword_argument":
                known = suggest_names(where, self.names)[:1]
                return f"{where}: no such parameter" + (f"; did you mean {known[0]}?" if known else "")
            case "json_invalid":
                return f"{where}: not JSON: {error['ctx']['error']}".removeprefix(": ")
            case _:
                return f"{where or 'arguments'}: {error['msg']}; found {quote_value(error['input'])}"


def _is_reserved_by_pydantic(name: str) -> bool:
    return hasattr(BaseModel, name) or name.startswith(("_", "model_"))


def _to_json_text(arguments: object) -> Any:
    """JSON, of a mapping or of nothing; anything else as it is, so that the check can say what is wrong."""
    return to_json(arguments) if isinstance(arguments, Mapping) else "{}" if arguments is None else arguments


class _PlainJsonSchema(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:
        """Infinity is no JSON: as with every default that JSON cannot say, the schema does not name it."""
        value = super().encode_default(dft)
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise PydanticSerializationError(str(error)) from error
        return value


def format_path(parts: tuple[int | str, ...]) -> str:
    """As one would write it in code, `tags[0].name`; a key that is no name is quoted, and cut where it is long."""
    steps = (
        f".{part}" if isinstance(part, str) and part.isidentifier() else f"[{quote_value(part)}]" for part in parts
    )
    return "".join(steps).removeprefix(".")


@contextmanager
def _convert_to_config_error(name: str) -> Generator[None]:
    try:
        yield
    except (PydanticUserError, SchemaError, TypeError) as error:  # pydantic raises bare TypeErrors, too
        reason = str(error).split("\n")[0]
        raise ConfigError(f"tool {name!r}, its annotations", reason, "types that JSON can carry") from error


class _Parameter(NamedTuple):
    hint: Any
    default: Any
    positional: bool


def _read_parameters(name: str, function: Callable[..., Any]) -> dict[str, _Parameter]:
    """Each parameter's annotation and default; what a partial has given already is not a parameter any more."""
    given = (
        set(cast("functools.partial[Any]", function).keywords)
        if isinstance(function, functools.partial)
        else set[str]()
    )
    try:
        parameters = inspect.signature(cast("Callable[..., Any]", function)).parameters.values()
        hints = _resolve_hints(cast("Callable[..., Any]", function), parameters)
    except (NameError, TypeError, ValueError) as error:
        raise ConfigError(f"tool {name!r}, its annotations", str(error), "a signature that Python can read") from error
    found: dict[str, _Parameter] = {}
    for parameter in parameters:
        where = f"tool {name!r}, parameter {parameter.name!r}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(where, str(parameter), "parameters that each have a name")
        if isinstance(parameter.default, FieldInfo):
            raise ConfigError(where, parameter.default, "Annotated[type, Field(...)] and a plain default")
        if parameter.name not in given:
            positional = parameter.kind is parameter.POSITIONAL_ONLY
            found[parameter.name] = _Parameter(hints.get(parameter.name, Any), parameter.default, positional)
    return found


def _resolve_hints(function: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> dict[str, Any]:
    """What the signature says of the parameters, and nothing else: what it returns may not be found."""
    written = {one.name: one.annotation for one in parameters if one.annotation is not one.empty}
    holder = types.SimpleNamespace(__annotations__=written)
    return typing.get_type_hints(holder, _find_globals(function), include_extras=True)


def _find_globals(function: Any) -> dict[str, Any]:
    """The names that an annotation in quotes may mean: those of the module where the function was written."""
    plain = inspect.unwrap(function)
    if isinstance(plain, functools.partial):
        return _find_globals(cast("functools.partial[Any]", plain).func)
    if not inspect.isroutine(plain) and not inspect.isclass(plain):
        return _find_globals(type(plain).__call__)
    code = plain.__init__ if inspect.isclass(plain) else getattr(plain, "__func__", plain)
    return getattr(code, "__globals__", None) or vars(sys.modules.get(getattr(plain, "__module__", ""), typing))


def _is_context(hint: Any) -> bool:
    """Also `ToolContext | None` and `Annotated[ToolContext, ...]`; a list of them is nothing that we could hand in."""
    if typing.get_origin(hint) is Annotated:
        hint = hint.__origin__
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return hint is ToolContext or (is_union and ToolContext in typing.get_args(hint))


def _find_description(hint: Any) -> str | None:
    """What an `Annotated` says in plain words: Annotated[int, "how many"]."""
    if typing.get_origin(hint) is not Annotated:
        return None
    notes = cast("tuple[object, ...]", hint.__metadata__)
    words = [note.description if isinstance(note, FieldInfo) else note for note in notes]
    return next((word for word in words if isinstance(word, str)), None)


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
    """The description of a function, and that of its parameters by name."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Read a docstring; what is in no style we know is part of the description.

    >>> parse_docstring("Add numbers.\\n\\nArgs:\\n    a: the first\\n    b (int): the second")
    Docstring(description='Add numbers.', parameters={'a': 'the first', 'b': 'the second'})
    """
    text = inspect.cleandoc(text or "")
    first = _SECTION.search(text)
    description = (text[: first.start()] if first else text).strip()
    parameters = {name.lstrip("*"): _join_lines(words) for name, words in _REST.findall(text)}
    if found := _NUMPY.search(text):
        parameters |= _parse_numpy(text[found.end() :])
    elif found := _GOOGLE.search(text):
        parameters |= _parse_google(text[found.end() :])
    return Docstring(description, parameters)


def _parse_google(text: str) -> dict[str, str]:
    """Entries are indented, and what goes on is indented further; the section ends where the indent does."""
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
    return {name: words.strip() for name, words in entries.items()}


def _parse_numpy(text: str) -> dict[str, str]:
    """Names stand at the margin, what is said of them below and indented; the next headline ends the section."""
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
