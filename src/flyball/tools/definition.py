"""The `@tool` decorator for functions that a model may call.

A `Tool` wraps a function, reads its signature and docstring, and checks the arguments that a model wrote. A `Toolset`
holds the tools of one run by name.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Concatenate, Generic, Literal, Self, TypedDict, Unpack, cast, overload

from .._internal import validation
from .._internal.functions import is_async, unwrap_partial
from .._internal.type_variables import MethodParams, Params, Returned
from ..errors import ConfigError, UnknownTool, UsageError
from ..steadiness import Duplicates
from . import signature
from .context import ToolContext
from .excerpt import MAX_CHARACTERS, MIN_CHARACTERS, Excerpt, check_excerpt
from .json_schema import JsonSchemaArguments
from .signature import Signature

Function = Callable[..., Any]
Approve = bool | Callable[[Mapping[str, Any]], bool | str]
"""True if a person must approve each call, or a function of the arguments that decides."""


class Effects(StrEnum):
    """Kind of effect of a call.

    Reads may run in parallel. A write is a barrier.
    """

    READ = "read"
    WRITE = "write"


class CallOptions(TypedDict, total=False):
    """Options about the calls of a tool. All are optional."""

    timeout: float | None
    """Seconds for one call, 45 by default. None means that only the run's deadline applies."""
    effects: Literal["read", "write"]
    """Use "read" if a call changes nothing; the default is "write". Reads may run in parallel, a write is a barrier."""
    cheap: bool
    """True if a turn with only cheap calls is refunded."""
    idempotent: bool
    """True if the call may be repeated after a crash, with the same idempotency key."""
    retry_on_timeout: bool
    """False blocks the tool for the rest of the run after a timeout. Default: True for reads, False for writes."""
    duplicates: Literal["allow", "reuse", "reject"]
    """Policy for a call equal to an answered one. Default: the agent's policy.

    The agent loop applies it. The executor does not know the messages between the two calls.
    """
    poll: bool
    """True if the tool is called repeatedly until something changes. Such calls never count as repetitions."""
    max_calls: int
    """Maximum number of calls in one run. Default: no limit."""
    sensitive: Sequence[str]
    """Names of parameters that are hidden in events, logs and exports."""
    ends_run: bool
    """True if each result ends the run and is its answer. Open assertions must hold first."""
    result_is_data: bool
    """True if a returned mapping is never taken for a failure. By default one with `success` False, or with a truthy
    `error` and no `success`, is a failed call."""
    max_result_characters: int
    """Characters of a result that the model sees, at least 500. A longer result is shown as an excerpt. Default: the
    agent's, or 12,000."""
    excerpt: Excerpt
    """Function of a too long result and the maximum that returns what the model sees. Default: the agent's."""
    approve: Approve
    """True if a person must approve each call, or a function of the arguments that decides.

    The call needs approval unless the function returns False. A returned text is the question for the person.
    """


class Options(CallOptions, total=False):
    """Options of `@tool(...)`. All are optional."""

    name: str
    """Name that the model uses. Default: the function's name."""
    description: str
    """Description that the model reads. Default: the docstring."""


@overload
def tool(function: Callable[Params, Returned], /) -> Tool[Params, Returned]: ...


@overload
def tool(**options: Unpack[Options]) -> ToolDecorator: ...


def tool(function: Function | None = None, /, **options: Unpack[Options]) -> Tool | ToolDecorator:
    """Make a tool of a function.

    Use it as `@tool` or as `@tool(timeout=5, effects="read")`.
    """
    return ToolDecorator(options) if function is None else Tool(function, **options)


