"""Token counts of requests, as providers report them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from ..errors import ConfigError

MAX_TOKENS = 2**53
"""Largest accepted count. Every program reads numbers up to here exactly, and sums of them can be written."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more requests.

    `cached` and `written` are parts of `input`; `reasoning` is part of `output`.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    """Input tokens read from a cache."""
    reasoning: int = 0
    written: int = 0
    """Input tokens written to a cache."""

    def __post_init__(self) -> None:
        for count in (self.input, self.output, self.cached, self.reasoning, self.written):
            if type(count) is not int or not 0 <= count <= MAX_TOKENS:
                self._check_counts()
                return

    def _check_counts(self) -> None:
        for name in ("input", "output", "cached", "reasoning", "written"):
            _check_count(name, getattr(self, name))

    @property
    def total(self) -> int:
        """Sum of input and output tokens."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage.summed(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.written + other.written,
        )

    @classmethod
    def summed(cls, input: int, output: int, cached: int, reasoning: int, written: int) -> Usage:
        """Create a Usage from sums of valid counts. A sum above the maximum counts as the maximum."""
        usage, set_field = object.__new__(cls), object.__setattr__
        set_field(usage, "input", min(input, MAX_TOKENS))
        set_field(usage, "output", min(output, MAX_TOKENS))
        set_field(usage, "cached", min(cached, MAX_TOKENS))
        set_field(usage, "reasoning", min(reasoning, MAX_TOKENS))
        set_field(usage, "written", min(written, MAX_TOKENS))
        return usage

    @classmethod
    def of(cls, usage: object) -> Usage:
        """Parse usage reported by OpenAI or Anthropic.

        Accepts a mapping or an SDK object. A `Usage` is returned unchanged.

        >>> Usage.of({"prompt_tokens": 40, "completion_tokens": 10})
        Usage(input=40, output=10, cached=0, reasoning=0, written=0)
        """
        if isinstance(usage, Usage):
            return usage
        reader = _UsageReader(usage)
        if reader.has("prompt_tokens"):
            return _parse_openai(reader, "prompt_tokens", "completion_tokens")
        if reader.has("cache_read_input_tokens") or reader.has("cache_creation_input_tokens"):
            return _parse_anthropic(reader)
        if reader.has("input_tokens"):
            return _parse_openai(reader, "input_tokens", "output_tokens")
        if reader.has("input") or reader.has("output"):
            cached, written = reader.count("cached"), reader.count("written")
            return _clamp_parts(
                reader.count("input"), reader.count("output"), cached, reader.count("reasoning"), written
            )
        raise ConfigError("usage", usage, "input_tokens and output_tokens, or prompt_tokens and completion_tokens")


def _parse_openai(reader: _UsageReader, input_key: str, output_key: str) -> Usage:
    details = reader.child(f"{input_key}_details")
    cached, written = details.count("cached_tokens"), details.count("cache_write_tokens")
    return _clamp_parts(
        reader.count(input_key), reader.count(output_key), cached, _count_reasoning(reader, output_key), written
    )


def _parse_anthropic(reader: _UsageReader) -> Usage:
    # Anthropic's input_tokens excludes the tokens read from and written to the cache.
    cached = reader.count("cache_read_input_tokens")
    written = reader.count("cache_creation_input_tokens")
    total_input = reader.count("input_tokens") + cached + written
    return _clamp_parts(
        total_input, reader.count("output_tokens"), cached, _count_reasoning(reader, "output_tokens"), written
    )


def _count_reasoning(reader: _UsageReader, output_key: str) -> int:
    details = reader.child(f"{output_key}_details")
    return details.count("reasoning_tokens") or details.count("thinking_tokens")


def _clamp_parts(input: int, output: int, cached: int, reasoning: int, written: int) -> Usage:
    # Servers sometimes report a part that is larger than the whole.
    input, cached = min(input, MAX_TOKENS), min(cached, input, MAX_TOKENS)
    return Usage(input, output, cached, min(reasoning, output), min(written, input - cached))


class _UsageReader:
    """Reads counts from a mapping or an object; missing or None is 0."""

    def __init__(self, source: object) -> None:
        self.source = source

    def get(self, name: str) -> object:
        source = self.source
        if isinstance(source, Mapping):
            return cast("Mapping[str, object]", source).get(name)
        return getattr(source, name, None)

    def has(self, name: str) -> bool:
        return self.get(name) is not None

    def child(self, name: str) -> _UsageReader:
        return _UsageReader(self.get(name))

    def count(self, name: str) -> int:
        value = self.get(name)
        return 0 if value is None else _check_count(name, value)


def _check_count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKENS:
        raise ConfigError(f"usage, {name}", value, f"an int from 0 to {MAX_TOKENS:,}")
    return value
