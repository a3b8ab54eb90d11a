"""Models by name, as written in settings or on the command line."""

from __future__ import annotations

from ..errors import ConfigError, suggest_names
from .endpoint import redact_url
from .model import Model

_EXPECTED_FORMS = (
    "openai:NAME, anthropic:NAME, http://HOST:PORT/v1#NAME, local:smollm2, local:PATH.gguf or script:PATH.toml"
)

KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""Environment variable of each provider's key."""


def named(reference: str, where: str = "model", *, sends_url_key: bool = True) -> Model:
    """Return the model that a reference names.

    Without `sends_url_key`, FLYBALL_API_KEY is not sent to a URL.

    >>> named("http://127.0.0.1:8080/v1#qwen3").name
    'qwen3'
    """
    scheme, _, rest = reference.partition(":")
    if scheme in ("http", "https"):
        return _model_from_url(reference, where, sends_url_key)
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
        from .script_file import load_script

        return load_script(rest)
    similar = suggest_names(scheme, ("openai", "anthropic", "local", "script", "http")) if rest else []
    hint = f"; did you mean {redact_url(f'{similar[0]}:{rest}')}?" if similar else ""
    raise ConfigError(where, redact_url(reference), f"{_EXPECTED_FORMS}{hint}")


def _model_from_url(reference: str, where: str, sends_key: bool) -> Model:
    from .openai import OpenAIModel

    url, _, name = reference.partition("#")
    if not name:
        raise ConfigError(where, redact_url(url), f"the name of the model after a #, as in {redact_url(url)}#NAME")
    return OpenAIModel(name, url=url, sends_environment_key=sends_key)
