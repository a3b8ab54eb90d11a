"""Options of models reached over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, cast

from .._internal import validation
from ..budget.price import Price
from ..errors import ConfigError, UsageError

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts in seconds. None waits until the run's deadline, which always holds too.

    Without streaming a reply comes in one piece, and `first` applies to all of it.
    """

    connect: float | None = 10.0
    """Until the connection is open."""
    first: float | None = 300.0
    """Until the first token. A reasoning model may be silent for minutes."""
    between: float | None = 60.0
    """Between two tokens. Keep-alive messages of the server do not count as tokens."""
    whole: float | None = None
    """Until the end of the reply."""

    def __post_init__(self) -> None:
        for name in ("connect", "first", "between", "whole"):
            validation.parse_timeout(f"patience, {name}", getattr(self, name))


class HttpOptions(TypedDict, total=False):
    """Options of a model reached over HTTP. All are optional."""

    key: str | None
    """Key. Default: read from the environment at the time of use."""
    sends_environment_key: bool
    """Whether a key from the environment is sent. Default True."""
    url: str
    """Base URL, as the provider's own client wants it: OpenAI's with the version (`/v1`), Anthropic's without."""
    provider: str
    """Provider's name in results, events and price lists. Default: derived from the URL."""
    headers: Mapping[str, str]
    """Additional headers of every request."""
    body: Mapping[str, Any]
    """Additional body fields of every request, such as `service_tier`. A table is merged with ours."""
    tool_choice: str
    """`auto`, `required`, `none`, or the name of the tool that the model must call."""
    parallel_calls: bool
    """Whether a reply may have several calls. Default: the provider's."""
    stream: bool
    """Whether the reply is streamed. Default True."""
    patience: Timeouts
    max_output_tokens: int | None
    """Maximum tokens of a reply when tokens or money are limited. The model itself may allow less."""
    context_tokens: int | None
    """Size of the context window in tokens. None means that the catalog is asked."""
    price: Price | None
    """Price of its tokens. None means that the settings and the catalog are asked."""
    client: httpx2.AsyncClient
    """Your own client, with your proxies and certificates. It serves one event loop, and you close it."""


_RESERVED_FIELDS = {
    "model": "the model's name, given first",
    "messages": "the task of the run",
    "system": "instructions= of the agent",
    "tools": "tools= of the agent",
    "tool_choice": "tool_choice= of the model",
    "parallel_tool_calls": "parallel_calls= of the model",
    "stream": "stream= of the model",
    "stream_options": "stream= of the model",
    "max_tokens": "max_output_tokens= of the model or the agent",
    "max_completion_tokens": "max_output_tokens= of the model or the agent",
    "n": "several runs, because a request has one reply",
    "input": "the task of the run",
    "contents": "the task of the run",
    "instructions": "instructions= of the agent",
    "systemInstruction": "instructions= of the agent",
    "system_instruction": "instructions= of the agent",
    "toolConfig": "tool_choice= of the model",
    "tool_config": "tool_choice= of the model",
    "max_output_tokens": "max_output_tokens= of the model or the agent",
    "maxOutputTokens": "max_output_tokens= of the model or the agent",
    "candidateCount": "several runs, because a request has one reply",
    "generation_config": "generationConfig",
    "previous_response_id": "keeps_state= of the model",
    "conversation": "keeps_state= of the model",
    "background": "the run's own deadline, because a run waits for its replies",
}
"""Fields that limits, call pairing or the parsing of replies depend on, and where to set them instead."""
_TOOL_CHOICES = ("auto", "required", "none")


class RequestOptions:
    """Validated options of every request."""

    def __init__(self, name: str, options: HttpOptions) -> None:
        validation.check_text("model, name", name)
        validation.check_options(f"model {name}", options, HttpOptions.__annotations__)
        validation.check_optional_int(f"model {name}, max_output_tokens", options.get("max_output_tokens"), min_value=1)
        validation.check_optional_int(f"model {name}, context_tokens", options.get("context_tokens"), min_value=1)
        self.body = _validate_body(name, options.get("body", {}))
        self.tool_choice: str | None = options.get("tool_choice")
        self.parallel: bool | None = options.get("parallel_calls")
        if self.tool_choice is not None:
            validation.check_text(f"model {name}, tool_choice", self.tool_choice)
        for option in ("parallel_calls", "stream"):
            if option in options:
                validation.check_type(f"model {name}, {option}", options.get(option), bool)

    @property
    def forced_tool(self) -> str | None:
        """Name of the tool that the model must call, or None."""
        return None if self.tool_choice in (None, *_TOOL_CHOICES) else self.tool_choice

    def merge_into(self, body: dict[str, Any]) -> dict[str, Any]:
        """Add the user's fields to a body.

        Tables in both are merged.
        """
        for field, value in self.body.items():
            is_table = isinstance(value, dict) and isinstance(body.get(field), dict)
            body[field] = body[field] | value if is_table else value
        return body


def _validate_body(name: str, value: object) -> dict[str, Any]:
    where = f"model {name}, body"
    if not isinstance(value, Mapping):
        raise ConfigError(where, value, "a mapping of request fields")
    body = dict(cast("Mapping[str, Any]", value))
    config: object = body.get("generationConfig")
    for field in [*body, *(cast("Mapping[str, Any]", config) if isinstance(config, Mapping) else ())]:
        if field in _RESERVED_FIELDS:
            raise UsageError(f"model {name}: body must not contain {field!r}; use {_RESERVED_FIELDS[field]}")
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"model {name}: body must be valid as JSON: {error}") from None
    return body
