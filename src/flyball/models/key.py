"""A key: sent to the provider it is for, and shown to nobody."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from ..errors import ConfigError

HIDDEN = "***"
_SHORTEST = 6
"""A text shorter than this is no secret, and hiding it would garble what it is a part of."""


class Key:
    """A secret from an argument, or, when it is needed, from the environment."""

    __slots__ = ("_given", "variable")

    def __init__(self, given: str | None, variable: str | None) -> None:
        if given is not None and not (isinstance(given, str) and given.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("model, key", type(given).__name__, "a text that is not empty")
        self._given = given
        self.variable = variable
        """Where it comes from, if it was not given."""

    def reveal(self) -> str | None:
        """The secret itself, for the one header that carries it; a ConfigError where no header could.

        No variable of this function has it, because what reports errors may show variables.
        """
        if not all("!" <= letter <= "~" for letter in self._found()):
            where = "model, key" if self._given else f"model, key ({self.variable})"
            found = f"a text of {len(self._found())} characters"
            raise ConfigError(where, found, "printable ASCII characters, without spaces")
        return self._found() or None

    def _found(self) -> str:
        return (self._given or (os.environ.get(self.variable, "") if self.variable else "")).strip()

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> str:
        raise TypeError("a key is not written down; make the model again where it is needed")


def without(secrets: Iterable[str], text: str) -> str:
    """A text in which none of the secrets is left; the longest go first, because one may be a part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, HIDDEN)
    return text


def bare(url: str) -> str:
    """A URL to be shown, without what may be a secret in it: a user, a password, a query."""
    return re.sub(r"\?[^#]*", "?***", re.sub(r"[^?#]+", _without_user, url))


def _without_user(part: re.Match[str]) -> str:
    """Hide what stands between `://` and the last `@` of a part that has no ? and no #."""
    scheme, marked, rest = part[0].partition("://")
    _, at, host = rest.rpartition("@")
    return f"{scheme}{marked}{HIDDEN}{at}{host}" if marked and at else part[0]