class ToolDecorator:
    """Decorator that makes tools with the options of `@tool(...)`."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def __call__(self, function: Callable[Params, Returned], /) -> Tool[Params, Returned]:
        """Make a tool of a function."""
        return Tool(function, **self._options)


class Tool(Generic[Params, Returned]):
    """A function that a model may call.

    It can still be called like the plain function.

    >>> @tool(effects="read", timeout=5)
    ... def add(a: int, b: int = 1) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> add(1, 2), add.name, add.schema["required"], add.read('{"a": 4}')
    (3, 'add', ['a'], {'a': 4, 'b': 1})
    """

    is_client = False
    """True if the caller of the run makes the calls."""

    def __init__(self, function: Callable[Params, Returned], **options: Unpack[Options]) -> None:
        _check_options(options)
        self.options = options
        self.function = function
        self.is_async = is_async(function)
        self.name = _validate_name(options.get("name") or _derive_name(function))
        docstring = signature.parse_docstring(_find_docstring(function))
        self.description = options.get("description", docstring.description)
        self.signature = self._build_signature(docstring.parameters)
        self.read = self.signature.read
        """Parses and checks the arguments that a model wrote. Raises ArgumentError, which lists every mistake."""
        self.is_plain = self.signature.context is None and not self.signature.positional
        """True if all arguments can be passed by name and the function takes no ToolContext."""
        self.is_ordered = isinstance(self.signature, Signature)
        """True if `read` returns the arguments in the order of the parameters."""
        self.has_plain_values = isinstance(self.signature, Signature) and self.signature.has_plain_values
        """True if all arguments of all calls are strings, numbers and booleans."""
        self.may_need_approval = options.get("approve", False) is not False
        """True if some calls need a person's approval."""
        where = f"tool {self.name!r}"
        self.timeout = validation.parse_timeout(f"{where}, timeout", options.get("timeout", 45.0))
        self.effects = validation.parse_enum(f"{where}, effects", options.get("effects", "write"), Effects)
        self.writes = self.effects is Effects.WRITE
        self.duplicates = (
            validation.parse_enum(f"{where}, duplicates", options["duplicates"], Duplicates)
            if "duplicates" in options
            else None
        )
        self.poll = options.get("poll", False)
        """True if repeated calls are expected."""
        # Polling repeats equal calls on purpose, so it cannot be combined with a policy that skips them.
        if self.poll and self.duplicates not in (None, Duplicates.ALLOW):
            raise UsageError(f"{where}: poll=True needs duplicates='allow'")
        self.duplicates = Duplicates.ALLOW if self.poll else self.duplicates
        self.max_calls = validation.check_optional_int(f"{where}, max_calls", options.get("max_calls"))
        self.ends_run = options.get("ends_run", False)
        """True if each result ends the run and is its answer."""
        if self.ends_run and self.duplicates is None:
            self.duplicates = Duplicates.ALLOW  # after a nudge, an equal call must be possible
        self.result_is_data = options.get("result_is_data", False)
        """True if a returned mapping is never taken for a failure."""
        self.max_result_characters = validation.check_int(
            f"{where}, max_result_characters",
            options.get("max_result_characters", MAX_CHARACTERS),
            min_value=MIN_CHARACTERS,
        )
        """Characters of a result that the model sees."""
        self.excerpt = options.get("excerpt")
        """Function that shortens results. None means the usual excerpt."""
        if self.excerpt is not None:
            check_excerpt(f"{where}, excerpt", self.excerpt)
        self.cheap = options.get("cheap", False)
        self.idempotent = options.get("idempotent", False)
        self.retry_on_timeout = options.get("retry_on_timeout", self.effects is Effects.READ)
        self.sensitive = frozenset(options.get("sensitive", ()))
        for name in self.sensitive - set(self.signature.names):
            raise ConfigError(f"{where}, sensitive", name, f"one of its parameters: {', '.join(self.signature.names)}")

    def _build_signature(self, descriptions: Mapping[str, str]) -> Signature | JsonSchemaArguments:
        return Signature(self.name, self.function, descriptions)

    @classmethod
    def of(cls, function: Tool | Function) -> Tool:
        """Return a tool unchanged, and wrap a plain function."""
        if isinstance(function, Tool):
            return cast("Tool", function)
        if not callable(function):
            raise ConfigError("tool", function, "a function or another callable")
        return cls(function)

    def with_excerpts(self, max_characters: int | None, excerpt: Excerpt | None) -> Tool:
        """Return the tool with an agent's way to shorten results, unless it has its own."""
        other = copy.copy(self)
        if max_characters is not None and "max_result_characters" not in self.options:
            other.max_result_characters = max_characters
        if excerpt is not None and "excerpt" not in self.options:
            other.excerpt = excerpt
        return other

    @staticmethod
    def from_schema(
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        call: Function | None = None,
        **options: Unpack[CallOptions],
    ) -> Tool:
        """Return a tool whose parameters are described by a JSON schema.

        `call` gets the arguments by name, and a ToolContext if it has a parameter for it. Without `call` it is a client
        tool: each call pauses the run until the caller passes its result to `resume`.
        """
        from .schema_tool import build_schema_tool  # cycle: a schema tool is a tool

        return build_schema_tool(name, description, parameters, call, options)

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        return self.signature.schema

    def definition(self) -> dict[str, Any]:
        """Return the description for a model, independent of any provider's format."""
        return {"name": self.name, "description": self.description, "parameters": self.schema}

    def bind(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Callable[[], Any]:
        """Return the call as a function without parameters.

        The context is passed only if the function has a parameter for it.
        """
        if self.is_plain:
            return functools.partial(self.function, **arguments)
        values = dict(arguments)
        if self.signature.context is not None:
            values[self.signature.context] = context
        positional = [name for name in self.signature.positional if name in values]
        return functools.partial(self.function, *[values.pop(name) for name in positional], **values)

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool | str:
        """Check whether a person must approve this call.

        A returned text is the question for the person. If `approve` raises, the call needs approval.
        """
        approve = self.options.get("approve", False)
        if not callable(approve):
            return approve
        try:
            answer = approve(arguments)
            return answer if isinstance(answer, str) and answer.strip() else answer is not False
        except (Exception, SystemExit):
            return True

    def __call__(self, *args: Params.args, **kwargs: Params.kwargs) -> Returned:
        """Call the wrapped function directly."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(
        self: Tool[Concatenate[Any, MethodParams], Returned], instance: object, owner: type | None = None
    ) -> Tool[MethodParams, Returned]: ...

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return a tool bound to an instance, like a method."""
        if instance is None:
            return self
        return Tool(self.function.__get__(instance, owner), **(self.options | Options(name=self.name)))

    def __repr__(self) -> str:
        return f"<Tool {self.name}({', '.join(self.signature.names)})>"


class Toolset(Mapping[str, Tool]):
    """The tools of a run, by name."""

    def __init__(self, tools: Iterable[Tool | Function] = (), unlisted: Iterable[Tool] = ()) -> None:
        """Create a set of tools. Errors do not mention the `unlisted` ones, which are not always offered."""
        self.by_name: dict[str, Tool] = {}
        for item in map(Tool.of, tools):
            if item.name in self.by_name:
                raise ConfigError("tools", item.name, "a name that no other tool has")
            self.by_name[item.name] = item
        self._listed = tuple(self.by_name)
        self.by_name.update({item.name: item for item in unlisted})

    def __getitem__(self, name: str) -> Tool:
        try:
            return self.by_name[name]
        except (KeyError, TypeError):
            raise UnknownTool(name, self._listed) from None

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)


