"""Tools: functions that a model may call, with what it must know of them and what bounds them."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, TypedDict, Unpack, overload

from .._internal import validation
from ..errors import ConfigError, UnknownTool
from ..steadiness import Duplicates
from . import signature
from .context import ToolContext
from .json_schema import JsonSchemaArguments
from .signature import Signature

Function = Callable[..., Any]
Approve = bool | Callable[[Mapping[str, Any]], bool | str]
"""Whether a person must agree to a call; or a function of its arguments that says so."""


class Effects(StrEnum):
    """Whether a call changes anything: reads may run side by side, a write is a barrier."""

    READ = "read"
    WRITE = "write"


class Options(TypedDict, total=False):
    """What `@tool(...)` takes. Everything may be left out."""

    name: str
    """What the model calls it; else the function's name."""
    description: str
    """What the model reads; else the docstring."""
    timeout: float | None
    """Seconds for one call (45), never past the end of the run's work; None for no cap of its own."""
    effects: Literal["read", "write"]
    """Whether a call changes anything ("write"): reads may run side by side, a write is a barrier."""
    cheap: bool
    """A round of only cheap calls gives its turn back."""
    idempotent: bool
    """May be made again after a crash, with the same idempotency key."""
    retry_on_timeout: bool
    """False: once it timed out it is blocked for the rest of the run. Else: whether it only reads."""
    duplicates: Literal["allow", "reuse", "reject"]
    """What becomes of a call that an equal one has answered; else as the agent says. The agent loop sees to it, not the
    executor, which does not know what was said in between."""
    poll: bool
    """Is there to be called again and again until something has changed: never counts as a repetition."""
    max_calls: int
    """The most calls in one run."""
    sensitive: Sequence[str]
    """Parameters that events, logs and exports do not show."""
    approve: Approve
    """Whether a person must agree first; or a function of the arguments that says so. All but False means yes, and a
    text is what the person is asked."""


_OPTION_TYPES: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "description": str,
    "cheap": bool,
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


