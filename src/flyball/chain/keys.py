"""Secret keys that sign the context of a chain. They are never shown."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode

from .._internal.text import REDACTED
from ..errors import ConfigError, SettingError
from ..settings import Setting, Settings

CURRENT, PREVIOUS = "chain.key", "chain.previous_key"
_MIN_LENGTH = 16
_EXPECTED = f"a secret of at least {_MIN_LENGTH} characters, the same for all services of the chain"


class Keys:
    """Signing key, and the previous key, still accepted during a rotation.

    >>> Keys("correct horse battery staple")
    <Keys 8200bd92>
    """

    __slots__ = ("_by_id", "_current", "id")

    def __init__(self, current: str | bytes, previous: str | bytes | None = None) -> None:
        secret = _check_secret("chain, key", current)
        old_secret = None if previous is None else _check_secret("chain, previous key", previous)
        self._current = secret
        self.id = _key_id(secret)
        """Id of the signing key, derived from the key itself."""
        self._by_id = {self.id: secret} if old_secret is None else {_key_id(old_secret): old_secret, self.id: secret}

    @classmethod
    def from_settings(cls, settings: Settings) -> Keys | None:
        """Load the keys from `chain.key` and `chain.previous_key`.

        Returns None if neither is set.
        """
        current, previous = settings.find(CURRENT), settings.find(PREVIOUS)
        if current is None:
            if previous is not None:
                raise SettingError(PREVIOUS, previous.source, REDACTED, f"no previous key, or {CURRENT} as well")
            return None
        _check_setting(current)
        if previous is not None:
            _check_setting(previous)
        return cls(str(current.value), None if previous is None else str(previous.value))

    def sign(self, text: bytes) -> bytes:
        """Sign a text with the current key."""
        return _sign(self._current, text)

    def accepts(self, key_id: str, text: bytes, signature: bytes) -> bool:
        """Check a signature against the known keys, in constant time."""
        key = self._by_id.get(key_id)
        return key is not None and hmac.compare_digest(_sign(key, text), signature)

    def __repr__(self) -> str:
        previous_ids = [name for name in self._by_id if name != self.id]
        return f"<Keys {self.id}, before {previous_ids[0]}>" if previous_ids else f"<Keys {self.id}>"

    def __reduce__(self) -> str:
        raise TypeError("keys cannot be copied or pickled; create them again in the other process")


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
    # SettingError quotes the value it gets, so pass it a description instead of the secret.
    value = setting.value
    if not isinstance(value, str) or len(value.encode("utf-8", "surrogateescape")) < _MIN_LENGTH:
        found = f"{len(value)} characters" if isinstance(value, str) else f"a {type(value).__name__}"
        raise SettingError(setting.key, setting.source, found, _EXPECTED)
