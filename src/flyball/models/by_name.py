"""Models by name, as written in settings or on the command line."""

from __future__ import annotations

from ..errors import ConfigError, suggest_names
from .endpoint import redact_url
from .model import Model

_SCHEMES = ("openai", "openai-responses", "anthropic", "google", "local", "script", "http")
_EXPECTED_FORMS = (
    "openai:NAME, openai-responses:NAME, anthropic:NAME, google:NAME, http://HOST:PORT/v1#NAME, local:smollm2, "
    "local:PATH.gguf or script:PATH.toml"
)

KEY_VARIABLES = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
"""Environment variables of each provider's key. The first that is set counts."""
_PROVIDERS = {"openai-responses": "openai"}
"""Provider of the names that begin otherwise."""


def provider_of(scheme: str) -> str:
    """Return the provider of models whose name begins so.

    >>> provider_of("openai-responses"), provider_of("google")
    ('openai', 'google')
    """
    return _PROVIDERS.get(scheme, scheme)


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
    if rest and scheme == "openai-responses":
        from .responses import ResponsesModel

        return ResponsesModel(rest)
    if rest and scheme == "google":
        from .gemini import GeminiModel

        return GeminiModel(rest)
    if rest and scheme == "anthropic":
        from .anthropic import AnthropicModel

        return AnthropicModel(rest)
    if rest and scheme == "local":
        from .local import LocalModel

        return LocalModel(rest)
    if rest and scheme == "script":
        from .script_file import load_script

        return load_script(rest)
    similar = suggest_names(scheme, _SCHEMES) if rest else []
    hint = f"; did you mean {redact_url(f'{similar[0]}:{rest}')}?" if similar else ""
    raise ConfigError(where, redact_url(reference), f"{_EXPECTED_FORMS}{hint}")


def _model_from_url(reference: str, where: str, sends_key: bool) -> Model:
    from .openai import OpenAIModel

    url, _, name = reference.partition("#")
    if not name:
        raise ConfigError(where, redact_url(url), f"the name of the model after a #, as in {redact_url(url)}#NAME")
    return OpenAIModel(name, url=url, sends_environment_key=sends_key)
