"""What is asked of a model, what it replies, and what that used."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, cast, overload

from . import check
from .errors import ConfigError, ContextTooLong, FlyballError, Retryable
from .message import Message


class Purpose(StrEnum):
    """What a request is for."""

    TURN = "turn"
    GRACE = "grace"
    REFLECTION = "reflection"


class Finish(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    CUT = "cut"
    """By us: a deadline or a cancel ended it in the middle; what there was of its text is kept."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more requests. `cached` is part of `input`, `reasoning` is part of `output`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "reasoning"):
            check.whole(f"usage, {name}", getattr(self, name))

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
        )

    @classmethod
    def summed(cls, input: int, output: int, cached: int, reasoning: int) -> Usage:
        """A sum of what was checked before."""
        usage, keep = object.__new__(cls), object.__setattr__
        keep(usage, "input", input)
        keep(usage, "output", output)
        keep(usage, "cached", cached)
        keep(usage, "reasoning", reasoning)
        return usage

    @classmethod
    def of(cls, usage: object) -> Usage:
        """Read what OpenAI or Anthropic report, as a mapping or an object of their SDKs; a Usage stays itself.

        >>> Usage.of({"prompt_tokens": 40, "completion_tokens": 10})
        Usage(input=40, output=10, cached=0, reasoning=0)
        """
        if isinstance(usage, Usage):
            return usage
        read = _Reader(usage)
        if read.has("prompt_tokens"):
            return _openai(read, "prompt_tokens", "completion_tokens")
        if read.has("cache_read_input_tokens") or read.has("cache_creation_input_tokens"):
            return _anthropic(read)
        if read.has("input_tokens"):
            return _openai(read, "input_tokens", "output_tokens")
        if read.has("input") or read.has("output"):
            cached, reasoning = read.count("cached"), read.count("reasoning")
            return _parts_within(read.count("input"), read.count("output"), cached, reasoning)
        raise ConfigError("usage", usage, "input_tokens and output_tokens, or prompt_tokens and completion_tokens")


_PUT = tuple(Usage.__dict__[name].__set__ for name in Usage.__slots__)
"""How a field of a frozen Usage is filled."""


def _openai(read: _Reader, given: str, made: str) -> Usage:
    cached = read.below(f"{given}_details").count("cached_tokens")
    reasoning = read.below(f"{made}_details").count("reasoning_tokens")
    return _parts_within(read.count(given), read.count(made), cached, reasoning)


def _parts_within(input: int, output: int, cached: int, reasoning: int) -> Usage:
    """A part cannot be more than the whole, whatever a server says."""
    return Usage(input, output, min(cached, input), min(reasoning, output))


def _anthropic(read: _Reader) -> Usage:
    """What is read from or written to the cache is not part of this provider's input_tokens."""
    cached = read.count("cache_read_input_tokens")
    written = read.count("cache_creation_input_tokens")
    return Usage(read.count("input_tokens") + cached + written, read.count("output_tokens"), cached)


class _Reader:
    """Reads counts by name from a mapping or from an object with attributes; what is absent or None is 0."""

    def __init__(self, source: object) -> None:
        self.source = source

    def get(self, name: str) -> object:
        source = self.source
        if isinstance(source, Mapping):
            return cast("Mapping[str, object]", source).get(name)
        return getattr(source, name, None)

    def has(self, name: str) -> bool:
        return self.get(name) is not None

    def below(self, name: str) -> _Reader:
        return _Reader(self.get(name))

    def count(self, name: str) -> int:
        value = self.get(name)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"usage, {name}", value, "a number of tokens, 0 or more")
        return value


@dataclass(frozen=True, slots=True)
class Call:
    """What a model asks for: a tool, and its arguments as the model wrote them."""

    id: str
    name: str
    arguments: str | Mapping[str, Any]


class History(Sequence[Message]):
    """The first messages of a conversation that only grows: what a request saw, without a copy for each request."""

    __slots__ = ("_all", "_length")

    def __init__(self, messages: list[Message]) -> None:
        self._all = messages
        self._length = len(messages)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        return islice(self._all, self._length)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return self._all[slice(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._all[index if index >= 0 else index + self._length]


@dataclass(slots=True)
class Request:
    """One question to a model. Not frozen, because a run makes many; treat it as a value."""

    messages: Sequence[Message]
    instructions: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    """What may be called: `name`, `description` and `parameters`, a JSON schema."""
    purpose: Purpose = Purpose.TURN
    max_output_tokens: int | None = None
    output_schema: Mapping[str, Any] | None = None
    notices: tuple[str, ...] = ()
    """Short messages for this request only, to be shown behind the newest message."""
    run_id: str = ""
    """The run that asks; its messages may come from others."""
    model: str = ""
    """Which of the agent's other models is asked; empty for its own."""


@dataclass(slots=True)
class Reply:
    """One answer of a model: text, calls, or both. Not frozen, because a run has many; treat it as a value."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    """None where the provider told nothing."""
    finish: Finish = Finish.STOP
    model: str | None = None
    provider: str | None = None
    parts: tuple[Mapping[str, Any], ...] = ()
    """What else it said that its provider wants back, such as signed reasoning: payloads of multimodal parts."""


class FailureKind(StrEnum):
    """How a request failed, and so what the loop does about it."""

    RETRYABLE = "retryable"
    CONTEXT = "context"
    """The provider says that the conversation is too long for the model."""
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A request that got no reply."""

    kind: FailureKind
    error: str
    """The name of the error's class."""
    code: str
    message: str
    after_s: float | None = None
    """How long the provider asks to wait before the next attempt."""

    @classmethod
    def of(cls, error: BaseException) -> ModelFailure:
        """What a model raised, as the loop is told of it; whatever is no ModelError is final."""
        kind, after = FailureKind.FINAL, None
        if isinstance(error, Retryable):
            kind, after = FailureKind.RETRYABLE, error.after
        elif isinstance(error, ContextTooLong):
            kind = FailureKind.CONTEXT
        try:
            message = str(error)
        except Exception:
            message = "an error that cannot be shown"
        code = error.code if isinstance(error, FlyballError) else "exception"
        return cls(kind, type(error).__name__, code, message, after)


TOKENS_AROUND = 16
"""More than a provider puts around a message: its role, and the id and name of a call."""


def tokens_of(text: str) -> int:
    """More tokens than a text has: half its bytes. English has a quarter, code and hexadecimal digits up to a half."""
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) // 2 + 1


def tokens_of_message(message: Message) -> int:
    """More tokens than a message has, with what a provider puts around it."""
    tokens = tokens_of(message.content) + TOKENS_AROUND
    for key in ("arguments", "part", "parts"):
        inner = (message.payload or {}).get(key)
        if inner:
            tokens += tokens_of(inner if isinstance(inner, str) else json.dumps(inner, default=str))
    return tokens


def estimate(request: Request) -> int:
    """An upper estimate of a request's input, for models that bring no counter of their own."""
    texts = [request.instructions or "", *request.notices, *[json.dumps(tool, default=str) for tool in request.tools]]
    if request.output_schema:
        texts.append(json.dumps(request.output_schema, default=str))
    return sum(map(tokens_of, texts)) + sum(map(tokens_of_message, request.messages))