_OPTION_TYPES: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "description": str,
    "cheap": bool,
    "result_is_data": bool,
    "ends_run": bool,
    "idempotent": bool,
    "poll": bool,
    "retry_on_timeout": bool,
    "sensitive": (list, tuple, set, frozenset),
}


def _check_options(options: Mapping[str, Any]) -> None:
    validation.check_options("tool", options, Options.__annotations__)
    for name, value in options.items():
        if not isinstance(value, _OPTION_TYPES.get(name, object)):
            raise ConfigError(f"tool, {name}", value, "a text" if _OPTION_TYPES[name] is str else "True or False")


def _validate_name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        return name
    raise ConfigError("tool, name", name, "1 to 64 letters, digits, _ or -")


def _derive_name(function: Function) -> str:
    """Return a function's name, or an object's class name in snake case."""
    plain = unwrap_partial(function)
    return getattr(plain, "__name__", None) or re.sub(r"(?<!^)(?=[A-Z])", "_", type(plain).__name__).lower()


def _find_docstring(function: Function) -> str | None:
    # For a callable object prefer the docstring of __call__: that of its class describes the object, not the call.
    plain = unwrap_partial(function)
    if inspect.isroutine(plain) or inspect.isclass(plain):
        return plain.__doc__
    return type(plain).__call__.__doc__ or plain.__doc__
