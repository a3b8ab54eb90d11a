"""What is asked of a model, what it replies, and what that used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from . import check
from .errors import ConfigError
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


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model."""

    messages: Sequence[Message]
    instructions: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    purpose: Purpose = Purpose.TURN
    max_output_tokens: int | None = None
    output_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model: text, calls, or both."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    """None where the provider told nothing."""
    finish: Finish = Finish.STOP
    model: str | None = None
    provider: str | None = None
