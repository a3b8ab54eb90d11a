"""Gemini's generateContent API."""

from __future__ import annotations

from typing import ClassVar

from ..wire.gemini import GeminiWire
from .endpoint import Provider
from .http import HttpModel


class GeminiModel(HttpModel):
    """Gemini model.

    The key is `key=`, else GEMINI_API_KEY, else GOOGLE_API_KEY. With `url=` it is `key=` or FLYBALL_API_KEY, and may
    be missing.
    """

    _provider_spec: ClassVar[Provider] = Provider(
        name="google",
        url="https://generativelanguage.googleapis.com",
        url_variable="GOOGLE_GEMINI_BASE_URL",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        key_header="x-goog-api-key",
        max_output_tokens=8_192,
        headers={},
        max_output_elsewhere=8_192,
    )
    _wire = GeminiWire()
