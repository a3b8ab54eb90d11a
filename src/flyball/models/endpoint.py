"""The URL, key and headers of a provider's API."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from .. import __version__
from .._internal.text import REDACTED
from ..errors import ConfigError, UsageError
from .options import HttpOptions

FALLBACK_KEY_VARIABLE = "FLYBALL_API_KEY"
"""Variable for the key of other servers. A provider's own key is sent to that provider only."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Header names that HTTP allows."""


@dataclass(frozen=True, slots=True)
class Provider:
    """Fixed facts about a provider."""

    name: str
    url: str
    url_variable: str
    key_variables: tuple[str, ...]
    """Environment variables of its key. The first that is set counts."""
    max_output_tokens: int
    headers: Mapping[str, str]
    max_output_elsewhere: int
    """Maximum tokens of a reply to ask other servers of the same API for."""
    key_header: str = "authorization"


class Endpoint:
    """Address of an API: the provider's own, or a compatible server."""

    def __init__(self, spec: Provider, options: HttpOptions) -> None:
        self._spec = spec
        has_url, url_of_environment = "url" in options, os.environ.get(spec.url_variable)
        self.url = _validate_url(options.get("url", url_of_environment or spec.url))
        default_source = f"from {spec.url_variable}" if url_of_environment else "the default"
        self._url_source = "given with the model" if has_url else default_source
        self.host = spec.name if self.is_official else urlsplit(self.url).netloc
        self.provider = options.get("provider") or self.host
        variables = (FALLBACK_KEY_VARIABLE,) if has_url else spec.key_variables
        self._key = Key(options.get("key"), *(variables if options.get("sends_environment_key", True) else ()))
        self._headers = _validate_headers(options.get("headers", {}))

    @property
    def is_official(self) -> bool:
        """Check whether this is the provider's own server."""
        return self.url == self._spec.url

    @property
    def max_output_tokens(self) -> int:
        """Default maximum of tokens in a reply."""
        return self._spec.max_output_tokens if self.is_official else self._spec.max_output_elsewhere

    def build_headers(self) -> dict[str, str]:
        """Return the headers of a request. The user's headers replace ours."""
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "user-agent": f"flyball/{__version__}",
            **self._spec.headers,
        }
        key = self._key.reveal()
        if key is not None:
            header = self._spec.key_header
            headers[header] = f"Bearer {key}" if header == "authorization" else key
        return headers | self._headers

    def describe_missing(self) -> str | None:
        """Return None, or the message about a missing or unusable key."""
        try:
            key = self._key.reveal()
        except ConfigError as error:
            return str(error)
        if key or not self.is_official or self._spec.key_header in self._headers:
            return None
        return f"there is no key for {self.host}: set {self._key.variable}"

    def describe_key_source(self) -> str:
        """Return a hint about a rejected key's origin."""
        if self._key.source:
            return f" (the key comes from {self._key.source})"
        variable = self._key.variable
        return f" (no key was sent; set {variable})" if variable else " (no key from the environment was sent)"

    def describe_address(self) -> str:
        """Return the URL, and where it comes from."""
        return f"{self.url} ({self._url_source})"

    def secrets(self) -> tuple[str, ...]:
        """Return the key and the user's header values, which may be keys."""
        try:
            key = self._key.reveal()
        except ConfigError:
            key = None
        return (*([key] if key else []), *self._headers.values())


def _validate_url(url: Any) -> str:
    expected = "an http:// or https:// URL with a host and a path, without a user or a password"
    parts = _split_url(url) if isinstance(url, str) else None
    shown_url = redact_url(url) if isinstance(url, str) else url
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("model, url", shown_url, expected)
    if "@" in parts.netloc:
        raise ConfigError("model, url", shown_url, f"{expected}; use key= instead")
    if parts.query or parts.fragment:
        raise ConfigError("model, url", shown_url, f"{expected}, and without ? and #")
    return url.rstrip("/")


def _split_url(url: str) -> SplitResult | None:
    """Split a URL, or return None for an invalid one."""
    try:
        parts = urlsplit(url)
        is_valid = parts.port != 0 and not re.search(r"\s", url)
    except ValueError:
        return None
    return parts if is_valid else None


def _validate_headers(raw_headers: Any) -> dict[str, str]:
    if not isinstance(raw_headers, Mapping):
        raise UsageError(f"the headers of a model must map names to values, but are a {type(raw_headers).__name__}")
    headers: dict[str, str] = {}
    for name, value in cast("Mapping[object, object]", raw_headers).items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigError("model, headers", name, "a header name such as x-team")
        if not (isinstance(value, str) and value.isascii() and value.isprintable()):
            raise UsageError(f"the header {name!r} of a model must be one line of printable ASCII text")
        headers[name.lower()] = value
    return headers


class Key:
    """Secret from an argument, or read from the environment when used."""

    __slots__ = ("_value", "_variables")

    def __init__(self, value: str | None, *variables: str) -> None:
        if value is not None and not (isinstance(value, str) and value.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("the key of a model must be a non-empty text")
        self._value = value
        self._variables = variables

    @property
    def variable(self) -> str | None:
        """Environment variable that is read when no value was passed. None means there is none."""
        is_set = (variable for variable in self._variables if os.environ.get(variable))
        return next(is_set, self._variables[0] if self._variables else None)

    @property
    def source(self) -> str | None:
        """`key=`, or the environment variable that has the key. None means that there is no key."""
        if self._value:
            return "key="
        return self.variable if self._read() else None

    def reveal(self) -> str | None:
        """Return the secret for the header that carries it, or None.

        It raises ConfigError if a header cannot carry the secret. No local variable holds the secret, because error
        reports may show local variables.
        """
        if not all("!" <= letter <= "~" for letter in self._read()):
            raise UsageError(f"the key of the model ({self.source}) must be printable ASCII characters without spaces")
        return self._read() or None

    def _read(self) -> str:
        return (self._value or (os.environ.get(self.variable, "") if self.variable else "")).strip()

    def __repr__(self) -> str:
        return REDACTED

    def __reduce__(self) -> str:
        raise TypeError("a model with a key cannot be pickled: create it again in the other process")


def redact_url(url: str) -> str:
    """Hide user, password and query of a URL."""
    return re.sub(r"\?[^#]*", f"?{REDACTED}", re.sub(r"[^?#]+", _without_user, url))


def _without_user(part: re.Match[str]) -> str:
    """Hide the text between `://` and the last `@` of a part without ? and #."""
    scheme, separator, rest = part[0].partition("://")
    _, at_sign, host = rest.rpartition("@")
    return f"{scheme}{separator}{REDACTED}{at_sign}{host}" if separator and at_sign else part[0]
