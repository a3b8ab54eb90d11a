"""Where a model is reached, and with what key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from .. import __version__
from ..errors import ConfigError
from .options import HttpOptions

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


OTHER_KEY = "FLYBALL_API_KEY"
"""The variable for servers that nobody knows: a provider's key goes to that provider only."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What HTTP takes as the name of a header."""


@dataclass(frozen=True, slots=True)
class Provider:
    """What is known of a provider."""

    name: str
    url: str
    url_variable: str
    key_variable: str
    path: str
    max_output_tokens: int
    headers: Mapping[str, str]
    max_output_elsewhere: int
    """What any server that speaks alike may be asked for."""


class Endpoint:
    """A provider's API: its own, or one that speaks alike somewhere else."""

    def __init__(self, house: Provider, options: HttpOptions) -> None:
        self._house = house
        elsewhere = "url" in options
        self.url = _checked(options.get("url", os.environ.get(house.url_variable) or house.url))
        self.endpoint = f"{self.url}{house.path}"
        self.host = house.name if self.at_home else urlsplit(self.url).netloc
        self.provider = options.get("provider") or self.host
        self._key = Key(options.get("key"), OTHER_KEY if elsewhere else house.key_variable)
        self._headers = _headers(options.get("headers", {}))

    @property
    def at_home(self) -> bool:
        """Whether it is the provider's own."""
        return self.url == self._house.url

    @property
    def max_output_tokens(self) -> int:
        """The most that a reply has, where nobody says otherwise."""
        return self._house.max_output_tokens if self.at_home else self._house.max_output_elsewhere

    def headers(self) -> dict[str, str]:
        """What a request carries; those of the user replace ours."""
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "user-agent": f"flyball/{__version__}",
            **self._house.headers,
        }
        key = self._key.reveal()
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        return headers | self._headers

    def lacks(self) -> str | None:
        """What is missing before anything can be asked."""
        try:
            key = self._key.reveal()
        except ConfigError as error:
            return str(error)
        if key or not self.at_home or "authorization" in self._headers:
            return None
        return f"there is no key for {self.host}: set {self._key.variable}, or give key="

    def hint(self) -> str:
        """What to do about a key that is refused."""
        variable = self._key.variable
        return f" (the key comes from key= or {variable})"

    def secrets(self) -> tuple[str, ...]:
        """The key, and the values of further headers, which may be keys too."""
        try:
            key = self._key.reveal()
        except ConfigError:
            key = None
        return (*([key] if key else []), *self._headers.values())


def _checked(url: Any) -> str:
    expected = "http:// or https://, a host and a path, without a user or a password"
    parts = _parts(url) if isinstance(url, str) else None
    found = bare(url) if isinstance(url, str) else url
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("model, url", found, expected)
    if "@" in parts.netloc:
        raise ConfigError("model, url", found, f"{expected}; give key= instead")
    if parts.query or parts.fragment:
        raise ConfigError("model, url", found, f"{expected}; and without ? and #")
    return url.rstrip("/")


def _parts(url: str) -> SplitResult | None:
    """The parts of a URL that has a sensible host and port; else None."""
    try:
        parts = urlsplit(url)
        sensible = parts.port != 0 and not re.search(r"\s", url)
    except ValueError:
        return None
    return parts if sensible else None


def _headers(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ConfigError("model, headers", type(given).__name__, "names and values")
    headers: dict[str, str] = {}
    for name, value in cast("Mapping[object, object]", given).items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            raise ConfigError("model, headers", name, "names such as x-team")
        if not (isinstance(value, str) and value.isascii() and value.isprintable()):
            raise ConfigError(f"model, headers, {name}", "no plain text", "a text in one line of ASCII")
        headers[name.lower()] = value
    return headers
