"""Keys: what signs a chain's context, and what it is checked with. They are shown to nobody."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode

from ..errors import ConfigError, SettingError
from ..settings import Setting, Settings

CURRENT, PREVIOUS = "chain.key", "chain.previous_key"
_MIN_LENGTH = 16
_EXPECTED = f"a secret of at least {_MIN_LENGTH} characters, the same for all services of the chain"


class Keys:
    """The key that signs, and the one before it, which is still believed while services change over.

    >>> Keys("correct horse battery staple")
    <Keys 8200bd92>
    """

    __slots__ = ("_by_id", "_current", "id")

    def __init__(self, current: str | bytes, previous: str | bytes | None = None) -> None:
        now = _check_secret("chain, key", current)
        old = None if previous is None else _check_secret("chain, previous key", previous)
        self._current = now
        self.id = _key_id(now)
        """The name of the key that signs: everybody who has the key has the same name for it."""
        self._by_id = {self.id: now} if old is None else {_key_id(old): old, self.id: now}

    @classmethod
    def from_settings(cls, settings: Settings) -> Keys | None:
        """The keys of the settings `chain.key` and `chain.previous_key`; None where there is none."""
        current, previous = settings.find(CURRENT), settings.find(PREVIOUS)
        if current is None:
            if previous is not None:
                raise SettingError(PREVIOUS, previous.source, "a key", f"none without {CURRENT}")
            return None
        _check_setting(current)
        if previous is not None:
            _check_setting(previous)
        return cls(str(current.value), None if previous is None else str(previous.value))

    def sign(self, text: bytes) -> bytes:
        """The signature of a text, by the key of today."""
        return _sign(self._current, text)

    def accepts(self, key_id: str, text: bytes, signature: bytes) -> bool:
        """Whether one of the keys has made a signature; tells nobody by its time how much of it was right."""
        key = self._by_id.get(key_id)
        return key is not None and hmac.compare_digest(_sign(key, text), signature)

    def __repr__(self) -> str:
        before = [name for name in self._by_id if name != self.id]
        return f"<Keys {self.id}, before {before[0]}>" if before else f"<Keys {self.id}>"

    def __reduce__(self) -> str:
        raise TypeError("keys are not written down; make them again where they are needed")


def _sign(key: bytes, text: bytes) -> bytes:
    return urlsafe_b64encode(hmac.digest(key, text, "sha256")).rstrip(b"=")


def _key_id(key: bytes) -> str:
    return hmac.digest(key, b"flyball chain key id", "sha256").hex()[:8]


def _check_secret(where: str, value: object) -> bytes:
    secret = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if isinstance(secret, bytes) and len(secret) >= _MIN_LENGTH:
        return secret
    found = f"{len(secret)} characters" if isinstance(secret, bytes) else f"a {type(value).__name__}"
    raise ConfigError(where, found, _EXPECTED)


def _check_setting(setting: Setting) -> None:
    """As SettingError quotes what was found, a secret is not handed to it."""
    value = setting.value
    if not isinstance(value, str) or len(value.encode("utf-8", "surrogateescape")) < _MIN_LENGTH:
        found = f"{len(value)} characters" if isinstance(value, str) else f"a {type(value).__name__}"
        raise SettingError(setting.key, setting.source, found, _EXPECTED)
