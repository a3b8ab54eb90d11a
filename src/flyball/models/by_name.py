"""A model by name, as one writes it in a setting or on a command line."""

from __future__ import annotations

from ..errors import ConfigError, nearest
from .endpoint import bare
from .model import Model

_FORMS = "openai:NAME, anthropic:NAME, http://HOST:PORT/v1#NAME, local:smollm2, local:PATH.gguf or script:PATH.toml"

KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""The variables in which providers' keys are looked for."""


def named(reference: str, where: str = "model") -> Model:
    """The model that a text names.

    >>> named("http://127.0.0.1:8080/v1#qwen3").name
    'qwen3'
    """
    scheme, _, rest = reference.partition(":")
    if scheme in ("http", "https"):
        return _elsewhere(reference, where)
    if rest and scheme == "openai":
        from .openai import OpenAIModel

        return OpenAIModel(rest)
    if rest and scheme == "anthropic":
        from .anthropic import AnthropicModel

        return AnthropicModel(rest)
    if rest and scheme == "local":
        from .local import LocalModel

        return LocalModel(rest)
    if rest and scheme == "script":
        from .script_file import scripted

        return scripted(rest)
    near = nearest(scheme, ("openai", "anthropic", "local", "script", "http")) if rest else []
    hint = f"; did you mean {bare(f'{near[0]}:{rest}')}?" if near else ""
    raise ConfigError(where, bare(reference), f"{_FORMS}{hint}")


def _elsewhere(reference: str, where: str) -> Model:
    from .openai import OpenAIModel

    url, _, name = reference.partition("#")
    if not name:
        raise ConfigError(where, bare(url), f"the model's name behind a #, as in {bare(url)}#NAME")
    return OpenAIModel(name, url=url)
