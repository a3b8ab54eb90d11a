"""What a recording must not have: the secrets of a model, and whatever looks like a key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..errors import ConfigError
from ..models.key import HIDDEN, without

_KEY = re.compile(
    r"""
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?i:\bbearer\s+)[\w.~+/-]{16,}=*
    | (?<![\w-])(?>(?P<before_token>[\w-]*?)\beyJ)[\w-]{10,}+\.[\w-]{10,}+\.[\w-]+     # a JSON web token
    | (?<![\w-])(?>(?P<before_key>[\w-]*?)\b(?:sk|pk|rk)[-_])(?=[\w-]*\d)[\w-]{16,}
    | \b(?:gh[oprsu]_|github_pat_|glpat-|hf_|npm_|pypi-|xox[a-z]-)[\w-]{16,}
    | \bAKIA[0-9A-Z]{16}\b
    | \bAIza[\w-]{30,}
    """,
    re.VERBOSE | re.DOTALL,
)
"""Keys as providers make them: a prefix of theirs and enough behind it that it is no word of a sentence.

Of a long run of letters only the first prefix in it is tried: if that has not enough behind it, no later one has.
"""


class Censor:
    """Puts *** in the place of secrets, of those it is told and of what looks like one. Twice comes to the same."""

    __slots__ = ("_secrets", "secrets")

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self.secrets = tuple(secrets)
        escaped = [json.dumps(secret)[1:-1] for secret in secrets]  # as they stand in arguments, which are JSON
        self._secrets = tuple({*secrets, *escaped})

    @classmethod
    def of(cls, model: object) -> Censor:
        """One that knows the secrets of a model, if that has `secrets()`."""
        told = getattr(model, "secrets", None)
        if not callable(told):
            return cls()
        secrets = told()
        if isinstance(secrets, str) or not isinstance(secrets, Sequence):
            raise ConfigError("recorded model, secrets()", type(secrets).__name__, "a list of texts")
        return cls([str(secret) for secret in cast("Sequence[object]", secrets)])

    def text(self, text: str) -> str:
        """A text without secrets."""
        while (cleaned := _KEY.sub(_hidden, without(self._secrets, text))) != text:
            text = cleaned
        return text

    def clean(self, value: Any) -> Any:
        """The same, with every text in it without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            rows = cast("Mapping[Any, Any]", value)
            return {self.clean(key): self.clean(row) for key, row in rows.items()}
        if isinstance(value, list | tuple):
            return [self.clean(row) for row in cast("Sequence[Any]", value)]
        return value

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """The pieces of one text without secrets; where one goes over several pieces, the text comes in one."""
        whole = "".join(pieces)
        cleaned = self.text(whole)
        if cleaned == whole:
            return [*pieces]
        apart = [self.text(piece) for piece in pieces]
        return apart if "".join(apart) == cleaned else [cleaned]


def _hidden(found: re.Match[str]) -> str:
    return (found["before_token"] or found["before_key"] or "") + HIDDEN


PLAIN = Censor()
"""Knows no secret, only what keys look like."""
