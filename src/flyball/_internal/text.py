"""Texts for people: one line, plurals, and secrets replaced by `***`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..errors import truncate

REDACTED = "***"
_SECRET_NAME = re.compile(r"(?i)token|key|secret|passw|auth|credential")
_NAME = re.compile(r"[\w.-]+")
_SECRET_PART = re.compile(
    r"""(?i)((?:token|key|secret|passw|credential)\w{0,40}=)[^\s'"&;*]+|\b(?:sk|pk|rk|gh[opsu]|xox\w)[-_][\w.-]{12,}|\bAIza[\w-]{12,}"""
)
"""Assignments and keys within a longer text, such as a command for a shell."""


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


def redact_command(command: Sequence[str]) -> str:
    """Return a command line without the values of options and variables that are named like secrets, and without keys.

    >>> redact_command(["env", "API_KEY=steam", "curl", "--token", "steam", "sk-abcdefghijklmnop"])
    'env API_KEY=*** curl --token *** ***'
    >>> redact_command(["sh", "-c", "A=1 MY_KEY=steam curl"])
    "sh -c 'A=1 MY_KEY=*** curl'"
    """
    shown: list[str] = []
    hides_next = False
    for word in command:
        name, has_value, _ = word.partition("=")
        is_name = _NAME.fullmatch(name) is not None and (bool(has_value) or name.startswith("-"))
        is_secret = is_name and _SECRET_NAME.search(name) is not None
        if hides_next and not word.startswith("-"):
            shown.append(REDACTED)
        else:
            shown.append(f"{shlex.quote(name)}={REDACTED}" if is_secret and has_value else shlex.quote(word))
        hides_next = is_secret and not has_value
    return _SECRET_PART.sub(lambda found: f"{found[1] or ''}{REDACTED}", " ".join(shown))


def redact_arguments(arguments: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Replace the values of sensitive arguments.

    >>> redact_arguments({"user": "ada", "password": "steam"}, {"password"})
    {'user': 'ada', 'password': '***'}
    """
    return {name: REDACTED if name in names else value for name, value in arguments.items()}
