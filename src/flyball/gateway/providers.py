"""Providers that programs ask, and where they are really reached."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from urllib.parse import urlsplit

from ..errors import ConfigError, UsageError

_TOKEN_BYTES = 24
_KEY_PREFIX = re.compile(r"(sk-ant-[a-z]+\d+-|sk-[a-z]+-|sk-|AIza)?")
"""Start of a key that programs may check."""


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """Fixed facts about a provider: where it is, and which variables of programs name it."""

    name: str
    url: str
    url_variables: tuple[str, ...]
    """Variables that programs read the address from. The first that is set says where the provider really is."""
    key_variables: tuple[str, ...]
    version: str = "/v1"
    """Part of the paths that some clients send and some leave out."""
    other_versions: tuple[str, ...] = ()
    """Versions that some clients ask for instead."""
    has_version: bool = True
    """Whether the addresses in the variables end with the version."""
    other_variables: tuple[str, ...] = ()
    """Variables that must point at the gateway too, but never say where the provider is."""


PROVIDERS = (
    KnownProvider(
        "openai",
        "https://api.openai.com/v1",
        ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        ("OPENAI_API_KEY", "CODEX_API_KEY"),
        other_variables=("OPENAI_WEBSOCKET_BASE_URL",),
    ),
    KnownProvider(
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "ANTHROPIC_API_BASE"),
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        has_version=False,
    ),
    KnownProvider(
        "google",
        "https://generativelanguage.googleapis.com",
        ("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"),
        ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
        version="/v1beta",
        other_versions=("/v1", "/v1alpha"),
        has_version=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Upstream:
    """Provider that the gateway forwards to."""

    name: str
    url: str
    """Address of the API, with its version if its paths have one."""
    version: str = "/v1"
    other_versions: tuple[str, ...] = ()
    """Versions that may stand in its place."""
    variables: tuple[str, ...] = ()
    """Variables of the program that are set to the gateway's address."""
    shows_version: bool = True
    """Whether the address in the variables ends with the version."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Real keys by what the program sends: a stand-in, or the key itself. Empty if all keys are the program's own."""
    stand_ins: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Stand-ins by the variable of the key."""

    def at_version(self, version: str) -> Upstream:
        """Return the same provider at another version of its API."""
        return replace(self, url=f"{self.url.removesuffix(self.version)}{version}", version=version)

    def split_path(self, path: str) -> tuple[Upstream, str]:
        """Return the provider at the version that a path begins with, and the rest of the path."""
        for version in (self.version, *self.other_versions):
            if path.startswith(f"{version}/"):
                return self.at_version(version) if version != self.version else self, path.removeprefix(version)
        return self, path


def find_upstreams(
    environment: Mapping[str, str],
    named: Mapping[str, str],
    variables: Mapping[str, str],
    own_keys: Mapping[str, Sequence[str]] = MappingProxyType({}),
    *,
    holds_keys: bool,
) -> tuple[Upstream, ...]:
    """Return the known providers and those that the user named, as this environment describes them.

    `named` has URLs by name, `variables` the names by the variable that points at them, `own_keys` the keys that the
    program sends by itself, by name.
    """
    found = [
        _find_known(provider, environment, own_keys.get(provider.name, ()) if holds_keys else (), holds_keys=holds_keys)
        for provider in PROVIDERS
    ]
    by_name = {upstream.name: upstream for upstream in found}
    for name, url in named.items():
        check_name("exec, --upstream", name)
        own = tuple(variable for variable, target in variables.items() if target == name)
        known = by_name.get(name)
        if known is not None:
            by_name[name] = _move(known, check_url("exec, upstream", url), own)
        elif not own:
            raise UsageError(
                f"--upstream {name}={url} needs --set VARIABLE: the variable that the program reads it from"
            )
        else:
            by_name[name] = Upstream(name, check_url("exec, upstream", url), variables=own)
    for variable, name in variables.items():
        if name not in by_name:
            raise ConfigError(
                "exec, --set", f"{name}={variable}", f"one of {', '.join(by_name)}, or an --upstream of it"
            )
    return tuple(by_name.values())


def _move(known: Upstream, url: str, variables: tuple[str, ...]) -> Upstream:
    return replace(known, url=url, variables=tuple(dict.fromkeys((*known.variables, *variables))))


def _find_known(
    provider: KnownProvider, environment: Mapping[str, str], own_keys: Sequence[str], *, holds_keys: bool
) -> Upstream:
    configured = next((environment[name] for name in provider.url_variables if environment.get(name)), provider.url)
    url = check_url("exec, upstream", configured)
    if not provider.has_version:
        url = url.removesuffix(provider.version)
    keys, stand_ins = {key: key for key in own_keys}, dict[str, str]()
    for variable in provider.key_variables if holds_keys else ():
        key = environment.get(variable, "").strip()
        if key:
            stand_ins[variable] = create_stand_in(key)
            keys[stand_ins[variable]] = key
    return Upstream(
        provider.name,
        url if provider.has_version else f"{url}{provider.version}",
        provider.version,
        provider.other_versions,
        provider.url_variables + provider.other_variables,
        provider.has_version,
        keys,
        stand_ins,
    )


def create_stand_in(key: str) -> str:
    """Return a random key with the start of a real one, so that programs accept it."""
    match = _KEY_PREFIX.match(key)
    return f"{match[0] if match else ''}flyball-{secrets.token_hex(_TOKEN_BYTES)}"


def check_name(where: str, name: str) -> str:
    """Return the name of a provider, or raise ConfigError."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ConfigError(where, name, "a name of lower-case letters, digits, - and _")
    return name


def check_url(where: str, url: str) -> str:
    """Return the address of a provider without a slash at its end, or raise ConfigError."""
    expected = "an http:// or https:// URL with a host, without a user, a password, ? and #"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ConfigError(where, url.partition("?")[0] if "@" not in url else "a URL with a user", expected)
    if parts.query or parts.fragment:
        raise ConfigError(where, url.partition("?")[0], expected)
    return url.rstrip("/")
