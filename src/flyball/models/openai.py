"""OpenAI's chat completions API, which many other servers offer too."""

from __future__ import annotations

from typing import ClassVar, Unpack

from ..wire.chat import ChatWire
from .endpoint import Provider
from .http import HttpModel
from .options import HttpOptions

OPENAI = Provider(
    name="openai",
    url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    key_variables=("OPENAI_API_KEY",),
    max_output_tokens=16_384,
    headers={},
    max_output_elsewhere=4_096,
)
"""OpenAI, for both of its APIs."""


class OpenAIModel(HttpModel):
    """OpenAI model, or with `url=` a model of any compatible server.

    The key is `key=` or OPENAI_API_KEY. With `url=` it is `key=` or FLYBALL_API_KEY, and may be missing.
    """

    _provider_spec: ClassVar[Provider] = OPENAI

    def __init__(self, name: str, **options: Unpack[HttpOptions]) -> None:
        super().__init__(name, **options)
        # Compatible servers know the older name.
        self._wire = ChatWire("max_completion_tokens" if self._endpoint.is_official else "max_tokens")
