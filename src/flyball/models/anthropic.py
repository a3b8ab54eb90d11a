"""Anthropic's messages API."""

from __future__ import annotations

from typing import ClassVar

from ..request import Request
from ..wire.anthropic import AnthropicWire
from ..wire.bodies import WireRequest
from .endpoint import Provider
from .http import HttpModel


class AnthropicModel(HttpModel):
    """Anthropic model.

    The key is `key=` or ANTHROPIC_API_KEY. With `url=` it is `key=` or FLYBALL_API_KEY.
    """

    _provider_spec: ClassVar[Provider] = Provider(
        name="anthropic",
        url="https://api.anthropic.com",
        url_variable="ANTHROPIC_BASE_URL",
        key_variables=("ANTHROPIC_API_KEY",),
        max_output_tokens=8_192,
        headers={"anthropic-version": "2026-10-21"},
        max_output_elsewhere=8_192,
    )
    _wire = AnthropicWire()

    def _prepare(self, request: Request) -> WireRequest:
        """Return the request with a limit of tokens, which the API requires."""
        prepared = super()._prepare(request)
        prepared.max_output_tokens = (
            request.max_output_tokens or self.max_output_tokens or self._endpoint.max_output_tokens
        )
        return prepared
