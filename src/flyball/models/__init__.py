"""Models: adapters that answer a run's requests.

Adapters are imported on first use, so that a run pays only for the one it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import Model

if TYPE_CHECKING:
    from .anthropic import AnthropicModel
    from .by_name import named
    from .catalog import context_tokens_of, price_of
    from .gemini import GeminiModel
    from .local import LocalModel
    from .openai import OpenAIModel
    from .options import Timeouts
    from .responses import ResponsesModel

__all__ = [
    "AnthropicModel",
    "GeminiModel",
    "LocalModel",
    "Model",
    "OpenAIModel",
    "ResponsesModel",
    "Timeouts",
    "context_tokens_of",
    "named",
    "price_of",
]

_MODULE_OF = {
    "AnthropicModel": "anthropic",
    "GeminiModel": "gemini",
    "LocalModel": "local",
    "OpenAIModel": "openai",
    "ResponsesModel": "responses",
    "Timeouts": "options",
    "context_tokens_of": "catalog",
    "named": "by_name",
    "price_of": "catalog",
}


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULE_OF:
            return globals().setdefault(name, getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name))
        from .._deprecated import find_old_name

        return globals().setdefault(name, find_old_name(__name__, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
