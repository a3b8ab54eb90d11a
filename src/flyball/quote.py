"""How messages quote a value, and guess what somebody meant."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST_NAME = 100
"""Characters. A longer name is no typing mistake, and comparing two takes time that grows with both."""


def shown(value: object) -> str:
    """A value as an error message quotes it: its repr, cut where it would bury the message."""
    try:
        text = repr(value)
    except Exception:  # a number of thousands of digits, or an object that is broken: the message must still be told
        text = f"<a {type(value).__name__} that cannot be shown>"
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text):,} characters)"


def nearest(name: str, known: Iterable[str], likeness: float = 0.7) -> list[str]:
    """The known names that somebody who wrote `name` may have meant, nearest first."""
    from difflib import get_close_matches  # only a mistake pays for the import

    if len(name) > _LONGEST_NAME:
        return []
    meant = {other.lower(): other for other in known if len(other) <= _LONGEST_NAME}
    return [meant[near] for near in get_close_matches(name.lower(), list(meant), n=3, cutoff=likeness)]