class Tool:
    """A function that a model may call. It can still be called like the function it is.

    >>> @tool(effects="read", timeout=5)
    ... def add(a: int, b: int = 1) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> add(1, 2), add.name, add.schema["required"], add.read('{"a": 4}')
    (3, 'add', ['a'], {'a': 4, 'b': 1})
    """

    def __init__(self, function: Function, **options: Unpack[Options]) -> None:
        _check_options(options)
        self.options = options
        self.function = function
        self.is_async = _is_async(function)
        self.name = _validate_name(options.get("name") or _derive_name(function))
        said = signature.parse_docstring(_find_docstring(function))
        self.description = options.get("description", said.description)
        self.signature = self._build_signature(said.parameters)
        self.read = self.signature.read
        """The arguments that a model wrote, checked and of the right types; ArgumentError lists every mistake."""
        self.is_plain = self.signature.context is None and not self.signature.positional
        """Whether its arguments can be given by name, and it wants nothing else."""
        self.is_ordered = isinstance(self.signature, Signature)
        """Whether arguments that were read are in the order of its parameters."""
        self.may_need_approval = options.get("approve", False) is not False
        """Whether some calls of it need a person."""
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
        """Whether it is there to be called again and again."""
        if self.poll and self.duplicates not in (None, Duplicates.ALLOW):
            raise ConfigError(
                f"{where}, poll", "a poll whose duplicates are not made", "duplicates='allow', or no poll"
            )
        self.duplicates = Duplicates.ALLOW if self.poll else self.duplicates
        self.max_calls = validation.check_optional_int(f"{where}, max_calls", options.get("max_calls"))
        self.cheap = options.get("cheap", False)
        self.idempotent = options.get("idempotent", False)
        self.retry_on_timeout = options.get("retry_on_timeout", self.effects is Effects.READ)
        self.sensitive = frozenset(options.get("sensitive", ()))
        for name in self.sensitive - set(self.signature.names):
            raise ConfigError(f"{where}, sensitive", name, f"one of its parameters: {', '.join(self.signature.names)}")

    def _build_signature(self, descriptions: Mapping[str, str]) -> Signature | JsonSchemaArguments:
        """What it takes; by the function's own annotations, where nobody says otherwise."""
        return Signature(self.name, self.function, descriptions)

    @classmethod
    def of(cls, function: Tool | Function) -> Tool:
        """A tool as it is, and a plain function as if it were decorated."""
        if isinstance(function, Tool):
            return function
        if not callable(function):
            raise ConfigError("tool", function, "a function, or something else that can be called")
        return cls(function)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return self.signature.schema

    def definition(self) -> dict[str, Any]:
        """What a model is told about it, in no provider's shape."""
        return {"name": self.name, "description": self.description, "parameters": self.schema}

    def bind(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Callable[[], Any]:
        """The call, ready to be made, with the context where the function asks for it."""
        if self.is_plain:
            return functools.partial(self.function, **arguments)
        wanted = dict(arguments)
        if self.signature.context is not None:
            wanted[self.signature.context] = context
        positional = [name for name in self.signature.positional if name in wanted]
        return functools.partial(self.function, *[wanted.pop(name) for name in positional], **wanted)

    def needs_approval(self, arguments: Mapping[str, Any]) -> bool | str:
        """Whether a person must agree to this call; a text is what to ask. What cannot be told means yes."""
        approve = self.options.get("approve", False)
        if not callable(approve):
            return approve
        try:
            answer = approve(arguments)
            return answer if isinstance(answer, str) and answer.strip() else answer is not False
        except (Exception, SystemExit):
            return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as if it were no tool."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool:
        """In a class: the tool of that object's method."""
        if instance is None:
            return self
        return Tool(self.function.__get__(instance, owner), **(self.options | Options(name=self.name)))

    def __repr__(self) -> str:
        return f"<Tool {self.name}({', '.join(self.signature.names)})>"


@overload
def tool(function: Function, /) -> Tool: ...


@overload
def tool(**options: Unpack[Options]) -> Callable[[Function], Tool]: ...


def tool(function: Function | None = None, /, **options: Unpack[Options]) -> Tool | Callable[[Function], Tool]:
    """Make a tool of a function: `@tool`, or `@tool(timeout=5, effects="read")`."""
    if function is not None:
        return Tool(function, **options)

    def decorate(decorated: Function) -> Tool:
        return Tool(decorated, **options)

    return decorate


class Toolset(Mapping[str, Tool]):
    """The tools of a run, by name."""

    def __init__(self, tools: Iterable[Tool | Function] = ()) -> None:
        self.by_name: dict[str, Tool] = {}
        for one in map(Tool.of, tools):
            if one.name in self.by_name:
                raise ConfigError("tools", one.name, "a name of its own for each tool")
            self.by_name[one.name] = one

    def __getitem__(self, name: str) -> Tool:
        try:
            return self.by_name[name]
        except (KeyError, TypeError):
            raise UnknownTool(name, tuple(self.by_name)) from None

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)


def _validate_name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        return name
    raise ConfigError("tool, name", name, "1 to 64 letters, digits, _ and -, as model providers want it")


def _unwrap_partial(function: Function) -> Function:
    return _unwrap_partial(function.func) if isinstance(function, functools.partial) else function


def _derive_name(function: Function) -> str:
    """The function's own name; that of its class, in small letters, for an object that can be called."""
    plain = _unwrap_partial(function)
    return getattr(plain, "__name__", None) or re.sub(r"(?<!^)(?=[A-Z])", "_", type(plain).__name__).lower()


def _find_docstring(function: Function) -> str | None:
    """An object that can be called has the docs of its method first; those of its class are about something else."""
    plain = _unwrap_partial(function)
    if inspect.isroutine(plain) or inspect.isclass(plain):
        return plain.__doc__
    return type(plain).__call__.__doc__ or plain.__doc__


def _is_async(function: Function) -> bool:
    plain = _unwrap_partial(function)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(getattr(plain, "__call__", None))  # noqa: B004
