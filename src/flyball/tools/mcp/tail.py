"""The last words of a server: what it wrote to stderr, as far as anybody wants to read it."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 2_000
"""Characters that are shown."""
_LEAST_SECRET = 4
"""Characters: what is shorter is in every other word, too."""


class Tail:
    """Keeps the end of what is written to it, however much that is. What is secret is not shown."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted((secret for secret in secrets if len(secret) >= _LEAST_SECRET), key=len, reverse=True)
        self._kept = bytearray()

    def write(self, data: bytes) -> None:
        """Add something."""
        self._kept += data
        del self._kept[: -8 * _MOST]

    @property
    def text(self) -> str:
        """The end of it."""
        return self.safe(self._kept.decode("utf-8", "replace")).strip()[-_MOST:]

    def safe(self, text: str) -> str:
        """A text in which no secret can be read."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text
