"""Texts for people: one line, plurals, and secrets replaced by `***`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..errors import truncate

REDACTED = "***"


def to_one_line(text: str, max_chars: int = 400) -> str:
    """Return the text without line breaks, shortened if long.

    >>> to_one_line("two\\n  lines"), to_one_line("too long", 3)
    ('two lines', 'too…')
    """
    return truncate(" ".join(text[: 2 * max_chars].split()), max_chars)


def pluralize(count: int, noun: str) -> str:
    """Return a count and its noun.

    >>> pluralize(1, "run"), pluralize(2_000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def redact(text: str, secrets: Iterable[str], min_length: int = 6) -> str:
    """Replace the secrets in a text, the longest first.

    The order matters, because a secret may be part of another. A secret shorter than `min_length` could be a word of
    any text, and stays.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= min_length:
            text = text.replace(secret, REDACTED)
    return text


def redact_arguments(arguments: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Replace the values of sensitive arguments.

    >>> redact_arguments({"user": "ada", "password": "steam"}, {"password"})
    {'user': 'ada', 'password': '***'}
    """
    return {name: REDACTED if name in names else value for name, value in arguments.items()}
