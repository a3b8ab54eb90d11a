"""Longest replies of models, which price tables do not have."""

from __future__ import annotations

_LONGEST_REPLIES: dict[str, tuple[tuple[str, int], ...]] = {
    "openai": (
        ("gpt-5-chat", 16_384),
        ("gpt-5", 128_000),
        ("gpt-4.1", 32_768),
        ("gpt-4o-2024-05-13", 4_096),
        ("gpt-4o", 16_384),
        ("gpt-4.5", 16_384),
        ("gpt-4-turbo", 4_096),
        ("gpt-4-1106", 4_096),
        ("gpt-4-0125", 4_096),
        ("gpt-4", 8_192),
        ("gpt-3.5", 4_096),
        ("o1-mini", 65_536),
        ("o1-preview", 32_768),
        ("o1", 100_000),
        ("o3", 100_000),
        ("o4", 100_000),
        ("", 4_096),
    ),
    "anthropic": (
        ("claude-3-5", 8_192),
        ("claude-3-7", 64_000),
        ("claude-3", 4_096),
        ("claude-2", 4_096),
        ("claude-instant", 4_096),
        ("claude-opus-4-5", 64_000),
        ("claude-opus-4", 32_000),
        ("claude-sonnet-4", 64_000),
        ("claude-haiku-4", 64_000),
        ("", 8_192),
    ),
    "google": (
        ("gemini-1", 8_192),
        ("gemini-2.0", 8_192),
        ("gemini-2.5-flash-image", 32_768),
        ("gemini-2.5", 65_536),
        ("gemini-3", 65_536),
        ("gemini-4", 65_536),
        ("", 8_192),
    ),
}
"""Tokens by the start of a model's name, for each provider. The first that fits counts.

The last entry is for models that are not listed: low enough for all of them.
"""


def max_output_tokens_of(provider: str | None, name: str) -> int | None:
    """Return the longest reply of a model in tokens. None means that it is not known.

    Other providers serve listed models too, under the same name or with their maker before it.

    >>> max_output_tokens_of("openai", "gpt-4o-mini"), max_output_tokens_of("openrouter", "openai/gpt-4o-mini")
    (16384, 16384)
    """
    if provider is None:
        return None
    limits = _LONGEST_REPLIES.get(provider.lower())
    if limits is None:
        limits = [limit for listed in _LONGEST_REPLIES.values() for limit in listed if limit[0]]
        name = name.rpartition("/")[2].rpartition("anthropic.")[2]
    return next((limit for start, limit in limits if name.lower().startswith(start)), None)
