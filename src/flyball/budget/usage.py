"""Token counts of requests, as providers report them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from ..errors import ConfigError

MAX_TOKENS = 2**53
"""Largest accepted count. Every program reads numbers up to here exactly, and sums of them can be written."""
_DETAILS = {name: f"{name}_details" for name in ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")}
"""Names of the parts of a count."""


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
        if max(input, output, cached, reasoning, written) > MAX_TOKENS:
            input, output, cached = min(input, MAX_TOKENS), min(output, MAX_TOKENS), min(cached, MAX_TOKENS)
            reasoning, written = min(reasoning, MAX_TOKENS), min(written, MAX_TOKENS)
        usage, set_field = object.__new__(cls), object.__setattr__
        set_field(usage, "input", input)
        set_field(usage, "output", output)
        set_field(usage, "cached", cached)
        set_field(usage, "reasoning", reasoning)
        set_field(usage, "written", written)
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
        read = _get_reader(usage)
        if read("prompt_tokens") is not None:
            return _parse_openai(read, "prompt_tokens", "completion_tokens")
        if read("cache_read_input_tokens") is not None or read("cache_creation_input_tokens") is not None:
            return _parse_anthropic(read)
        if read("input_tokens") is not None:
            return _parse_openai(read, "input_tokens", "output_tokens")
        if read("input") is not None or read("output") is not None:
            cached, reasoning, written = _count(read, "cached"), _count(read, "reasoning"), _count(read, "written")
            return _clamp_parts(_count(read, "input"), _count(read, "output"), cached, reasoning, written)
        raise ConfigError("usage", usage, "input_tokens and output_tokens, or prompt_tokens and completion_tokens")


Reader = Callable[[str], object]
"""Function that returns the value of a name, or None."""


def _get_reader(source: object) -> Reader:
    if type(source) is dict or isinstance(source, Mapping):  # looking for Mapping takes longer than the reading
        return cast("Mapping[str, object]", source).get
    return lambda name: getattr(source, name, None)


def _count(read: Reader, name: str) -> int:
    value = read(name)
    if value is None:
        return 0
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else _check_count(name, value)


def _check_count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKENS:
        raise ConfigError(f"usage, {name}", value, f"an int from 0 to {MAX_TOKENS:,}")
    return value


def _parse_openai(read: Reader, input_key: str, output_key: str) -> Usage:
    input, output = _count(read, input_key), _count(read, output_key)
    input_details, output_details = read(_DETAILS[input_key]), read(_DETAILS[output_key])
    if input_details is None and output_details is None:
        return Usage.summed(input, output, 0, 0, 0)
    read_part = _get_reader(input_details)
    cached, written = _count(read_part, "cached_tokens"), _count(read_part, "cache_write_tokens")
    return _clamp_parts(input, output, cached, _count_reasoning(output_details), written)


def _parse_anthropic(read: Reader) -> Usage:
    # Anthropic's input_tokens excludes the tokens read from and written to the cache.
    cached, written = _count(read, "cache_read_input_tokens"), _count(read, "cache_creation_input_tokens")
    total_input = _count(read, "input_tokens") + cached + written
    reasoning = _count_reasoning(read("output_tokens_details"))
    return _clamp_parts(total_input, _count(read, "output_tokens"), cached, reasoning, written)


def _count_reasoning(details: object) -> int:
    read = _get_reader(details)
    return _count(read, "reasoning_tokens") or _count(read, "thinking_tokens")


def _clamp_parts(input: int, output: int, cached: int, reasoning: int, written: int) -> Usage:
    # Servers sometimes report a part that is larger than the whole.
    input, cached = min(input, MAX_TOKENS), min(cached, input, MAX_TOKENS)
    return Usage.summed(input, output, cached, min(reasoning, output), min(written, input - cached))
