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
_MIN_SECRET_LENGTH = 6
"""A text shorter than this is no secret, and hiding it would garble what it is a part of."""


class Key:
    """A secret from an argument, or, when it is needed, from the environment."""

    __slots__ = ("_value", "variable")

    def __init__(self, value: str | None, variable: str | None) -> None:
        if value is not None and not (isinstance(value, str) and value.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("model, key", type(value).__name__, "a text that is not empty")
        self._value = value
        self.variable = variable
        """Where it comes from, if it was not given."""

    def reveal(self) -> str | None:
        """The secret itself, for the one header that carries it; a ConfigError where no header could.

        No variable of this function has it, because what reports errors may show variables.
        """
        if not all("!" <= letter <= "~" for letter in self._read()):
            where = "model, key" if self._value else f"model, key ({self.variable})"
            found = f"a text of {len(self._read())} characters"
            raise ConfigError(where, found, "printable ASCII characters, without spaces")
        return self._read() or None

    def _read(self) -> str:
        return (self._value or (os.environ.get(self.variable, "") if self.variable else "")).strip()

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> str:
        raise TypeError("a key is not written down; make the model again where it is needed")


def redact(secrets: Iterable[str], text: str) -> str:
    """A text in which none of the secrets is left; the longest go first, because one may be a part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET_LENGTH:
            text = text.replace(secret, HIDDEN)
    return text


def redact_url(url: str) -> str:
    """A URL to be shown, without what may be a secret in it: a user, a password, a query."""
    return re.sub(r"\?[^#]*", "?***", re.sub(r"[^?#]+", _without_user, url))


def _without_user(part: re.Match[str]) -> str:
    """Hide what stands between `://` and the last `@` of a part that has no ? and no #."""
    scheme, marked, rest = part[0].partition("://")
    _, at, host = rest.rpartition("@")
    return f"{scheme}{marked}{HIDDEN}{at}{host}" if marked and at else part[0]


FALLBACK_KEY_VARIABLE = "FLYBALL_API_KEY"
"""The variable for servers that nobody knows: a provider's key goes to that provider only."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
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

    def __init__(self, spec: Provider, options: HttpOptions) -> None:
        self._spec = spec
        elsewhere = "url" in options
        self.url = _validate_url(options.get("url", os.environ.get(spec.url_variable) or spec.url))
        self.request_url = f"{self.url}{spec.path}"
        self.host = spec.name if self.is_official else urlsplit(self.url).netloc
        self.provider = options.get("provider") or self.host
        self._key = Key(options.get("key"), FALLBACK_KEY_VARIABLE if elsewhere else spec.key_variable)
        self._headers = _validate_headers(options.get("headers", {}))

    @property
    def is_official(self) -> bool:
        """Whether it is the provider's own."""
        return self.url == self._spec.url

    @property
    def max_output_tokens(self) -> int:
        """The most that a reply has, where nobody says otherwise."""
        return self._spec.max_output_tokens if self.is_official else self._spec.max_output_elsewhere

    def build_headers(self) -> dict[str, str]:
        """What a request carries; those of the user replace ours."""
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "user-agent": f"flyball/{__version__}",
            **self._spec.headers,
        }
        key = self._key.reveal()
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        return headers | self._headers

    def describe_missing(self) -> str | None:
        """What is missing before anything can be asked."""
        try:
            key = self._key.reveal()
        except ConfigError as error:
            return str(error)
        if key or not self.is_official or "authorization" in self._headers:
            return None
        return f"there is no key for {self.host}: set {self._key.variable}, or give key="

    def describe_key_source(self) -> str:
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


def _validate_url(url: Any) -> str:
    expected = "http:// or https://, a host and a path, without a user or a password"
    parts = _split_url(url) if isinstance(url, str) else None
    found = redact_url(url) if isinstance(url, str) else url
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("model, url", found, expected)
    if "@" in parts.netloc:
        raise ConfigError("model, url", found, f"{expected}; give key= instead")
    if parts.query or parts.fragment:
        raise ConfigError("model, url", found, f"{expected}; and without ? and #")
    return url.rstrip("/")


def _split_url(url: str) -> SplitResult | None:
    """The parts of a URL that has a sensible host and port; else None."""
    try:
        parts = urlsplit(url)
        sensible = parts.port != 0 and not re.search(r"\s", url)
    except ValueError:
        return None
    return parts if sensible else None


def _validate_headers(raw_headers: Any) -> dict[str, str]:
    if not isinstance(raw_headers, Mapping):
        raise ConfigError("model, headers", type(raw_headers).__name__, "names and values")
    headers: dict[str, str] = {}
    for name, value in cast("Mapping[object, object]", raw_headers).items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigError("model, headers", name, "names such as x-team")
        if not (isinstance(value, str) and value.isascii() and value.isprintable()):
            raise ConfigError(f"model, headers, {name}", "no plain text", "a text in one line of ASCII")
        headers[name.lower()] = value
    return headers
